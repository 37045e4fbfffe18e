/* MiniMax-M3's attention [MiniMaxM3VLAttention, MiniMaxM3VLIndexer; transformers 5.24.0]: norms of heads, half of a head turned; in
 * some layers an indexer chooses blocks of keys, and its choice is a mask of every query and key of every head, which fused attention
 * keeps; keys and values are copied for every head there. */
#include "sim/memory/tensors/transformers_operations.h"

#include <string.h>

enum { Q, K, V, O, Q_NORM, K_NORM };

static const spw_matrix *named(const spw_model *m, size_t kind, const char *name) {
    for (size_t i = 0;; i++) {
        const spw_matrix *row = spw_matrix_at(m, SPW_IN_MIXER, kind, i);
        if (row == NULL || strcmp(row->name, name) == 0) return row;
    }
}

static void weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *k = m->shape->model;
    const uint64_t h = k->hidden, q = k->heads * k->head_dim, kv = k->kv_heads * k->head_dim;
    size_t *w = l->mixer_weight;
    w[Q] = spw_hf_add_weight(m, q, h, false);
    w[K] = spw_hf_add_weight(m, kv, h, false);
    w[V] = spw_hf_add_weight(m, kv, h, false);
    w[O] = spw_hf_add_weight(m, h, q, false);
    w[Q_NORM] = spw_hf_add_weight(m, k->head_dim, 1, false);
    w[K_NORM] = spw_hf_add_weight(m, k->head_dim, 1, false);
    if (l->kind == 0) return;
    const uint64_t index_q = named(k, l->kind, "indexer q")->out,
                   index_k = named(k, l->kind, "indexer k")->out;
    (void)spw_hf_add_untrained(m, index_q, h);
    (void)spw_hf_add_untrained(m, index_k, h);
    (void)spw_hf_add_untrained(m, index_k, 1);
    (void)spw_hf_add_untrained(m, index_k, 1);
}

/* Heads normed and the first part of each turned; what it gives lies head by head. Takes the name of x. */
static spw_value heads_of(spw_hf_model *m, spw_value x, uint64_t heads, size_t norm) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, width = m->shape->model->head_dim,
                   bytes = rows * heads * width * m->shape->element_bytes;
    const spw_value normed = spw_hf_norm(m, x, rows * heads, width, norm);
    spw_tape_drop(t, x);
    const spw_value first = spw_hf_part(t, normed, bytes), rest = spw_hf_part(t, normed, bytes),
                    turned = spw_hf_rotate(m, first, bytes / SPW_HF_TURNED_PART),
                    out = spw_hf_join(t, turned, rest, bytes);
    const spw_value names[] = {normed, first, rest, turned};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

/* What the indexer holds, without gradients: scores of every query and key in fp32, twice; then the mask, as bytes and in the model's
 * format, twice. The mask is what stays. */
static spw_value choose(spw_hf_model *m, const spw_hf_layer *l) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const uint64_t rows = m->shape->tokens, length = rows / m->shape->sequences, b = m->shape->element_bytes,
                   width = named(k, l->kind, "indexer q")->out,
                   heads = width / named(k, l->kind, "indexer k")->out, pairs = rows * length;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_INDEXER);
    const double narrow = (double)(rows * width * b), all = (double)(SPW_HF_FP32 * pairs * heads),
                 flags = (double)(k->heads * pairs);
    const spw_value q = spw_tape_make(t, rows * width * b, 0.0, 2.0 * (double)(rows * k->hidden * width),
                                      SPW_HF_DENSE_PRODUCT),
                    q_wide = spw_tape_make(t, SPW_HF_FP32 * rows * width, narrow, 0.0, 0),
                    scores = spw_tape_make(t, SPW_HF_FP32 * pairs * heads, 0.0, 2.0 * (double)(pairs * width),
                                           SPW_HF_FP32_PRODUCT);
    spw_tape_drop(t, spw_tape_make(t, SPW_HF_FP32 * pairs * heads, all, 0.0, 0));
    spw_tape_drop(t, scores);
    spw_tape_drop(t, q_wide);
    spw_tape_drop(t, q);
    const spw_value keep = spw_tape_make(t, k->heads * pairs, flags, 0.0, 0),
                    zeros = spw_tape_make(t, k->heads * pairs * b, 0.0, 0.0, 0);
    spw_tape_kind(t, SPW_HF_ATTENTION);
    const spw_value mask = spw_tape_make(t, k->heads * pairs * b, flags * (1.0 + (double)b), 0.0, 0);
    spw_tape_drop(t, zeros);
    spw_tape_drop(t, keep);
    spw_tape_kind(t, kind);
    return mask;
}

