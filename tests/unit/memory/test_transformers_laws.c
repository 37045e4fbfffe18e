/* Laws of a step of transformers over shapes that no run has: keys as wide as queries and narrower, layers with and without experts,
 * shared experts, tied embeddings, adapters, several micro-batches, FSDP2 with and without resharding. Weights, tensors of the forward
 * pass, what a step leaves, FLOP and exchanged bytes are counted here from the modules' forward(), not from the code. */
#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/memory/kept/transformers_job.h"
#include "sim/memory/tensors/transformers_step.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 60, LISTED = 4096, B = 2 /* bytes of bf16 */, CUBLAS = 32 << 20 /* of a thread's handle */ };

/* Sizes of tensors, by kind. */
typedef struct sizes {
    uint64_t bytes[SPW_HF_KINDS][LISTED];
    size_t count[SPW_HF_KINDS];
} sizes;

static void put(sizes *s, size_t kind, uint64_t bytes) {
    if (s->count[kind] < LISTED) s->bytes[kind][s->count[kind]++] = bytes;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool same(sizes *a, sizes *b, size_t kind) {
    const size_t n = a->count[kind];
    qsort(a->bytes[kind], n, sizeof(uint64_t), by_size);
    qsort(b->bytes[kind], b->count[kind], sizeof(uint64_t), by_size);
    return n == b->count[kind] && memcmp(a->bytes[kind], b->bytes[kind], n * sizeof(uint64_t)) == 0;
}

/* --- Shapes --- */

static size_t one_of(uint64_t *state, size_t a, size_t b) { return random_below(state, 2) ? a : b; }

/* Rows of every weight are a multiple of 4, so that 4 GPUs hold no padding. */
static void draw(uint64_t *state, spw_model *m, spw_transformers_shape *s) {
    const size_t groups = one_of(state, 1, 2);
    *m = (spw_model){.layers = 1 + random_below(state, 4),
                     .hidden = 4 * (11 + random_below(state, 9)),
                     .kv_heads = 2 + random_below(state, 3),
                     .head_dim = 4 * (1 + random_below(state, 4)),
                     .experts = 4 * (2 + random_below(state, 3)),
                     .top_k = 1 + random_below(state, 4),
                     .expert_ffn = 4 * (21 + random_below(state, 9)),
                     .shared_ffn = one_of(state, 0, 4 * (31 + random_below(state, 9))),
                     .dense_ffn = 4 * (41 + random_below(state, 9)),
                     .vocab = 4 * (101 + random_below(state, 50)),
                     .tied_embeddings = one_of(state, 0, 1)};
    m->heads = m->kv_heads * groups;
    for (size_t i = 0; i < m->layers; i++) m->is_moe[i] = random_below(state, 3) > 0;
    const size_t sequences = 1 + random_below(state, 3), shards = (size_t)1 << random_below(state, 3);
    *s = (spw_transformers_shape){.model = m,
                                  .tokens = sequences * (20 + random_below(state, 30)),
                                  .sequences = sequences,
                                  .layers = m->layers,
                                  .element_bytes = B,
                                  .weight_bytes = one_of(state, 2, 4),
                                  .moment_bytes = one_of(state, 2, 4),
                                  .reduced_bytes = one_of(state, 2, 4),
                                  .shards = shards,
                                  .wrapped = shards > 1,
                                  .keeps_gathered = one_of(state, 0, 1),
                                  .checkpoint = one_of(state, 0, 1),
                                  .keeps_logits = one_of(state, 0, 1),
                                  .micro_batches = 1 + random_below(state, 3),
                                  .norm = (spw_transformers_norm)random_below(state, 3),
                                  .wide_scores = one_of(state, 0, 1)};
    if (random_below(state, 3) > 0) return;
    s->frozen = s->adapts_attention = true;
    if (!s->wrapped) s->weight_bytes = B; /* wider adapters have narrow copies: test_transformers */
    s->moment_bytes = s->weight_bytes;
    s->lora_rank = 4 * (1 + random_below(state, 2));
}

/* --- Pencil: weights --- */

typedef struct weights {
    double layers, root, adapters; /* elements; of layers without adapters */
    double tensors, adapter_tensors;
} weights;

static weights weights_of(const spw_transformers_shape *s) {
    const spw_model *m = s->model;
    const double h = (double)m->hidden, q = (double)(m->heads * m->head_dim),
                 kv = (double)(m->kv_heads * m->head_dim), r = (double)s->lora_rank;
    weights w = {.root = (double)m->vocab * h * (m->tied_embeddings ? 1 : 2) + h,
                 .tensors = m->tied_embeddings ? 2 : 3};
    for (size_t i = 0; i < m->layers; i++) {
        w.layers += h * (q + kv + kv) + q * h + 2 * h;
        w.tensors += 6;
        if (s->norm == SPW_HF_NORM_HEAD) w.layers += 2 * (double)m->head_dim, w.tensors += 2;
        if (s->norm == SPW_HF_NORM_WHOLE) w.layers += q + kv, w.tensors += 2;
        const double e = (double)m->experts, f = (double)m->expert_ffn;
        if (m->is_moe[i])
            w.layers += e * h + 3 * e * h * f + 3 * h * (double)m->shared_ffn, w.tensors += 3;
        else
            w.layers += 3 * h * (double)m->dense_ffn;
        if (!m->is_moe[i] || m->shared_ffn > 0) w.tensors += 3;
        w.adapters += r * (h + q) + 2 * r * (h + kv) + r * (q + h);
        if (r > 0) w.adapter_tensors += 8;
    }
    return w;
}

/* --- Pencil: tensors of the forward pass --- */

static void norm_sizes(sizes *out, uint64_t rows, uint64_t width) {
    const uint64_t n = rows * width;
    put(out, SPW_HF_NORMS, 4 * n), put(out, SPW_HF_NORMS, 4 * n); /* in fp32; its square */
    for (int i = 0; i < 3; i++) put(out, SPW_HF_NORMS, 4 * rows); /* mean, mean + eps, rsqrt */
    put(out, SPW_HF_NORMS, 4 * n);
    put(out, SPW_HF_NORMS, B * n), put(out, SPW_HF_NORMS, B * n); /* back; times the weight */
}

static void linear_sizes(sizes *out, const spw_transformers_shape *s, size_t kind, uint64_t width) {
    const uint64_t bytes = s->tokens * width * B;
    put(out, kind, bytes);
    if (s->lora_rank == 0) return;
    put(out, SPW_HF_ADAPTERS, s->tokens * s->lora_rank * B);            /* A(x) */
    put(out, SPW_HF_ADAPTERS, bytes), put(out, SPW_HF_ADAPTERS, bytes); /* B(...), times the scale */
    put(out, kind, bytes);                                              /* the sum */
}

static void rotary_sizes(sizes *out, uint64_t bytes) {
    put(out, SPW_HF_ATTENTION, bytes), put(out, SPW_HF_ATTENTION, bytes / 2); /* x cos; -x2 */
    for (int i = 0; i < 3; i++) put(out, SPW_HF_ATTENTION, bytes);            /* cat, times sin, sum */
}

static void attention_sizes(sizes *out, const spw_transformers_shape *s) {
    const spw_model *m = s->model;
    const uint64_t t = s->tokens, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    linear_sizes(out, s, SPW_HF_ATTENTION, q);
    linear_sizes(out, s, SPW_HF_ATTENTION, kv), linear_sizes(out, s, SPW_HF_ATTENTION, kv);
    if (s->norm == SPW_HF_NORM_WHOLE) norm_sizes(out, t, q), norm_sizes(out, t, kv);
    if (s->norm == SPW_HF_NORM_HEAD)
        norm_sizes(out, t * m->heads, m->head_dim), norm_sizes(out, t * m->kv_heads, m->head_dim);
    rotary_sizes(out, t * q * B), rotary_sizes(out, t * kv * B);
    put(out, SPW_HF_ATTENTION, t * q * B), put(out, SPW_HF_ATTENTION, 4 * t * m->heads); /* and logsumexp */
    linear_sizes(out, s, SPW_HF_ATTENTION, m->hidden);
}

static void ffn_sizes(sizes *out, const spw_transformers_shape *s, uint64_t width) {
    for (int i = 0; i < 4; i++) put(out, SPW_HF_FFN, s->tokens * width * B); /* gate, silu, up, product */
    put(out, SPW_HF_FFN, s->tokens * s->model->hidden * B);
}

static void expert_sizes(sizes *out, const spw_transformers_shape *s) {
    const spw_model *m = s->model;
    const uint64_t t = s->tokens, tk = t * m->top_k, te = t * m->experts, h = m->hidden, f = m->expert_ffn,
                   score = s->wide_scores ? 4 : B;
    put(out, SPW_HF_ROUTER, B * te), put(out, SPW_HF_ROUTER, 4 * te), put(out, SPW_HF_ROUTER, 4 * te);
    put(out, SPW_HF_ROUTER, 4 * tk), put(out, SPW_HF_ROUTER, 8 * tk); /* topk */
    put(out, SPW_HF_ROUTER, 4 * tk); /* before they are divided by their sum */
    if (!s->wide_scores) put(out, SPW_HF_ROUTER, B * tk);
    for (int i = 0; i < 6; i++) put(out, SPW_HF_EXPERTS, 8 * tk); /* sort: 3; tokens; argsort: 2 */
    put(out, SPW_HF_EXPERTS, 16 * tk + 12800);
    put(out, SPW_HF_EXPERTS, tk * h * B), put(out, SPW_HF_EXPERTS, tk * score);
    put(out, SPW_HF_EXPERTS, 4 * tk), put(out, SPW_HF_EXPERTS, tk);                     /* histc, mask */
    put(out, SPW_HF_EXPERTS, tk * 2 * f * B), put(out, SPW_HF_EXPERTS, tk * 2 * f * B); /* masked_fill */
    put(out, SPW_HF_EXPERTS, tk * f * B), put(out, SPW_HF_EXPERTS, tk * f * B);
    put(out, SPW_HF_EXPERTS, tk * h * B), put(out, SPW_HF_EXPERTS, tk * h * B);
    put(out, SPW_HF_EXPERTS, tk * h * score), put(out, SPW_HF_EXPERTS, tk * h * score); /* weighed, ordered */
    put(out, SPW_HF_EXPERTS, t * h * score);
    if (s->wide_scores) put(out, SPW_HF_EXPERTS, t * h * B);
}

static void forward_sizes(const spw_transformers_shape *s, sizes *out) {
    const spw_model *m = s->model;
    const uint64_t t = s->tokens, h = t * m->hidden * B, n = t / s->sequences * m->head_dim, v = t * m->vocab;
    put(out, SPW_HF_HIDDEN, h);
    put(out, SPW_HF_HIDDEN,
        2 * n); /* half of the angles in fp32, then all; cosine and sine in fp32, scaled, in bf16 */
    for (int i = 0; i < 5; i++) put(out, SPW_HF_HIDDEN, 4 * n);
    put(out, SPW_HF_HIDDEN, B * n), put(out, SPW_HF_HIDDEN, B * n);
    for (size_t i = 0; i < m->layers; i++) {
        norm_sizes(out, t, m->hidden), norm_sizes(out, t, m->hidden);
        attention_sizes(out, s);
        if (m->is_moe[i]) expert_sizes(out, s);
        if (!m->is_moe[i] || m->shared_ffn > 0)
            ffn_sizes(out, s, m->is_moe[i] ? m->shared_ffn : m->dense_ffn);
        put(out, SPW_HF_HIDDEN, h), put(out, SPW_HF_HIDDEN, h);
        if (m->is_moe[i] && m->shared_ffn > 0) put(out, SPW_HF_FFN, h); /* the sum */
    }
    norm_sizes(out, t, m->hidden);
    put(out, SPW_HF_LOGITS, B * v), put(out, SPW_HF_LOGITS, 4 * v), put(out, SPW_HF_LOGITS, 4 * v);
    put(out, SPW_HF_LOGITS, 4); /* the loss */
}

/* --- Pencil: FLOP of a step that trains all weights --- */

typedef struct flops {
    double dense, grouped, attention;
} flops;

/* Forward 1, backward 2 (attention 2.5); what is run again ends before the last product of an FFN, whose output nothing keeps. */
static flops flops_of(const spw_transformers_shape *s) {
    const spw_model *m = s->model;
    const double t = (double)s->tokens, h = (double)m->hidden, q = (double)(m->heads * m->head_dim),
                 kv = (double)(m->kv_heads * m->head_dim), again = s->checkpoint ? 1 : 0;
    flops f = {.dense = 3 * 2 * t * h * (double)m->vocab};
    for (size_t i = 0; i < m->layers; i++) {
        const double wide = m->is_moe[i] ? (double)m->shared_ffn : (double)m->dense_ffn;
        f.dense +=
            2 * t * (3 + again) * (h * (q + 2 * kv) + q * h + (m->is_moe[i] ? h * (double)m->experts : 0));
        f.dense += 2 * t * h * wide * (3 * 3 + again * 2);
        f.attention += 2 * t * (t / (double)s->sequences) * q * (3.5 + again);
        if (m->is_moe[i]) f.grouped += 2 * t * (double)m->top_k * 3 * h * (double)m->expert_ffn * (3 + again);
    }
    const double micro = (double)s->micro_batches;
    return (flops){f.dense * micro, f.grouped * micro, f.attention * micro};
}

/* --- A shape --- */

static double live_of(const spw_event_list *list, size_t kind) {
    double live = 0.0;
    for (size_t i = 0; i < list->events; i++)
        if (list->event[i].kind == kind)
            live += (list->event[i].born ? 1.0 : -1.0) * (double)list->event[i].bytes;
    return live;
}

static bool is(double ours, double pencil) { return fabs(ours - pencil) <= 1e-9 * fabs(pencil); }

static void check_forward(const spw_transformers_shape *s, const spw_event_list *list) {
    static sizes ours, pencil;
    static const size_t kinds[] = {SPW_HF_NORMS, SPW_HF_ATTENTION, SPW_HF_ROUTER, SPW_HF_EXPERTS,
                                   SPW_HF_FFN,   SPW_HF_ADAPTERS,  SPW_HF_HIDDEN, SPW_HF_LOGITS};
    ours = pencil = (sizes){.count = {0}};
    for (size_t i = 0; i < list->events && !list->event[i].backward; i++)
        if (list->event[i].born) put(&ours, list->event[i].kind, list->event[i].bytes);
    forward_sizes(s, &pencil);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) CHECK(same(&ours, &pencil, kinds[i]));
}

