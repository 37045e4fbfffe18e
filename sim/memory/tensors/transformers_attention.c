#include "sim/memory/tensors/transformers_operations.h"

spw_value spw_hf_rotate(spw_hf_model *m, spw_value x, uint64_t bytes) {
    spw_tape *t = m->tape;
    const uint64_t half = bytes / 2;
    const double r = (double)bytes;
    const spw_value turned = spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                                         .input = {x},
                                                         .keep = {{m->cosine, 0}},
                                                         .back = {SPW_TO(0, bytes, r)},
                                                         .read_bytes = r});
    const spw_value first = spw_tape_apply(t, &(spw_op){.input = {x}, .back = {SPW_TO(0, bytes, r / 2.0)}});
    const spw_value second = spw_tape_apply(t, &(spw_op){.input = {x}, .back = {SPW_TO(0, bytes, r / 2.0)}});
    const spw_value minus = spw_tape_apply(
        t, &(spw_op){
               .bytes = half, .input = {second}, .back = {SPW_TO(0, half, r / 2.0)}, .read_bytes = r / 2.0});
    const spw_value joined = spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                                         .input = {minus, first},
                                                         .back = {SPW_TO_PASS(0), SPW_TO_PASS(1)},
                                                         .read_bytes = r});
    spw_tape_drop(t, minus);
    spw_tape_drop(t, first);
    spw_tape_drop(t, second);
    const spw_value across = spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                                         .input = {joined},
                                                         .keep = {{m->sine, 0}},
                                                         .back = {SPW_TO(0, bytes, r)},
                                                         .read_bytes = r});
    spw_tape_drop(t, joined);
    const spw_value out = spw_hf_add(t, turned, across, bytes);
    spw_tape_drop(t, turned);
    spw_tape_drop(t, across);
    return out;
}

/* cuDNN's: its gradient has sums in fp32 of queries, and keys and values of every head where they are fewer. */
spw_value spw_hf_attend(spw_hf_model *m, const spw_hf_scores *s, spw_value q, spw_value k, spw_value v) {
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, length = rows / m->shape->sequences;
    const uint64_t values = s->key * s->out / s->query; /* elements a token */
    const uint64_t work =
        rows * (SPW_HF_FP32 * s->query + (s->key < s->query ? 2 * b * s->query : 0) + SPW_HF_FP32 * s->heads);
    const double flop = (double)rows * (double)length * (double)(s->query + s->out);
    return spw_tape_apply(
        m->tape, &(spw_op){.bytes = rows * s->out * b,
                           .kept_bytes = SPW_HF_FP32 * rows * s->heads,
                           .input = {q, k, v, s->sinks},
                           .keep = {{k, 0}, {q, 0}, {v, 0}},
                           .keeps_output = true,
                           .back = {SPW_TO_PRODUCT(0, rows * s->query * b, 2.5 * flop),
                                    SPW_TO(1, rows * s->key * b, 0.0), SPW_TO(2, rows * values * b, 0.0),
                                    SPW_TO_WORK(0, work), SPW_TO(3, s->heads * b, 0.0)},
                           .flop = flop,
                           .rate = SPW_HF_ATTENTION_PRODUCT});
}

/* Heads: their gradient comes transposed, and is copied. Takes the name of x. */
static spw_value by_heads(spw_hf_model *m, spw_value x, uint64_t bytes) {
    const spw_value out =
        spw_tape_apply(m->tape, &(spw_op){.input = {x}, .back = {SPW_TO(0, bytes, (double)bytes)}});
    spw_tape_drop(m->tape, x);
    return out;
}

static spw_value normed(spw_hf_model *m, spw_value x, uint64_t width, size_t heads, size_t at) {
    const uint64_t rows = m->shape->tokens, bytes = rows * width * m->shape->element_bytes;
    spw_value out = x;
    if (m->shape->norm == SPW_HF_NORM_WHOLE) {
        out = spw_hf_norm(m, x, rows, width, at);
        spw_tape_drop(m->tape, x);
    }
    out = by_heads(m, out, bytes);
    if (m->shape->norm != SPW_HF_NORM_HEAD) return out;
    const spw_value flat = out;
    out = spw_hf_norm(m, flat, rows * heads, width / heads, at);
    spw_tape_drop(m->tape, flat);
    return out;
}

static spw_value forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes,
                   width = model->heads * model->head_dim, kv = model->kv_heads * model->head_dim;
    const bool adapts = m->shape->adapts_attention;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ATTENTION);
    const spw_value q = normed(m, spw_hf_linear(m, x, l->q, rows, adapts), width, model->heads, l->q_norm);
    const spw_value k = normed(m, spw_hf_linear(m, x, l->k, rows, adapts), kv, model->kv_heads, l->k_norm);
    const spw_value v = spw_hf_linear(m, x, l->v, rows, adapts);
    const bool turns = m->shape->rotation != SPW_HF_ROTATION_NONE;
    const spw_value queries = turns ? spw_hf_rotate(m, q, rows * width * b) : spw_tape_hold(t, q),
                    keys = turns ? spw_hf_rotate(m, k, rows * kv * b) : spw_tape_hold(t, k);
    spw_tape_drop(t, q);
    spw_tape_drop(t, k);
    const spw_value heads =
        spw_hf_attend(m, &(spw_hf_scores){model->heads, width, kv, width, {0}}, queries, keys, v);
    const spw_value out = spw_hf_linear(m, heads, l->o, rows, adapts);
    spw_tape_drop(t, heads);
    spw_tape_drop(t, queries);
    spw_tape_drop(t, keys);
    spw_tape_drop(t, v);
    spw_tape_kind(t, kind);
    return out;
}

static void weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *model = m->shape->model;
    const uint64_t h = model->hidden, d = model->head_dim, q = model->heads * d, kv = model->kv_heads * d;
    const bool adapts = m->shape->adapts_attention, whole = m->shape->norm == SPW_HF_NORM_WHOLE;
    l->q = spw_hf_add_matrix(m, q, h, adapts);
    l->k = spw_hf_add_matrix(m, kv, h, adapts);
    l->v = spw_hf_add_matrix(m, kv, h, adapts);
    l->o = spw_hf_add_matrix(m, h, q, adapts);
    if (m->shape->norm == SPW_HF_NORM_NONE) return;
    l->q_norm = spw_hf_add_weight(m, whole ? q : d, 1, false);
    l->k_norm = spw_hf_add_weight(m, whole ? kv : d, 1, false);
}

const spw_hf_mixer spw_hf_grouped_attention = {weights, forward};
