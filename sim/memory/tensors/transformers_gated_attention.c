/* Attention with a gate as wide as its queries: transformers 5.24 models/qwen3_next/modeling_qwen3_next.py, Qwen3NextAttention. */
#include "sim/memory/tensors/transformers_operations.h"

enum { QUERIES, KEYS, VALUES, OUTPUT, QUERY_NORM, KEY_NORM };

static void weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *model = m->shape->model;
    const uint64_t h = model->hidden, q = model->heads * model->head_dim,
                   kv = model->kv_heads * model->head_dim;
    const bool adapts = m->shape->adapts_attention;
    l->mixer_weight[QUERIES] = spw_hf_add_matrix(m, 2 * q, h, adapts);
    l->mixer_weight[KEYS] = spw_hf_add_matrix(m, kv, h, adapts);
    l->mixer_weight[VALUES] = spw_hf_add_matrix(m, kv, h, adapts);
    l->mixer_weight[OUTPUT] = spw_hf_add_matrix(m, h, q, adapts);
    l->mixer_weight[QUERY_NORM] = spw_hf_add_weight(m, model->head_dim, 1, false);
    l->mixer_weight[KEY_NORM] = spw_hf_add_weight(m, model->head_dim, 1, false);
}

/* The first part of every head turns, the rest goes beside it. Takes the name of x. */
static spw_value turned(spw_hf_model *m, spw_value x, uint64_t bytes) {
    spw_tape *t = m->tape;
    const uint64_t some = bytes / SPW_HF_QUARTER;
    const spw_value first =
                        spw_tape_apply(t, &(spw_op){.input = {x}, .back = {SPW_TO(0, bytes, (double)bytes)}}),
                    rest =
                        spw_tape_apply(t, &(spw_op){.input = {x}, .back = {SPW_TO(0, bytes, (double)bytes)}});
    const spw_value moved = spw_hf_rotate(m, first, some);
    const spw_value out = spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                                      .input = {moved, rest},
                                                      .back = {SPW_TO_PASS(0), SPW_TO_PASS(1)},
                                                      .read_bytes = (double)bytes});
    const spw_value names[] = {moved, first, rest, x};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

/* Takes the name of x. */
static spw_value normed(spw_hf_model *m, spw_value x, size_t heads, size_t at) {
    const spw_value out = spw_hf_norm(m, x, m->shape->tokens * heads, m->shape->model->head_dim, at);
    spw_tape_drop(m->tape, x);
    return out;
}

static spw_value forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes,
                   q = rows * model->heads * model->head_dim * b,
                   kv = rows * model->kv_heads * model->head_dim * b;
    const bool adapts = m->shape->adapts_attention;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ATTENTION);
    const spw_value both = spw_hf_linear(m, x, l->mixer_weight[QUERIES], rows, adapts),
                    parts = spw_hf_part(t, both, 2 * q);
    spw_tape_drop(t, both);
    const spw_value gate = spw_hf_copy(t, spw_tape_output(parts, 1), q);
    const spw_value queries = normed(m, parts, model->heads, l->mixer_weight[QUERY_NORM]);
    const spw_value keys = normed(m, spw_hf_linear(m, x, l->mixer_weight[KEYS], rows, adapts),
                                  model->kv_heads, l->mixer_weight[KEY_NORM]);
    const spw_value values = spw_hf_linear(m, x, l->mixer_weight[VALUES], rows, adapts);
    const spw_value q_turned = turned(m, queries, q), k_turned = turned(m, keys, kv);
    const spw_hf_scores scores = {model->heads,
                                  model->heads * model->head_dim,
                                  model->kv_heads * model->head_dim,
                                  model->heads * model->head_dim,
                                  {0}};
    const spw_value core = spw_hf_attend(m, &scores, q_turned, k_turned, values);
    const spw_value ordered =
        spw_hf_copy(t, core, q); /* cat() gave queries by heads, and so comes the output */
    spw_tape_drop(t, core);
    const spw_value open = spw_hf_keeping_output(t, gate, q), gated = spw_hf_multiply(t, ordered, open, q);
    spw_tape_drop(t, ordered);
    spw_tape_drop(t, open);
    const spw_value out = spw_hf_linear(m, gated, l->mixer_weight[OUTPUT], rows, adapts);
    const spw_value names[] = {gated, gate, q_turned, k_turned, values};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    spw_tape_kind(t, kind);
    return out;
}

const spw_hf_mixer spw_hf_gated_attention = {weights, forward};
