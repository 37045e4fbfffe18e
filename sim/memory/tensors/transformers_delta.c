/* Recurrences by the delta rule: Qwen3NextGatedDeltaNet and KimiLinearDeltaAttention (transformers 5.24 models/{qwen3_next,kimi_linear}),
 * with the convolution of causal-conv1d 1.6.1 (CausalConv1dFn) and the chunked rule of fla-core 0.6.0 (ops/gated_delta_rule/chunk.py,
 * ops/kda/chunk.py): it keeps normalized queries and keys with 1 / norm, values, decays summed up within chunks, the strengths beta,
 * and matrices of chunks; states of chunks are made again by the backward pass. */
#include "sim/memory/tensors/transformers_operations.h"

enum {
    CONVOLUTION,
    STEP_BIAS,
    DECAY,
    NORM,
    OUT,
    IN,
    RATES,
    KEYS,
    VALUES,
    FORGET_DOWN,
    FORGET_UP,
    GATE_DOWN,
    GATE_UP
};

/* Bytes of tensors of one layer. */
typedef struct sizes {
    uint64_t rows, heads;                                       /* of values */
    uint64_t keys, values, strengths, decays, matrices, states; /* decays: in fp32 */
    uint64_t wide_keys;                                         /* a key for every head of values */
    double flop;
} sizes;

static sizes sizes_of(const spw_hf_model *m, const spw_recurrence *r) {
    const uint64_t rows = m->shape->tokens, length = rows / m->shape->sequences, b = m->shape->element_bytes,
                   chunks = m->shape->sequences * ((length + r->chunk - 1) / r->chunk),
                   each = r->kind == SPW_RECURRENCE_KIMI_DELTA ? r->key : 1;
    const double state = (double)(r->value_heads * r->key * r->value),
                 square = (double)(r->value_heads * r->chunk * (2 * r->key + r->value));
    return (sizes){.rows = rows,
                   .heads = r->value_heads,
                   .keys = rows * r->key_heads * r->key * b,
                   .values = rows * r->value_heads * r->value * b,
                   .strengths = rows * r->value_heads * b,
                   .decays = SPW_HF_FP32 * rows * r->value_heads * each,
                   .matrices = rows * r->value_heads * r->chunk * b,
                   .states = chunks * r->value_heads * r->key * r->value * b,
                   .wide_keys = rows * r->value_heads * r->key * b,
                   .flop = 2.0 * (double)rows * (3.0 * state + square)};
}

/* --- Parts of both --- */

/* What the convolution reads, [T, 2 keys + values], is kept. Takes the name of x. */
static spw_value convolve(spw_hf_model *m, const spw_hf_layer *l, spw_value x, uint64_t bytes) {
    const double r = (double)bytes;
    const uint64_t weight = m->weight[l->mixer_weight[CONVOLUTION]].rows * l->recurrence->taps;
    const spw_value out = spw_tape_apply(
        m->tape, &(spw_op){.bytes = bytes,
                           .input = {x, SPW_HF_LEAF(m, l->mixer_weight[CONVOLUTION])},
                           .keep = {{x, 0}},
                           .back = {SPW_TO(0, bytes, 2.0 * r), SPW_TO_TEMP(1, SPW_HF_FP32 * weight, 0.0),
                                    SPW_TO(1, weight * m->shape->element_bytes, 0.0)},
                           .read_bytes = r});
    spw_tape_drop(m->tape, x);
    return out;
}

/* Queries, keys and values joined for the convolution. Takes their names. */
static spw_value joined(spw_tape *t, const spw_value parts[3], const sizes *s) {
    const double r = (double)(2 * s->keys + s->values);
    const spw_value out =
        spw_tape_apply(t, &(spw_op){.bytes = 2 * s->keys + s->values,
                                    .input = {parts[0], parts[1], parts[2]},
                                    .back = {SPW_TO_PASS(0), SPW_TO_PASS(1), SPW_TO_PASS(2)},
                                    .read_bytes = r});
    for (int i = 0; i < 3; i++) spw_tape_drop(t, parts[i]);
    return out;
}

/* The rule's tensors: kept ones by themselves, and the sums of what its passes have beside them. */
typedef struct rule {
    spw_value decays, strengths;
    bool by_channel; /* Kimi's: decays are kept as they came, and queries' products with keys */
} rule;