/* The embedding's gradient adds rows up in fp32, those of every tenth thread once more. */
static void check_embedding(const spw_transformers_shape *s, const spw_event_list *list) {
    const uint64_t want = 4 * s->model->hidden * (s->tokens + s->tokens / 10);
    size_t found = 0;
    for (size_t i = 0; i < list->events; i++)
        found += list->event[i].backward && list->event[i].born && list->event[i].bytes == want;
    CHECK(found >= s->micro_batches);
}

static void check_work(const spw_transformers_shape *s, const spw_transformers_step *step, const weights *w) {
    const spw_tape_work work = spw_transformers_step_work(step);
    const spw_transformers_exchange x = spw_transformers_step_exchange(step);
    const double micro = (double)s->micro_batches, layers = (double)s->layers,
                 times = s->keeps_gathered ? 1.0 : 2.0,
                 trained = s->frozen ? w->adapters : w->layers + w->root;
    if (!s->frozen) {
        const flops f = flops_of(s);
        CHECK(is(work.flop[SPW_HF_DENSE_PRODUCT] + work.flop[SPW_HF_SMALL_PRODUCT], f.dense));
        CHECK(is(work.flop[SPW_HF_GROUPED_PRODUCT], f.grouped));
        CHECK(is(work.flop[SPW_HF_ATTENTION_PRODUCT], f.attention));
    }
    if (!s->wrapped) {
        CHECK(x.gathered_bytes == 0.0 && x.reduced_bytes == 0.0);
        return;
    }
    CHECK(is(x.gathers, micro * (1.0 + times * layers)));
    CHECK(is(x.gathered_bytes, micro * B * (w->root + times * (w->layers + w->adapters))));
    CHECK(is(x.reductions, micro * (layers + (s->frozen ? 0.0 : 1.0))));
    CHECK(is(x.reduced_bytes, micro * (double)s->reduced_bytes * trained));
}

