#include "sim/job/job.h"
#include "sim/peers/peer.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include "sim/job/grid.h"
#include "sim/model/attention.h"

#include <string.h>

/* One operator: what it keeps for the backward pass, and what else lives while it runs. Bytes. */
typedef struct operation {
    double kept, forward, backward;
} operation;

enum { OPERATIONS = 32 };
typedef struct operations {
    operation op[OPERATIONS];
    size_t count;
} operations;

/* Tokens of a GPU between the products that are cut, and of its tensor group inside them; by how much these are cut. */
typedef struct split {
    double own, all, tensor, expert_tensor;
} split;

typedef struct walk {
    double kept, peak; /* now; greatest so far */
} walk;

static void peer_simumax_add(operations *o, double kept, double forward, double backward) {
    o->op[o->count++] = (operation){2.0 * kept, 2.0 * forward, 2.0 * backward}; /* bf16 elements */
}

/* In and out live while it runs, the input is kept. */
static void add_linear(operations *o, double in, double out, bool keeps) {
    peer_simumax_add(o, keeps ? in : 0.0, in + out, in + out);
}

/* Cut by columns: the input is gathered while it runs, the own part of it is kept. */
static void add_column(operations *o, const split *s, double in, double out) {
    const double live = s->all * (in + out / s->tensor);
    peer_simumax_add(o, s->own * in, live, live);
}

static void add_row(operations *o, const split *s, double in, double out) {
    add_linear(o, s->all * in / s->tensor, s->all * out, true);
}

static void add_norm(operations *o, double tokens, double width) {
    peer_simumax_add(o, tokens * width, 2.0 * tokens * width, 2.0 * tokens * width + tokens);
}

static void add_experts(operations *o, double rows, double hidden, double ffn) {
    add_linear(o, rows * hidden, 2.0 * rows * ffn, true);
    peer_simumax_add(o, 2.0 * rows * ffn, 3.0 * rows * ffn, 3.0 * rows * ffn);
    add_linear(o, rows * ffn, rows * hidden, true);
}

static void add_gated_ffn(operations *o, const split *s, double hidden, double ffn) {
    const double gate = s->all * ffn / s->tensor;
    add_column(o, s, hidden, 2.0 * ffn);
    peer_simumax_add(o, 2.0 * gate, 3.0 * gate, 3.0 * gate);
    add_row(o, s, ffn, hidden);
}

/* Flash attention keeps q, k, v and one bf16 log-sum-exp a head. */
static void add_core(operations *o, double tokens, double qkv, double heads, double out) {
    const double forward = tokens * (qkv + heads + out);
    peer_simumax_add(o, tokens * (qkv + heads), forward, forward + tokens * qkv);
}

static void add_attention(operations *o, const spw_model *m, const split *s) {
    const spw_attention_widths w = spw_attention_widths_of(m);
    const double query = (double)w.query, keys = (double)(w.key + w.value), context = (double)w.context,
                 heads = (double)m->heads, hidden = (double)m->hidden;
    spw_matrices list;
    bool kept = false; /* the input */
    if (w.latents == 0) {
        add_column(o, s, hidden, query + keys);
        add_core(o, s->all / s->tensor, query + keys, heads, context);
        add_row(o, s, context, hidden);
        return;
    }
    spw_matrices_of_attention(m, &list);
    for (size_t i = 0; i < list.rows; i++) {
        const spw_matrix *row = &list.row[i];
        if (row->norm) add_norm(o, s->own, (double)row->out);
        if (row->vector) continue;
        if (row->reads == SPW_READS_RESULT) add_core(o, s->own, query + keys, heads, context);
        add_linear(o, s->own * (double)row->in, s->own * (double)row->out,
                   !kept || row->reads != SPW_READS_INPUT);
        kept = kept || row->reads == SPW_READS_INPUT;
    }
}

static operations layer_of(const spw_model *m, const split *s, bool moe) {
    const double hidden = (double)m->hidden, t = s->own, experts = (double)m->experts,
                 rows = t * (double)m->top_k * s->expert_tensor;
    operations o = {.count = 0};
    add_norm(&o, t, hidden);
    add_attention(&o, m, s);
    add_norm(&o, t, hidden);
    if (!moe) {
        add_gated_ffn(&o, s, hidden, (double)m->dense_ffn);
        return o;
    }
    if (m->shared_ffn > 0) add_gated_ffn(&o, s, hidden, (double)m->shared_ffn);
    const double router = t * hidden + t * experts + hidden * experts; /* its weight is cast */
    peer_simumax_add(&o, t * hidden, router, router);
    peer_simumax_add(&o, 4.0 * t * experts, 0.0, 0.0); /* probabilities and map, 8 bytes each */
    add_experts(&o, rows, hidden, (double)m->expert_ffn / s->expert_tensor);
    peer_simumax_add(&o, rows * hidden, rows * hidden + t * hidden, rows * hidden + t * hidden);
    return o;
}

/* Padded to a multiple of 128 for each GPU of a tensor group. */
static double vocab_of(const spw_model *m, double tensor) {
    const size_t multiple = 128 * (size_t)tensor, padded = (m->vocab + multiple - 1) / multiple * multiple;
    return (double)padded / tensor;
}

static operations embedding_of(const spw_model *m, const split *s) {
    operations o = {.count = 0};
    peer_simumax_add(&o, 0.0, s->all * ((double)m->hidden + 2.0), vocab_of(m, s->tensor) * (double)m->hidden);
    return o;
}

static operations head_of(const spw_model *m, const split *s) {
    const double logits = s->all * vocab_of(m, s->tensor);
    operations o = {.count = 0};
    add_norm(&o, s->own, (double)m->hidden);
    add_column(&o, s, (double)m->hidden, vocab_of(m, s->tensor) * s->tensor);
    peer_simumax_add(&o, 2.0 * logits, 3.0 * logits, 0.0); /* the loss, in fp32 */
    return o;
}