/* Temporaries of the backward passes of both rules: made again; gradients of states and values; of all else; at work. */
static void backward_temporaries(const sizes *s, bool by_channel, uint64_t out[4]) {
    const uint64_t again = s->wide_keys + s->values + s->states + s->values;
    const uint64_t wide = SPW_HF_FP32 * s->rows * s->heads, b = s->strengths / (s->rows * s->heads);
    const uint64_t channels = by_channel ? s->wide_keys / b * SPW_HF_FP32 : 0,
                   squares = s->matrices / b * SPW_HF_FP32;
    out[0] = again + (by_channel ? 2 * s->wide_keys + squares : 0);
    out[1] = s->states + s->values;
    out[2] = by_channel ? 3 * channels + squares : 3 * s->wide_keys + wide;
    out[3] = by_channel ? 3 * channels : s->wide_keys + s->values + wide;
}

/* Takes the name of `mixed`, what the convolution gives. */
static spw_value delta_rule(spw_hf_model *m, const spw_recurrence *r, const sizes *s, spw_value mixed,
                            rule g) {
    spw_tape *t = m->tape;
    const spw_value parts = spw_hf_part(t, mixed, 2 * s->keys + s->values);
    const uint64_t roots = SPW_HF_FP32 * s->rows * r->key_heads;
    uint64_t temp[4];
    spw_tape_drop(t, mixed);
    backward_temporaries(s, g.by_channel, temp);
    const spw_value copies = spw_tape_tensor(t, 2 * s->keys), v = spw_tape_tensor(t, s->values);
    const spw_value q = spw_tape_tensor(t, s->keys), q_root = spw_tape_tensor(t, roots),
                    k = spw_tape_tensor(t, s->keys), k_root = spw_tape_tensor(t, roots);
    const spw_value sums = spw_tape_tensor(t, s->decays), solved = spw_tape_tensor(t, s->matrices),
                    scores = g.by_channel ? spw_tape_tensor(t, s->matrices) : (spw_value){.storage = 0};
    const spw_value work =
        spw_tape_tensor(t, s->wide_keys + 2 * s->values + s->states + (g.by_channel ? s->wide_keys : 0));
    const spw_value out =
        spw_tape_apply(t, &(spw_op){.bytes = s->values,
                                    .input = {parts, spw_tape_output(parts, 1), spw_tape_output(parts, 2),
                                              g.decays, g.strengths},
                                    .keep = {{q, 0},
                                             {q_root, 0},
                                             {k, 0},
                                             {k_root, 0},
                                             {v, 0},
                                             {sums, 0},
                                             {g.strengths, 0},
                                             {solved, 0},
                                             {scores, 0},
                                             {g.by_channel ? g.decays : (spw_value){.storage = 0}, 0}},
                                    .back = {SPW_TO_TEMP(0, temp[0], 0.0),
                                             {SPW_GRADIENT_TEMP, 0, temp[1], 0.0, 2.5 * s->flop},
                                             SPW_TO_TEMP(0, temp[2], 0.0),
                                             SPW_TO_WORK(0, temp[3]),
                                             SPW_TO(0, s->keys, 0.0),
                                             SPW_TO(1, s->keys, 0.0),
                                             SPW_TO(2, s->values, 0.0),
                                             SPW_TO(3, s->decays, 0.0),
                                             SPW_TO(4, s->strengths, 0.0)},
                                    .flop = s->flop,
                                    .rate = SPW_HF_SCAN_PRODUCT});
    const spw_value names[] = {copies, v, q, q_root, k, k_root, sums, solved, scores, work, parts};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

/* exp(A_log.float()), kept; its negative, which the product with the steps keeps. */
static spw_value rates(spw_hf_model *m, const spw_hf_layer *l) {
    spw_tape *t = m->tape;
    const uint64_t bytes = SPW_HF_FP32 * l->recurrence->value_heads;
    const spw_value wide = spw_hf_widened(m, l->mixer_weight[DECAY]),
                    raised = spw_hf_keeping_output(t, wide, bytes);
    spw_tape_drop(t, wide);
    const spw_value out =
        spw_tape_apply(t, &(spw_op){.bytes = bytes, .input = {raised}, .back = {SPW_TO(0, bytes, 0.0)}});
    spw_tape_drop(t, raised);
    return out;
}

/* x.float() + bias, in fp32. Takes the name of x. */
static spw_value biased(spw_hf_model *m, spw_value x, size_t bias, uint64_t n) {
    spw_tape *t = m->tape;
    const uint64_t bytes = SPW_HF_FP32 * n, count = m->weight[bias].rows;
    const spw_value wide = spw_hf_cast(t, x, n, m->shape->element_bytes, SPW_HF_FP32);
    spw_tape_drop(t, x);
    const spw_value out = spw_tape_apply(
        t,
        &(spw_op){
            .bytes = bytes,
            .input = {wide, SPW_HF_LEAF(m, bias)},
            .back = {SPW_TO_PASS(0),
                     SPW_TO(1, count * (m->weight[bias].wide ? SPW_HF_FP32 : m->shape->element_bytes), 0.0)},
            .read_bytes = (double)bytes});
    spw_tape_drop(t, wide);
    return out;
}

static void common_weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_recurrence *r = l->recurrence;
    const uint64_t keys = r->key_heads * r->key, values = r->value_heads * r->value;
    l->mixer_weight[CONVOLUTION] = spw_hf_add_weight(m, 2 * keys + values, r->taps, false);
    l->mixer_weight[NORM] = spw_hf_add_weight(m, r->value, 1, false);
    l->mixer_weight[OUT] = spw_hf_add_matrix(m, m->shape->model->hidden, values, false);
}