static void check_shape(const spw_transformers_shape *s) {
    const weights w = weights_of(s);
    const double all = w.layers + w.root + w.adapters, trained = s->frozen ? w.adapters : all,
                 parts = (double)s->shards, tensors = s->frozen ? w.adapter_tensors : w.tensors,
                 logits = s->keeps_logits ? (double)(s->tokens * s->model->vocab) * B : 0.0;
    spw_transformers_step *step = NULL;
    spw_event_list list = {.events = 0};
    CHECK_OK(spw_transformers_step_create(s, &step));
    CHECK_OK(spw_transformers_step_begin(step, &list));
    CHECK(is(live_of(&list, SPW_HF_WEIGHTS), all / parts * (double)s->weight_bytes));
    CHECK(is(live_of(&list, SPW_HF_WORKSPACE), 2.0 * 8.0 * (double)(s->tokens * s->micro_batches)));
    CHECK(is((double)spw_transformers_step_trained(step), trained / parts));
    CHECK_OK(spw_transformers_step_run(step, &list));
    CHECK(is(live_of(&list, SPW_HF_GRADIENTS),
             trained / parts * (double)(s->wrapped ? s->reduced_bytes : (size_t)B)));
    CHECK(is(live_of(&list, SPW_HF_LOGITS), logits + CUBLAS)); /* of the backward pass' thread */
    CHECK(is(live_of(&list, SPW_HF_HIDDEN), CUBLAS));
    CHECK_OK(spw_transformers_step_optimizer(step, &list));
    CHECK(
        is(live_of(&list, SPW_HF_MOMENTS), 4.0 * tensors + 2.0 * trained / parts * (double)s->moment_bytes));
    CHECK_OK(spw_transformers_step_run(step, &list)); /* it leaves what it found */
    for (size_t k = 0; k < SPW_HF_KINDS; k++) CHECK(live_of(&list, k) == 0.0);
    check_work(s, step, &w);
    if (s->micro_batches == 1 && !s->checkpoint) check_forward(s, &list);
    if (!s->frozen) check_embedding(s, &list);
    spw_event_list_destroy(&list);
    spw_transformers_step_destroy(step);
}