/* Keys or values once for every head of queries. Takes the name of x. */
static spw_value every_head(spw_hf_model *m, spw_value x) {
    const spw_model *k = m->shape->model;
    const uint64_t one = m->shape->tokens * k->head_dim * m->shape->element_bytes;
    const spw_value out =
        spw_tape_apply(m->tape, &(spw_op){.bytes = k->heads * one,
                                          .input = {x},
                                          .back = {SPW_TO(0, k->kv_heads * one, (double)one)},
                                          .read_bytes = (double)(k->kv_heads * one)});
    spw_tape_drop(m->tape, x);
    return out;
}

/* Fused attention beside a mask, which is kept. */
static spw_value attend(spw_hf_model *m, const spw_value x[3], spw_value mask) {
    const spw_model *k = m->shape->model;
    const uint64_t rows = m->shape->tokens, bytes = rows * k->heads * k->head_dim * m->shape->element_bytes;
    const double flop = 2.0 * 2.0 * (double)rows * ((double)rows / (double)m->shape->sequences) *
                        (double)(k->heads * k->head_dim);
    return spw_tape_apply(m->tape,
                          &(spw_op){.bytes = bytes,
                                    .kept_bytes = SPW_HF_FP32 * rows * k->heads,
                                    .input = {x[0], x[1], x[2]},
                                    .keep = {{x[1], 0}, {x[0], 0}, {x[2], 0}, {mask, 0}},
                                    .keeps_output = true,
                                    .back = {SPW_TO_PRODUCT(0, bytes, 2.5 * flop), SPW_TO(1, bytes, 0.0),
                                             SPW_TO(2, bytes, 0.0), SPW_TO_WORK(0, 2 * bytes)},
                                    .flop = flop,
                                    .rate = SPW_HF_ATTENTION_PRODUCT});
}

static spw_value forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const size_t *w = l->mixer_weight;
    const uint64_t rows = m->shape->tokens, wide = k->heads * k->head_dim, kv = k->kv_heads * k->head_dim,
                   bytes = rows * wide * m->shape->element_bytes;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ATTENTION);
    spw_value mask = {.storage = 0}, seen, part[3];
    part[0] = heads_of(m, spw_hf_linear(m, x, w[Q], rows, false), k->heads, w[Q_NORM]);
    part[1] = heads_of(m, spw_hf_linear(m, x, w[K], rows, false), k->kv_heads, w[K_NORM]);
    part[2] = spw_hf_linear(m, x, w[V], rows, false);
    if (l->kind == 0) {
        seen = spw_hf_attend(m, &(spw_hf_scores){k->heads, wide, kv, wide, {0}}, part[0], part[1], part[2]);
    } else {
        mask = choose(m, l);
        part[1] = every_head(m, part[1]);
        part[2] = every_head(m, part[2]);
        seen = attend(m, part, mask);
    }
    /* the output lies as the queries do */
    const spw_value ordered = spw_tape_apply(
        t, &(spw_op){.bytes = bytes, .input = {seen}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)bytes});
    const spw_value out = spw_hf_linear(m, ordered, w[O], rows, false);
    const spw_value names[] = {part[0], part[1], part[2], mask, seen, ordered};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    spw_tape_kind(t, kind);
    return out;
}

const spw_hf_mixer spw_hf_block_attention = {weights, forward};

bool spw_hf_attention_is_by_blocks(const spw_model *m) {
    if (m->streams > 1 || !m->qk_norm_per_head || !m->sigmoid_router || m->mixer[1].layers == 0) return false;
    for (size_t kind = 2; kind < SPW_MODEL_MIXERS; kind++)
        if (m->mixer[kind].layers > 0) return false;
    return m->mixer[1].every == 1 && m->mixer[1].window == 0 && named(m, 1, "indexer norms") != NULL &&
           named(m, 0, "indexer norms") == NULL;
}