/* --- Gated DeltaNet --- */

static void gated_weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_recurrence *r = l->recurrence;
    const uint64_t h = m->shape->model->hidden, keys = r->key_heads * r->key,
                   values = r->value_heads * r->value;
    l->mixer_weight[STEP_BIAS] = spw_hf_add_weight(m, r->value_heads, 1, false);
    l->mixer_weight[DECAY] = spw_hf_add_weight(m, r->value_heads, 1, false);
    common_weights(m, l);
    l->mixer_weight[IN] = spw_hf_add_matrix(m, 2 * (keys + values), h, false);
    l->mixer_weight[RATES] = spw_hf_add_matrix(m, 2 * r->value_heads, h, false);
}

/* fix_query_key_value_ordering(): what comes by heads of keys is copied part by part. z, which the norm reads, keeps its name. */
static spw_value ordered(spw_hf_model *m, const spw_hf_layer *l, spw_value x, const sizes *s, spw_value *z) {
    spw_tape *t = m->tape;
    const spw_value projected = spw_hf_linear(m, x, l->mixer_weight[IN], s->rows, false),
                    parts = spw_hf_part(t, projected, 2 * (s->keys + s->values));
    const uint64_t bytes[] = {s->keys, s->keys, s->values};
    spw_value of[3];
    spw_tape_drop(t, projected);
    *z = spw_hf_copy(t, spw_tape_output(parts, 3), s->values);
    for (int i = 0; i < 3; i++) of[i] = spw_hf_copy(t, spw_tape_output(parts, (uint8_t)i), bytes[i]);
    spw_tape_drop(t, parts);
    return joined(t, of, s);
}

/* beta and g = -exp(A_log) softplus(a + dt_bias), a number a head each. */
static rule gated_rates(spw_hf_model *m, const spw_hf_layer *l, spw_value x, const sizes *s) {
    spw_tape *t = m->tape;
    const uint64_t n = s->rows * s->heads, b = m->shape->element_bytes;
    const spw_value both = spw_hf_linear(m, x, l->mixer_weight[RATES], s->rows, false),
                    parts = spw_hf_part(t, both, 2 * n * b);
    spw_tape_drop(t, both);
    const spw_value raw = spw_hf_copy(t, parts, n * b),
                    step = spw_hf_copy(t, spw_tape_output(parts, 1), n * b);
    spw_tape_drop(t, parts);
    const spw_value strengths = spw_hf_keeping_output(t, raw, n * b);
    spw_tape_drop(t, raw);
    const spw_value scale = rates(m, l), sum = biased(m, step, l->mixer_weight[STEP_BIAS], n);
    const spw_value soft = spw_hf_keeping_input(t, sum, s->decays);
    spw_tape_drop(t, sum);
    const spw_value decays = spw_hf_spread(t, soft, scale, s->decays, SPW_HF_FP32 * s->heads);
    spw_tape_drop(t, soft);
    spw_tape_drop(t, scale);
    return (rule){decays, strengths, false};
}

