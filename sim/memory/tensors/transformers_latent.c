/* [DeepseekV3Attention, DeepseekV2Attention; transformers 5.24.0] queries through a latent or plain, keys and values through one, a
 * rotary part beside: what is kept are queries, keys, and the matrix' output that the values are a part of. */
#include "sim/memory/tensors/transformers_operations.h"

enum { Q, Q_DOWN, Q_NORM, Q_UP, KV_DOWN, KV_NORM, KV_UP, O };

static void weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *k = m->shape->model;
    const uint64_t h = k->hidden, head = k->nope_dim + k->rope_dim;
    size_t *w = l->mixer_weight;
    if (k->q_lora_rank == 0) {
        w[Q] = spw_hf_add_matrix(m, k->heads * head, h, false);
    } else {
        w[Q_DOWN] = spw_hf_add_matrix(m, k->q_lora_rank, h, false);
        w[Q_NORM] = spw_hf_add_weight(m, k->q_lora_rank, 1, false);
        w[Q_UP] = spw_hf_add_matrix(m, k->heads * head, k->q_lora_rank, false);
    }
    w[KV_DOWN] = spw_hf_add_matrix(m, k->kv_lora_rank + k->rope_dim, h, false);
    w[KV_NORM] = spw_hf_add_weight(m, k->kv_lora_rank, 1, false);
    w[KV_UP] = spw_hf_add_matrix(m, k->heads * (k->nope_dim + k->v_head_dim), k->kv_lora_rank, false);
    w[O] = spw_hf_add_matrix(m, h, k->heads * k->v_head_dim, false);
}

static spw_value queries(spw_hf_model *m, const size_t *w, spw_value x) {
    const uint64_t rows = m->shape->tokens, rank = m->shape->model->q_lora_rank;
    if (rank == 0) return spw_hf_linear(m, x, w[Q], rows, false);
    const spw_value down = spw_hf_linear(m, x, w[Q_DOWN], rows, false);
    const spw_value normed = spw_hf_norm(m, down, rows, rank, w[Q_NORM]);
    spw_tape_drop(m->tape, down);
    const spw_value out = spw_hf_linear(m, normed, w[Q_UP], rows, false);
    spw_tape_drop(m->tape, normed);
    return out;
}

/* x1 cos - x2 sin, x2 cos + x1 sin, behind each other; x1 and x2 are every second number of x, of `bytes`. */
static spw_value turn_pairs(spw_hf_model *m, spw_value x, uint64_t bytes) {
    spw_tape *t = m->tape;
    const uint64_t half = bytes / 2;
    const spw_value part[] = {spw_hf_part(t, x, bytes), spw_hf_part(t, x, bytes)};
    spw_value made[2];
    for (int i = 0; i < 2; i++) {
        const spw_value a = spw_hf_scale(t, part[i], m->cosine, half),
                        b = spw_hf_scale(t, part[1 - i], m->sine, half);
        made[i] = spw_hf_add(t, a, b, half);
        spw_tape_drop(t, a);
        spw_tape_drop(t, b);
    }
    const spw_value out = spw_hf_join(t, made[0], made[1], bytes);
    for (int i = 0; i < 2; i++) {
        spw_tape_drop(t, made[i]);
        spw_tape_drop(t, part[i]);
    }
    return out;
}

/* In fp32, a product of complex numbers, and back; m->cosine is the table of complex numbers. */
static spw_value turn_complex(spw_hf_model *m, spw_value x, uint64_t bytes) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, n = bytes / b;
    const spw_value wide = spw_hf_cast(t, x, n, b, SPW_HF_FP32);
    const spw_value turned = spw_hf_scale(t, wide, m->cosine, SPW_HF_FP32 * n);
    spw_tape_drop(t, wide);
    const spw_value out = spw_hf_cast(t, turned, n, SPW_HF_FP32, b);
    spw_tape_drop(t, turned);
    return out;
}

static spw_value turn(spw_hf_model *m, spw_value x, uint64_t bytes) {
    if (m->shape->rotation == SPW_HF_ROTATION_NONE) return spw_tape_hold(m->tape, x);
    return m->shape->rotation == SPW_HF_ROTATION_COMPLEX ? turn_complex(m, x, bytes)
                                                         : turn_pairs(m, x, bytes);
}

/* Keys: a tensor into which the part of every head and the rotary part that they share are copied. */
static spw_value keys(spw_hf_model *m, spw_value each, spw_value shared) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes,
                   nope = rows * k->heads * k->nope_dim * b, rope = rows * k->rope_dim * b,
                   all = nope + k->heads * rope;
    const spw_value first =
        spw_tape_apply(t, &(spw_op){.bytes = all,
                                    .input = {each},
                                    .back = {SPW_TO_TEMP(0, all, (double)all), SPW_TO(0, nope, (double)nope)},
                                    .read_bytes = (double)nope});
    const spw_value out = spw_tape_apply(
        t, &(spw_op){.input = {first, shared},
                     .back = {SPW_TO(0, all, (double)all), SPW_TO_TEMP(1, k->heads * rope, 0.0), SPW_TO_DONE,
                              SPW_TO(1, rope, (double)(k->heads * rope))}});
    spw_tape_drop(t, first);
    return out;
}

static spw_value forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const size_t *w = l->mixer_weight;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, head = k->nope_dim + k->rope_dim,
                   wide = k->heads * head, low = rows * (k->kv_lora_rank + k->rope_dim) * b,
                   both = rows * k->heads * (k->nope_dim + k->v_head_dim) * b;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ATTENTION);
    const spw_value q = queries(m, w, x), q_parts = spw_hf_part(t, q, rows * wide * b);
    const spw_value down = spw_hf_linear(m, x, w[KV_DOWN], rows, false), parts = spw_hf_part(t, down, low);
    const spw_value normed = spw_hf_norm(m, parts, rows, k->kv_lora_rank, w[KV_NORM]);
    const spw_value q_turned = turn(m, spw_tape_output(q_parts, 1), rows * k->heads * k->rope_dim * b),
                    k_turned = turn(m, spw_tape_output(parts, 1), rows * k->rope_dim * b);
    const spw_value query = m->shape->rotation == SPW_HF_ROTATION_NONE
                                ? spw_tape_hold(t, q)
                                : spw_hf_join(t, q_parts, q_turned, rows * wide * b);
    const spw_value up = spw_hf_linear(m, normed, w[KV_UP], rows, false), up_parts = spw_hf_part(t, up, both);
    const spw_value key = keys(m, up_parts, k_turned);
    const spw_value seen =
        spw_hf_attend(m, &(spw_hf_scores){k->heads, wide, wide, k->heads * k->v_head_dim, {0}}, query, key,
                      spw_tape_output(up_parts, 1));
    /* queries were put together head by head: so is what attention gives, and the next matrix needs it token by token */
    const spw_value ordered = m->shape->rotation == SPW_HF_ROTATION_NONE
                                  ? spw_tape_hold(t, seen)
                                  : spw_hf_copy(t, seen, rows * k->heads * k->v_head_dim * b);
    const spw_value out = spw_hf_linear(m, ordered, w[O], rows, false);
    const spw_value names[] = {q,     q_parts, down, parts,    normed, q_turned, k_turned,
                               query, up,      key,  up_parts, seen,   ordered};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    spw_tape_kind(t, kind);
    return out;
}

const spw_hf_mixer spw_hf_latent_attention = {weights, forward};
