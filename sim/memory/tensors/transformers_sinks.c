/* gpt-oss' attention [GptOssAttention; transformers 5.24.0 models/gpt_oss/modeling_gpt_oss.py]: four matrices with biases, halves of a
 * head turned apart, one more logit a head that no key has. By a kernel that reads it (s_aux), which keeps what fused attention keeps;
 * or by eager_attention_forward, where scores of every query and key are there, in the model's format. */
#include "sim/memory/tensors/transformers_operations.h"

enum { QUERIES, KEYS, VALUES, OUTPUT, SINKS };

static void weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *k = m->shape->model;
    const uint64_t h = k->hidden, q = k->heads * k->head_dim, kv = k->kv_heads * k->head_dim;
    const bool adapts = m->shape->adapts_attention;
    l->mixer_weight[SINKS] = spw_hf_add_weight(m, k->heads, 1, false);
    l->mixer_weight[QUERIES] = spw_hf_add_biased_matrix(m, q, h, adapts);
    l->mixer_weight[KEYS] = spw_hf_add_biased_matrix(m, kv, h, adapts);
    l->mixer_weight[VALUES] = spw_hf_add_biased_matrix(m, kv, h, adapts);
    l->mixer_weight[OUTPUT] = spw_hf_add_biased_matrix(m, h, q, adapts);
}

/* a + b, or a - b, whose gradient is made. Takes both names. */
static spw_value sum_of(spw_tape *t, spw_value a, spw_value b, uint64_t bytes, bool less) {
    spw_op op = {.bytes = bytes,
                 .input = {a, b},
                 .back = {SPW_TO_PASS(0), SPW_TO_PASS(1)},
                 .read_bytes = 2.0 * (double)bytes};
    if (less) op.back[1] = (spw_gradient_step)SPW_TO(1, bytes, (double)bytes);
    const spw_value out = spw_tape_apply(t, &op);
    spw_tape_drop(t, a);
    spw_tape_drop(t, b);
    return out;
}