/* Qwen3NextRMSNormGated: the weight in the model's format, the gate in fp32. Takes the names of x and z. */
static spw_value gated_norm(spw_hf_model *m, const spw_hf_layer *l, spw_value x, spw_value z,
                            const sizes *s) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, n = s->values / b, f = SPW_HF_FP32 * n,
                   width = l->recurrence->value;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_MIXER);
    spw_value mean;
    const spw_value scaled = spw_hf_normalize(m, x, n / width, width, &mean),
                    weighed = spw_hf_weigh_narrow(m, scaled, n / width, width, l->mixer_weight[NORM]);
    spw_tape_drop(t, scaled);
    const spw_value gate = spw_hf_cast(t, z, n, b, SPW_HF_FP32), open = spw_hf_silu(t, gate, f);
    spw_tape_drop(t, gate);
    const spw_value product =
        spw_tape_apply(t, &(spw_op){.bytes = f,
                                    .input = {weighed, open},
                                    .keep = {{open, 0}, {weighed, 1}},
                                    .back = {SPW_TO_TEMP(0, f, 2.0 * (double)f), SPW_TO(0, b * n, (double)f),
                                             SPW_TO(1, f, 2.0 * (double)f)},
                                    .read_bytes = (double)f});
    const spw_value out = spw_hf_cast(t, product, n, SPW_HF_FP32, b);
    const spw_value names[] = {product, open, weighed, mean, x, z};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    spw_tape_kind(t, kind);
    return out;
}

static spw_value gated_forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_recurrence *r = l->recurrence;
    const sizes s = sizes_of(m, r);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_MIXER);
    spw_value z;
    const spw_value qkv = ordered(m, l, x, &s, &z), mixed = convolve(m, l, qkv, 2 * s.keys + s.values);
    const rule g = gated_rates(m, l, x, &s);
    const spw_value core = delta_rule(m, r, &s, mixed, g);
    const spw_value normed = gated_norm(m, l, core, z, &s);
    const spw_value out = spw_hf_linear(m, normed, l->mixer_weight[OUT], s.rows, false);
    spw_tape_drop(t, normed);
    spw_tape_drop(t, g.decays);
    spw_tape_drop(t, g.strengths);
    spw_tape_kind(t, kind);
    return out;
}

const spw_hf_mixer spw_hf_gated_delta = {gated_weights, gated_forward};

/* --- Kimi Delta Attention --- */

static void kimi_weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_recurrence *r = l->recurrence;
    const uint64_t h = m->shape->model->hidden, wide = r->value_heads * r->value;
    static const uint8_t matrices[] = {IN, KEYS, VALUES};
    for (size_t i = 0; i < sizeof matrices; i++)
        l->mixer_weight[matrices[i]] = spw_hf_add_matrix(m, wide, h, false);
    l->mixer_weight[STEP_BIAS] = spw_hf_add_wide_weight(m, wide, 1);
    l->mixer_weight[DECAY] = spw_hf_add_weight(m, r->value_heads, 1, false);
    l->mixer_weight[FORGET_DOWN] = spw_hf_add_matrix(m, r->value, h, false);
    l->mixer_weight[FORGET_UP] = spw_hf_add_matrix(m, wide, r->value, false);
    l->mixer_weight[RATES] = spw_hf_add_matrix(m, r->value_heads, h, false);
    l->mixer_weight[GATE_DOWN] = spw_hf_add_matrix(m, r->value, h, false);
    l->mixer_weight[GATE_UP] = spw_hf_add_matrix(m, wide, r->value, false);
    common_weights(m, l);
}

/* Through the width of a head, which is kept. */
static spw_value narrowed(spw_hf_model *m, const spw_hf_layer *l, spw_value x, size_t down, size_t up) {
    const spw_value narrow = spw_hf_linear(m, x, l->mixer_weight[down], m->shape->tokens, false);
    const spw_value out = spw_hf_linear(m, narrow, l->mixer_weight[up], m->shape->tokens, false);
    spw_tape_drop(m->tape, narrow);
    return out;
}