/* --- Jobs --- */

typedef struct asked {
    const char *model, *scheme, *weights, *gradients, *remat, *reshard, *rank;
    spw_transformers_norm norm;
    bool wide;
} asked;

/* Under DDP every GPU has all, with adapters or without; fp32 weights stay a sum of components. */
static void check_replicas(const char *rank, const char *precision, bool listed) {
    static spw_job job;
    const spw_job_override values[] = {{"model", "qwen3-30b-a3b", ""},
                                       {"cluster", "h100-8x1", ""},
                                       {"parallel.expert", "1", ""},
                                       {"optimizer", "replicated", ""},
                                       {"precision.weights", precision, ""},
                                       {"precision.gradients", precision, ""},
                                       {"precision.optimizer", precision, ""},
                                       {"remat", "full", ""},
                                       {"finetune.frozen", rank[0] != '0' ? "base" : "none", ""},
                                       {"finetune.lora_rank", rank, ""}};
    const spw_scheme scheme = scheme_of("transformers");
    const char *why = NULL;
    spw_transformers_shape s = {.tokens = 0};
    CHECK_OK(spw_job_read_with(NULL, values, sizeof values / sizeof *values, &job));
    const spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK(spw_transformers_is_listed(&point, &s, &why) == listed);
    if (listed) CHECK(s.shards == 1 && s.summed == 8 && !s.wrapped && s.frozen == (rank[0] != '0'));
    if (!listed) CHECK(why != NULL && strstr(why, "autocast") != NULL);
}