/* [_apply_rotary_emb] Takes the name of x. */
static spw_value turn(spw_hf_model *m, spw_value x, uint64_t bytes) {
    spw_tape *t = m->tape;
    const uint64_t half = bytes / 2;
    const spw_value first = spw_hf_part(t, x, bytes), second = spw_tape_output(first, 1);
    const spw_value a = spw_hf_scale(t, first, m->cosine, half), b = spw_hf_scale(t, second, m->sine, half),
                    low = sum_of(t, a, b, half, true);
    const spw_value c = spw_hf_scale(t, second, m->cosine, half), d = spw_hf_scale(t, first, m->sine, half),
                    high = sum_of(t, c, d, half, false);
    const spw_value out = spw_hf_join(t, low, high, bytes);
    const spw_value names[] = {low, high, first, x};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

/* [repeat_kv] keys or values once for every head of queries. */
static spw_value each_head(spw_hf_model *m, spw_value x) {
    const spw_model *k = m->shape->model;
    const uint64_t one = m->shape->tokens * k->kv_heads * k->head_dim * m->shape->element_bytes;
    if (k->heads == k->kv_heads) return spw_tape_hold(m->tape, x);
    return spw_tape_apply(m->tape, &(spw_op){.bytes = one * k->heads / k->kv_heads,
                                             .input = {x},
                                             .back = {SPW_TO(0, one, (double)one)},
                                             .read_bytes = (double)one});
}

/* a b of a batch: both are kept. bytes: of a, b and the product. Each product reads its two. */
static spw_value batch(spw_tape *t, spw_value a, spw_value b, const uint64_t bytes[3], double flop) {
    return spw_tape_apply(
        t, &(spw_op){.bytes = bytes[2],
                     .input = {a, b},
                     .keep = {{b, 0}, {a, 1}},
                     .back = {{SPW_GRADIENT_TO, 1, bytes[1], (double)(bytes[0] + bytes[2]), flop},
                              {SPW_GRADIENT_TO, 0, bytes[0], (double)(bytes[1] + bytes[2]), flop}},
                     .read_bytes = (double)(bytes[0] + bytes[1]),
                     .flop = flop,
                     .rate = SPW_HF_DENSE_PRODUCT});
}

/* Scores and the sink behind each other, less their greatest; softmax; the keys' part. Takes the name of scores. */
static spw_value shares(spw_hf_model *m, const spw_hf_layer *l, spw_value scores, uint64_t rows,
                        uint64_t keys) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, all = rows * (keys + 1) * b, one = rows * b;
    spw_value place = {.storage = 0};
    const spw_value joined = spw_tape_apply(
        t,
        &(spw_op){.bytes = all,
                  .input = {scores, SPW_HF_LEAF(m, l->mixer_weight[SINKS])},
                  .back = {SPW_TO_PASS(0), SPW_TO_DONE, SPW_TO(1, m->shape->model->heads * b, (double)one)},
                  .read_bytes = (double)all});
    const spw_value most = spw_tape_apply(t, &(spw_op){.bytes = one,
                                                       .kept_bytes = SPW_HF_INDEX * rows,
                                                       .second = &place,
                                                       .input = {joined},
                                                       .back = {SPW_TO(0, all, 0.0)},
                                                       .read_bytes = (double)all});
    const spw_value less =
        spw_tape_apply(t, &(spw_op){.bytes = all,
                                    .input = {joined, most},
                                    .back = {SPW_TO_TEMP(1, all, (double)all), SPW_TO_PASS(0), SPW_TO_DONE,
                                             SPW_TO(1, one, (double)all)},
                                    .read_bytes = (double)all});
    /* the part's gradient: zeros, into which it is copied */
    const spw_value parts = spw_hf_softmax(t, less, all),
                    out = spw_tape_apply(
                        t, &(spw_op){.input = {parts}, .back = {SPW_TO(0, all, 2.0 * (double)all)}});
    const spw_value names[] = {joined, most, place, less, parts, scores};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

/* [eager_attention_forward] */
static spw_value attend(spw_hf_model *m, const spw_hf_layer *l, spw_value q, spw_value k, spw_value v) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t b = m->shape->element_bytes, keys = m->shape->tokens / m->shape->sequences,
                   rows = m->shape->tokens * model->heads, wide = rows * model->head_dim * b,
                   scores = rows * keys * b;
    const double flop = 2.0 * (double)rows * (double)keys * (double)model->head_dim;
    const spw_value key = each_head(m, k), value = each_head(m, v);
    const spw_value raw = batch(t, q, key, (uint64_t[]){wide, wide, scores}, flop);
    const spw_value scaled = spw_hf_scale(t, raw, (spw_value){.storage = 0}, scores);
    spw_tape_drop(t, raw);
    const spw_value masked = spw_tape_apply(
        t, &(spw_op){
               .bytes = scores, .input = {scaled}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)scores});
    spw_tape_drop(t, scaled);
    const spw_value part = shares(m, l, masked, rows, keys),
                    out = batch(t, part, value, (uint64_t[]){scores, wide, wide}, flop),
                    ordered = spw_hf_copy(t, out, wide);
    const spw_value names[] = {key, value, part, out};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return ordered;
}

static spw_value forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, width = k->heads * k->head_dim,
                   kv = k->kv_heads * k->head_dim;
    const size_t *w = l->mixer_weight;
    const bool adapts = m->shape->adapts_attention;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ATTENTION);
    const spw_value first = spw_hf_linear(m, x, w[QUERIES], rows, adapts),
                    second = spw_hf_linear(m, x, w[KEYS], rows, adapts),
                    values = spw_hf_linear(m, x, w[VALUES], rows, adapts);
    const spw_value queries = turn(m, first, rows * width * b), keys = turn(m, second, rows * kv * b);
    const spw_hf_scores scores = {k->heads, width, kv, width, SPW_HF_LEAF(m, w[SINKS])};
    const spw_value heads = m->shape->scores ? attend(m, l, queries, keys, values)
                                             : spw_hf_attend(m, &scores, queries, keys, values);
    const spw_value out = spw_hf_linear(m, heads, w[OUTPUT], rows, adapts);
    const spw_value names[] = {heads, queries, keys, values};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    spw_tape_kind(t, kind);
    return out;
}

const spw_hf_mixer spw_hf_sink_attention = {weights, forward};