static void note(walk *w, double bytes) { w->peak = bytes > w->peak ? bytes : w->peak; }

/* from 1: the first operator's input is kept already, as the layer's. */
static void forward(walk *w, const operations *o, size_t from) {
    for (size_t i = 0; i < o->count; i++) {
        note(w, w->kept + o->op[i].forward);
        if (i >= from) w->kept += o->op[i].kept;
    }
    note(w, w->kept);
}

static void backward(walk *w, const operations *o) {
    for (size_t i = o->count; i-- > 0;) {
        note(w, w->kept + o->op[i].backward);
        w->kept -= o->op[i].kept;
    }
}

/* One micro-batch forward and backward. Recomputed layers keep their input alone, and run again. */
static double walk_stage(const spw_model *m, const spw_block *block, const spw_stage *stage, const split *s,
                         bool full, double *kept_after_forward) {
    const operations layer[2] = {layer_of(m, s, false), layer_of(m, s, true)};
    const operations embedding = embedding_of(m, s), head = head_of(m, s);
    const double input = 2.0 * s->own * (double)m->hidden;
    walk w = {0.0, 0.0};
    if (stage->embedding) forward(&w, &embedding, 0);
    for (size_t i = block->first; i < block->first + block->layers; i++) {
        const operations *o = &layer[m->is_moe[i]];
        const double before = w.kept;
        forward(&w, o, full ? o->count : 0);
        if (full) w.kept = before + input;
    }
    if (stage->head) forward(&w, &head, 0);
    *kept_after_forward = w.kept;
    if (stage->head) backward(&w, &head);
    for (size_t i = block->first + block->layers; i-- > block->first;) {
        const operations *o = &layer[m->is_moe[i]];
        if (full) forward(&w, o, 1);
        backward(&w, o);
    }
    if (stage->embedding) backward(&w, &embedding);
    return w.peak;
}

static void add_state(const spw_job *job, const spw_stage *stage, spw_peer_memory *out) {
    const spw_model *m = &job->model;
    const double hidden = (double)m->hidden, layers = (double)stage->layers, moe = (double)stage->moe_layers;
    const spw_grid g = spw_grid_of(job);
    const double tensor = (double)g.tensor;
    const double routed = moe * 3.0 * hidden * (double)m->expert_ffn * (double)m->experts /
                          (double)(g.expert * g.expert_tensor);
    const double cut = layers * spw_peer_attention_parameters(m) +
                       (layers - moe) * 3.0 * hidden * (double)m->dense_ffn +
                       moe * 3.0 * hidden * (double)m->shared_ffn;
    double whole = layers * 2.0 * hidden + moe * hidden * (double)m->experts;
    if (stage->embedding) whole += vocab_of(m, tensor) * hidden;
    if (stage->head) whole += (vocab_of(m, tensor) + 1.0) * hidden;
    const double rest = cut / tensor + whole;
    const bool replicated = job->optimizer == SPW_OPTIMIZER_REPLICATED;
    const double replicas = replicated ? 1.0 : (double)g.data;
    const double expert_replicas = replicated ? 1.0 : (double)g.expert_data;
    out->bytes[SPW_PEER_WEIGHTS] = 2.0 * (rest + routed);
    out->bytes[SPW_PEER_GRADIENTS] = 4.0 * (rest + routed);
    out->bytes[SPW_PEER_OPTIMIZER] = 12.0 * rest / replicas + 12.0 * routed / expert_replicas;
}

spw_status spw_peer_simumax(const spw_job *job, size_t sequences, spw_peer_memory *out) {
    const spw_pipeline p = spw_pipeline_of(job);
    const spw_grid g = spw_grid_of(job);
    const double tokens = (double)spw_micro_batch_tokens(job, sequences), tensor = (double)g.tensor;
    const split s = {tokens / tensor, tokens, tensor, (double)g.expert_tensor};
    bool full = false;
    const spw_status status = spw_peer_remat(job, &full);
    memset(out, 0, sizeof *out);
    if (status != SPW_OK) return status;
    if (p.chunks > 1)
        return spw_fail(SPW_ECONFIG,
                        "virtual_stages %zu: its interleaved schedule is not restated here; use 1", p.chunks);
    if (job->model.layers % p.stages != 0)
        return spw_fail(SPW_ECONFIG,
                        "it asks for layers in multiples of the pipeline: %zu layers, pipeline %zu",
                        job->model.layers, p.stages);
    if (g.context > 1)
        return spw_fail(SPW_ECONFIG,
                        "context %zu: its exchanges of attention's parts are not restated here; use 1",
                        g.context);
    if (g.tensor > 1 && spw_attention_is_latent(&job->model))
        return spw_fail(SPW_ECONFIG, "tensor %zu: it refuses MLA under tensor parallelism; use 1", g.tensor);
    for (size_t index = 0; index < p.stages; index++) {
        const spw_stage stage = spw_pipeline_stage(&p, &job->model, index);
        const spw_block block = spw_pipeline_block(&p, &job->model, index, 0);
        spw_peer_memory here = {.stage = index,
                                .reserved = 1.0 / 0.94,
                                .layer_rows = s.own * (double)job->model.top_k * s.expert_tensor};
        double kept = 0.0;
        const double peak = walk_stage(&job->model, &block, &stage, &s, full, &kept);
        add_state(job, &stage, &here);
        here.bytes[SPW_PEER_ACTIVATIONS] =
            peak + kept * (double)(p.stages - 1 - index); /* however many there are */
        if (index == 0 || spw_peer_sum(&here) > spw_peer_sum(out)) *out = here;
    }
    return SPW_OK;
}