/* 6 sequences of 128 tokens in 2 micro-batches on 8 GPUs: every field of the shape, each from a key of its own. */
static void check_job(const asked *a) {
    static spw_job job;
    const bool adapts = a->rank[0] != '0';
    const spw_job_override values[] = {{"model", a->model, ""},
                                       {"cluster", "h100-8x1", ""},
                                       {"parallel.expert", "1", ""},
                                       {"optimizer", "sharded", ""},
                                       {"batch.sequence_length", "128", ""},
                                       {"batch.sequences_per_gpu", "6", ""},
                                       {"batch.micro_batches", "2", ""},
                                       {"precision.weights", a->weights, ""},
                                       {"precision.gradients", a->gradients, ""},
                                       {"remat", a->remat, ""},
                                       {"fsdp2.reshard_after_forward", a->reshard, ""},
                                       {"finetune.frozen", adapts ? "base" : "none", ""},
                                       {"finetune.lora_rank", a->rank, ""}};
    const spw_scheme scheme = scheme_of(a->scheme);
    const char *why = NULL;
    spw_transformers_shape s = {.tokens = 0};
    CHECK_OK(spw_job_read_with(NULL, values, sizeof values / sizeof *values, &job));
    const spw_point point = spw_point_of(&job, &scheme, 6);
    CHECK(spw_transformers_is_listed(&point, &s, &why) && why == NULL);
    const size_t kept = strcmp(a->weights, "fp32") == 0 ? 4 : 2;
    CHECK(s.model == &job.model && s.tokens == 3 * 128 && s.sequences == 3 && s.micro_batches == 2);
    CHECK(s.layers == job.model.layers && s.element_bytes == 2);
    CHECK(s.weight_bytes == kept && s.moment_bytes == kept);
    CHECK(s.reduced_bytes == (strcmp(a->gradients, "fp32") == 0 ? 4 : 2));
    CHECK(s.shards == 8 && s.wrapped && s.keeps_gathered == (strcmp(a->reshard, "never") == 0));
    CHECK(s.checkpoint == (strcmp(a->remat, "full") == 0));
    CHECK(s.keeps_logits == (strstr(a->scheme, "kept") != NULL));
    CHECK(s.frozen == adapts && s.adapts_attention == adapts && !s.adapts_all);
    CHECK(s.lora_rank == (size_t)strtoul(a->rank, NULL, 10));
    CHECK(s.norm == a->norm && s.wide_scores == a->wide);
}