/* KimiLinearForgetGate: -exp(A_log) where(g > 20, g, log(1 + exp(g))) of g = f + dt_bias. */
static spw_value forgets(spw_hf_model *m, const spw_hf_layer *l, spw_value x, const sizes *s) {
    spw_tape *t = m->tape;
    const uint64_t bytes = s->decays, n = bytes / SPW_HF_FP32;
    const double r = (double)bytes;
    const spw_value sum = biased(m, narrowed(m, l, x, FORGET_DOWN, FORGET_UP), l->mixer_weight[STEP_BIAS], n);
    const spw_value scale = rates(m, l), above = spw_tape_tensor(t, n);
    const spw_value raised = spw_hf_keeping_output(t, sum, bytes);
    const spw_value more = spw_tape_apply(
        t, &(spw_op){.bytes = bytes, .input = {raised}, .back = {SPW_TO_PASS(0)}, .read_bytes = r});
    spw_tape_drop(t, raised);
    const spw_value log = spw_hf_keeping_input(t, more, bytes);
    spw_tape_drop(t, more);
    const spw_value soft = spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                                       .input = {sum, log},
                                                       .keep = {{above, 0}},
                                                       .back = {SPW_TO(0, bytes, r), SPW_TO(1, bytes, r)},
                                                       .read_bytes = 2.0 * r});
    spw_tape_drop(t, log);
    const spw_value out = spw_hf_spread(t, soft, scale, bytes, SPW_HF_FP32 * s->heads);
    const spw_value names[] = {soft, above, scale, sum};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

/* KimiLinearRMSNormGated: all in fp32. Takes the names of x and z. */
static spw_value wide_gated_norm(spw_hf_model *m, const spw_hf_layer *l, spw_value x, spw_value z,
                                 const sizes *s) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, n = s->values / b, f = SPW_HF_FP32 * n,
                   width = l->recurrence->value;
    spw_value mean;
    const spw_value scaled = spw_hf_normalize(m, x, n / width, width, &mean),
                    weighed = spw_hf_weigh_wide(m, scaled, n / width, width, l->mixer_weight[NORM]);
    spw_tape_drop(t, scaled);
    const spw_value gate = spw_hf_cast(t, z, n, b, SPW_HF_FP32), open = spw_hf_keeping_output(t, gate, f);
    spw_tape_drop(t, gate);
    const spw_value product = spw_hf_multiply(t, weighed, open, f);
    const spw_value out = spw_hf_cast(t, product, n, SPW_HF_FP32, b);
    const spw_value names[] = {product, open, weighed, mean, x, z};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

static spw_value kimi_forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_recurrence *r = l->recurrence;
    const sizes s = sizes_of(m, r);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_MIXER);
    const spw_value of[] = {spw_hf_linear(m, x, l->mixer_weight[IN], s.rows, false),
                            spw_hf_linear(m, x, l->mixer_weight[KEYS], s.rows, false),
                            spw_hf_linear(m, x, l->mixer_weight[VALUES], s.rows, false)};
    const spw_value mixed = convolve(m, l, joined(t, of, &s), 2 * s.keys + s.values);
    const spw_value decays = forgets(m, l, x, &s);
    const spw_value raw = spw_hf_linear(m, x, l->mixer_weight[RATES], s.rows, false),
                    strengths = spw_hf_keeping_output(t, raw, s.strengths);
    spw_tape_drop(t, raw);
    const spw_value core = delta_rule(m, r, &s, mixed, (rule){decays, strengths, true});
    const spw_value normed = wide_gated_norm(m, l, core, narrowed(m, l, x, GATE_DOWN, GATE_UP), &s);
    const spw_value out = spw_hf_linear(m, normed, l->mixer_weight[OUT], s.rows, false);
    spw_tape_drop(t, normed);
    spw_tape_drop(t, decays);
    spw_tape_drop(t, strengths);
    spw_tape_kind(t, kind);
    return out;
}

const spw_hf_mixer spw_hf_kimi_delta = {kimi_weights, kimi_forward};