/* A key that the list would not heed: AdamW's moments have the format of what it trains. */
static void check_refused(void) {
    static spw_job job;
    const spw_job_override values[] = {
        {"model", "olmoe-1b-7b", ""}, {"cluster", "h100-8x1", ""},       {"parallel.expert", "1", ""},
        {"optimizer", "sharded", ""}, {"precision.weights", "bf16", ""}, {"precision.optimizer", "fp32", ""}};
    const spw_scheme scheme = scheme_of("transformers");
    const char *why = NULL;
    CHECK_OK(spw_job_read_with(NULL, values, sizeof values / sizeof *values, &job));
    const spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK(!spw_transformers_is_listed(&point, NULL, &why) && why != NULL && strstr(why, "moments") != NULL);
}

/* --- Each reason for which there is no list, alone --- */

#define CHANGES(X) \
    X(part, j->part = SPW_PART_EXPERT_LAYERS, "bare layers") \
    X(tensor, j->tensor = 2, "parallelism") \
    X(context, j->context = 2, "parallelism") \
    X(pipeline, j->pipeline = 2, "parallelism") \
    X(expert, j->expert = 2, "parallelism") \
    X(remat, j->remat = SPW_REMAT_MINIMAL, "remat") \
    X(unfused, j->attention = SPW_ATTENTION_UNFUSED, "flash") \
    X(sdpa, j->attention = SPW_ATTENTION_SDPA, "flash") \
    X(te, j->cross_entropy = SPW_CROSS_ENTROPY_TE, "losses") \
    X(muon, j->muon = true, "Muon") \
    X(offload, j->offload.modules = 1, "host") \
    X(on_host, j->fsdp2.on_host = true, "host") \
    X(optimizer_on_host, j->optimizer_on_host = 0.5, "host") \
    X(reshard, j->fsdp2.reshard = SPW_RESHARD_OFF, "reshard_after_forward") \
    X(replicas, j->fsdp2.replicas = 2, "replicas") \
    X(moments, j->precision.optimizer = 4, "moments") \
    X(master, j->master_bytes = 4, "master") \
    X(recipe, j->precision.recipe = SPW_FP8_DELAYED, "bf16") \
    X(activations, j->precision.activations = 4, "bf16") \
    X(weights, j->precision.weights = j->precision.optimizer = 1, "bf16") \
    X(distributed, j->optimizer = SPW_OPTIMIZER_DISTRIBUTED, "sharded") \
    X(autocast, (j->fsdp = 1, j->precision.weights = j->precision.optimizer = 4), "autocast") \
    X(experts, j->finetune.frozen = SPW_FROZEN_EXPERTS, "frozen") \
    X(no_adapters, j->finetune.frozen = SPW_FROZEN_BASE, "frozen") \
    X(bare, j->model.bare_layers = 1, "models") \
    X(other, j->model.other_layers = 1, "models") \
    X(attention_bias, j->model.attention_bias = true, "models") \
    X(output_bias, j->model.output_bias = true, "models") \
    X(expert_bias, j->model.expert_bias = true, "models") \
    X(router_bias, j->model.router_bias = true, "models") \
    X(sinks, j->model.attention_sinks = true, "models") \
    X(norm_bias, j->model.norm_bias = true, "models") \
    X(ffn_bias, j->model.ffn_bias = true, "models") \
    X(head_bias, j->model.head_bias = true, "models") \
    X(plain_experts, j->model.plain_experts = true, "models") \
    X(latent, j->model.latent = 64, "models") \
    X(query_gate, j->model.query_gate = true, "models") \
    X(output_gate, j->model.output_gate = true, "models") \
    X(keys_are_values, j->model.keys_are_values = true, "models") \
    X(layer_norms, j->model.layer_norms = 4, "models")
#define FUNCTION(name, change, words) \
    static void change_##name(spw_job *j) { change; }
CHANGES(FUNCTION)
#undef FUNCTION

static void check_reasons(void) {
#define ROW(name, change, words) {change_##name, #name, words},
    static const struct {
        void (*change)(spw_job *);
        const char *name, *words;
    } rows[] = {CHANGES(ROW)};
#undef ROW
    static spw_job base, job;
    const spw_job_override values[] = {
        {"model", "olmoe-1b-7b", ""}, {"cluster", "h100-8x8", ""},       {"parallel.expert", "1", ""},
        {"optimizer", "sharded", ""}, {"precision.weights", "bf16", ""}, {"precision.optimizer", "bf16", ""}};
    const spw_scheme scheme = scheme_of("transformers");
    CHECK_OK(spw_job_read_with(NULL, values, sizeof values / sizeof *values, &base));
    spw_point point = spw_point_of(&base, &scheme, 1);
    CHECK(spw_transformers_is_listed(&point, NULL, NULL));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why = NULL;
        job = base;
        rows[i].change(&job);
        point = spw_point_of(&job, &scheme, 1);
        const bool good = !spw_transformers_is_listed(&point, NULL, &why) && why != NULL &&
                          strstr(why, rows[i].words) != NULL;
        CHECK(good);
        if (!good) fprintf(stderr, "  %s: %s\n", rows[i].name, why != NULL ? why : "listed");
    }
}

static void check_jobs(void) {
    static const asked jobs[] = {
        {"olmoe-1b-7b", "transformers", "fp32", "fp32", "none", "always", "0", SPW_HF_NORM_WHOLE, false},
        {"mixtral-8x7b", "transformers:logits=kept", "bf16", "fp32", "full", "never", "0", SPW_HF_NORM_NONE,
         true},
        {"qwen3-30b-a3b", "transformers", "bf16", "bf16", "full", "always", "16", SPW_HF_NORM_HEAD, false}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) check_job(&jobs[i]);
    check_replicas("0", "bf16", true);
    check_replicas("16", "bf16", true);
    check_replicas("16", "fp32", false);
}

int main(void) {
    static spw_model model;
    spw_transformers_shape shape;
    uint64_t state = 33;
    for (int i = 0; i < SEEDS; i++) {
        const int before = check_failures;
        draw(&state, &model, &shape);
        check_shape(&shape);
        if (check_failures > before)
            fprintf(stderr,
                    "shape %d: layers %zu, norm %d, shared %zu, tied %d, wide %d, shards %zu, kept %d, "
                    "checkpoint %d, "
                    "frozen %d, micro-batches %zu\n",
                    i, model.layers, (int)shape.norm, (size_t)model.shared_ffn, model.tied_embeddings,
                    shape.wide_scores, shape.shards, shape.keeps_gathered, shape.checkpoint, shape.frozen,
                    shape.micro_batches);
    }
    check_jobs();
    check_refused();
    check_reasons();
    return check_done();
}
