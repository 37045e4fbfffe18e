#include "sim/memory/transformers_modules.h"

#include "base/memory.h"

#include <string.h>

#define NAME(name, text) text,
static const char *const kind_names[] = {SPW_TRANSFORMERS_KINDS(NAME)};
#undef NAME

enum { FP32 = 4, INDEX = 8, EMBEDDING_ROWS = 10 /* whose gradients one thread adds up */ };
/* The workspace of a cuBLAS handle on Hopper: each thread has one, and the backward pass is a thread of its own. */
enum { CUBLAS_BYTES = 32 << 20 };
/* Of a sum over rows: partial sums in fp32, one of 16 rows and 32 columns of threads. */
enum { ROW_SUM = 8 };
/* A radix sort's own: keys and values once more, and some. */
enum { SORT_MORE = 12800 };
static uint64_t sort_bytes(uint64_t n) { return (uint64_t)2 * INDEX * n + SORT_MORE; }
/* What the sorted gradient of an index takes: indices and positions, twice, and the sort's. */
#define SORTED(i, n) \
    WORK(i, INDEX *(n)), TEMP(i, INDEX *(n), 0.0), TEMP(i, INDEX *(n), 0.0), TEMP(i, INDEX *(n), 0.0), \
        TEMP(i, INDEX *(n), 0.0), WORK(i, sort_bytes(n))

const char *spw_transformers_kind_name(size_t kind) { return kind_names[kind]; }

/* --- Weights --- */

static size_t add_weight(spw_hf_model *m, uint64_t rows, uint64_t columns, bool adapter) {
    const bool trained = adapter || !m->shape->frozen;
    m->weight[m->weights] = (spw_hf_weight){spw_tape_parameter(m->tape, trained), rows, columns, trained};
    return m->weights++;
}

/* PEFT puts A [r, in] and B [out, r] behind the matrix. */
static size_t add_matrix(spw_hf_model *m, uint64_t out, uint64_t in, bool adapts) {
    const size_t at = add_weight(m, out, in, false), r = m->shape->lora_rank;
    if (adapts && r > 0) {
        (void)add_weight(m, r, in, true);
        (void)add_weight(m, out, r, true);
    }
    return at;
}

static void add_ffn(spw_hf_model *m, spw_hf_layer *l, uint64_t width) {
    const uint64_t hidden = m->shape->model->hidden;
    const bool all = m->shape->adapts_all;
    l->ffn_gate = add_matrix(m, width, hidden, all);
    l->ffn_up = add_matrix(m, width, hidden, all);
    l->ffn_down = add_matrix(m, hidden, width, all);
}

static void add_layer(spw_hf_model *m, size_t index) {
    const spw_model *model = m->shape->model;
    const uint64_t h = model->hidden, d = model->head_dim, q = model->heads * d, kv = model->kv_heads * d;
    const bool adapts = m->shape->adapts_attention, whole = m->shape->norm == SPW_HF_NORM_WHOLE;
    spw_hf_layer *l = &m->layer[index];
    l->first = m->weights;
    l->q = add_matrix(m, q, h, adapts);
    l->k = add_matrix(m, kv, h, adapts);
    l->v = add_matrix(m, kv, h, adapts);
    l->o = add_matrix(m, h, q, adapts);
    if (m->shape->norm != SPW_HF_NORM_NONE) {
        l->q_norm = add_weight(m, whole ? q : d, 1, false);
        l->k_norm = add_weight(m, whole ? kv : d, 1, false);
    }
    l->moe = model->is_moe[index] != 0;
    if (l->moe) {
        l->gate_up = add_weight(m, model->experts, 2 * model->expert_ffn * h, false);
        l->down = add_weight(m, model->experts, h * model->expert_ffn, false);
        l->router = add_weight(m, model->experts, h, false);
        if (model->shared_ffn > 0) add_ffn(m, l, model->shared_ffn);
    } else {
        add_ffn(m, l, model->dense_ffn);
    }
    l->input_norm = add_weight(m, h, 1, false);
    l->post_norm = add_weight(m, h, 1, false);
    l->end = m->weights;
}

spw_status spw_hf_model_create(const spw_transformers_shape *shape, spw_tape *tape, spw_hf_model **out) {
    spw_hf_model *m = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &m));
    m->shape = shape;
    m->tape = tape;
    SPW_TRY(SPW_ALLOC(shape->layers * SPW_HF_LAYER_WEIGHTS + 3, &m->weight));
    SPW_TRY(SPW_ALLOC(shape->layers, &m->layer));
    SPW_TRY(SPW_ALLOC(shape->layers + 1, &m->hidden));
    m->embedding = add_weight(m, shape->model->vocab, shape->model->hidden, false);
    for (size_t i = 0; i < shape->layers; i++) add_layer(m, i);
    m->final_norm = add_weight(m, shape->model->hidden, 1, false);
    m->head = shape->model->tied_embeddings ? m->embedding
                                            : add_weight(m, shape->model->vocab, shape->model->hidden, false);
    SPW_TRY(spw_tape_status(tape));
    *out = m;
    m = NULL;

cleanup:
    spw_hf_model_destroy(m);
    return status;
}

void spw_hf_model_destroy(spw_hf_model *m) {
    if (m == NULL) return;
    spw_free(m->weight);
    spw_free(m->layer);
    spw_free(m->hidden);
    spw_free(m);
}

/* --- Operations --- */

#define LEAF(m, at) ((m)->weight[at].leaf)
#define TO(i, n, r) \
    { SPW_GRADIENT_TO, i, n, r, 0.0 }
#define PRODUCT(i, n, f) \
    { SPW_GRADIENT_TO, i, n, 0.0, f }
#define TEMP(i, n, r) \
    { SPW_GRADIENT_TEMP, i, n, r, 0.0 }
#define WORK(i, n) \
    { SPW_GRADIENT_WORK, i, n, 0.0, 0.0 }
#define DONE \
    { SPW_GRADIENT_DONE, 0, 0, 0.0, 0.0 }
#define PASS(i) \
    { SPW_GRADIENT_PASS, i, 0, 0.0, 0.0 }

static spw_value cast(spw_tape *t, spw_value x, uint64_t n, size_t from, size_t to) {
    if (from == to) return spw_tape_hold(t, x);
    return spw_tape_apply(t, &(spw_op){.bytes = to * n,
                                       .input = {x},
                                       .back = {TO(0, from * n, (double)(to * n))},
                                       .read_bytes = (double)(from * n)});
}

/* a + b of n bytes. */
static spw_value add(spw_tape *t, spw_value a, spw_value b, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {a, b},
                                       .back = {PASS(0), PASS(1)},
                                       .read_bytes = 2.0 * (double)bytes});
}

/* a * b, both of n bytes. */
static spw_value multiply(spw_tape *t, spw_value a, spw_value b, uint64_t bytes) {
    const double r = 2.0 * (double)bytes;
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {a, b},
                                       .keep = {{b, 0}, {a, 1}},
                                       .back = {TO(1, bytes, r), TO(0, bytes, r)},
                                       .read_bytes = r});
}

static spw_value silu(spw_tape *t, spw_value x, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keep = {{x, 0}},
                                       .back = {TO(0, bytes, 2.0 * (double)bytes)},
                                       .read_bytes = (double)bytes});
}

/* x w^T. of sequences: what comes back to x is a view of the product's [rows, in]. */
static spw_value product(spw_hf_model *m, spw_value x, spw_value w, uint64_t rows, uint64_t in, uint64_t out,
                         bool of_sequences) {
    const uint64_t b = m->shape->element_bytes;
    const double flop = 2.0 * (double)rows * (double)in * (double)out;
    return spw_tape_apply(
        m->tape,
        &(spw_op){.bytes = rows * out * b,
                  .input = {x, w},
                  .keep = {{x, 1}},
                  .back = {PRODUCT(1, in * out * b, flop),
                           {of_sequences ? SPW_GRADIENT_VIEW : SPW_GRADIENT_TO, 0, rows * in * b, 0.0, flop}},
                  .flop = flop,
                  .rate = in < 128 || out < 128 ? SPW_HF_SMALL_PRODUCT : SPW_HF_DENSE_PRODUCT});
}

/* nn.Linear, or PEFT's: result = base(x); result = result + B(A(x)) * scaling. */
static spw_value linear(spw_hf_model *m, spw_value x, size_t at, uint64_t rows, bool adapts) {
    const uint64_t in = m->weight[at].columns, out = m->weight[at].rows, r = m->shape->lora_rank,
                   bytes = rows * out * m->shape->element_bytes;
    const spw_value base = product(m, x, LEAF(m, at), rows, in, out, true);
    if (!adapts || r == 0) return base;
    const uint16_t kind = spw_tape_kind(m->tape, SPW_HF_ADAPTERS);
    const spw_value a = product(m, x, LEAF(m, at + 1), rows, in, r, true);
    const spw_value b = product(m, a, LEAF(m, at + 2), rows, r, out, true);
    spw_tape_drop(m->tape, a);
    const spw_value scaled = spw_tape_apply(m->tape, &(spw_op){.bytes = bytes,
                                                               .input = {b},
                                                               .back = {TO(0, bytes, (double)bytes)},
                                                               .read_bytes = (double)bytes});
    spw_tape_drop(m->tape, b);
    spw_tape_kind(m->tape, kind);
    const spw_value sum = add(m->tape, base, scaled, bytes);
    spw_tape_drop(m->tape, scaled);
    spw_tape_drop(m->tape, base);
    return sum;
}

/* RMSNorm: in fp32 up to the weight. */
static spw_value norm(spw_hf_model *m, spw_value x, uint64_t rows, uint64_t width, size_t at) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, n = rows * width, f = FP32 * n, one = FP32 * rows;
    const double r = (double)f;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_NORMS);
    const spw_value wide = cast(t, x, n, b, FP32);
    const spw_value square =
        spw_tape_apply(t, &(spw_op){.bytes = f,
                                    .input = {wide},
                                    .keep = {{wide, 0}},
                                    .back = {TEMP(0, f, r), TEMP(0, f, r), TO(0, f, 2.0 * r)},
                                    .read_bytes = r});
    const spw_value mean = spw_tape_apply(
        t, &(spw_op){.bytes = one, .input = {square}, .back = {TO(0, f, 0.0)}, .read_bytes = r});
    spw_tape_drop(t, square);
    const spw_value some = spw_tape_apply(t, &(spw_op){.bytes = one, .input = {mean}, .back = {PASS(0)}});
    const spw_value root =
        spw_tape_apply(t, &(spw_op){.bytes = one,
                                    .input = {some},
                                    .keeps_output = true,
                                    .back = {TEMP(0, one, 0.0), TEMP(0, one, 0.0), TO(0, one, 0.0)}});
    spw_tape_drop(t, some);
    const spw_value scaled =
        spw_tape_apply(t, &(spw_op){.bytes = f,
                                    .input = {wide, root},
                                    .keep = {{root, 0}, {wide, 1}},
                                    .back = {TEMP(1, f, 2.0 * r), TO(0, f, r), DONE, TO(1, one, r)},
                                    .read_bytes = r});
    spw_tape_drop(t, root);
    spw_tape_drop(t, wide);
    const spw_value narrow = cast(t, scaled, n, FP32, b);
    const double e = (double)(b * n);
    const spw_value out = spw_tape_apply(t, &(spw_op){.bytes = b * n,
                                                      .input = {LEAF(m, at), narrow},
                                                      .keep = {{narrow, 0}},
                                                      .back = {TO(1, b * n, e), TEMP(0, b * n, 2.0 * e), DONE,
                                                               TO(0, b * width, e), WORK(0, ROW_SUM * n)},
                                                      .read_bytes = e});
    spw_tape_drop(t, narrow);
    spw_tape_drop(t, scaled);
    spw_tape_drop(t, mean);
    spw_tape_kind(t, kind);
    return out;
}

/* x cos + rotate_half(x) sin. */
static spw_value rotate(spw_hf_model *m, spw_value x, uint64_t bytes) {
    spw_tape *t = m->tape;
    const uint64_t half = bytes / 2;
    const double r = (double)bytes;
    const spw_value turned = spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                                         .input = {x},
                                                         .keep = {{m->cosine, 0}},
                                                         .back = {TO(0, bytes, r)},
                                                         .read_bytes = r});
    const spw_value first = spw_tape_apply(t, &(spw_op){.input = {x}, .back = {TO(0, bytes, r / 2.0)}});
    const spw_value second = spw_tape_apply(t, &(spw_op){.input = {x}, .back = {TO(0, bytes, r / 2.0)}});
    const spw_value minus = spw_tape_apply(
        t,
        &(spw_op){.bytes = half, .input = {second}, .back = {TO(0, half, r / 2.0)}, .read_bytes = r / 2.0});
    const spw_value joined = spw_tape_apply(
        t, &(spw_op){.bytes = bytes, .input = {minus, first}, .back = {PASS(0), PASS(1)}, .read_bytes = r});
    spw_tape_drop(t, minus);
    spw_tape_drop(t, first);
    spw_tape_drop(t, second);
    const spw_value across = spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                                         .input = {joined},
                                                         .keep = {{m->sine, 0}},
                                                         .back = {TO(0, bytes, r)},
                                                         .read_bytes = r});
    spw_tape_drop(t, joined);
    const spw_value out = add(t, turned, across, bytes);
    spw_tape_drop(t, turned);
    spw_tape_drop(t, across);
    return out;
}

/* cuDNN's: its gradient has sums in fp32 of queries, and keys and values of every head. */
static spw_value attend(spw_hf_model *m, spw_value q, spw_value k, spw_value v) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes,
                   width = model->heads * model->head_dim, kv = model->kv_heads * model->head_dim,
                   length = rows / m->shape->sequences;
    const uint64_t work = rows * (FP32 * width + (kv < width ? 2 * b * width : 0) + FP32 * model->heads);
    const double flop = 2.0 * (double)rows * (double)length * (double)width;
    return spw_tape_apply(t, &(spw_op){.bytes = rows * width * b,
                                       .kept_bytes = FP32 * rows * model->heads,
                                       .input = {q, k, v},
                                       .keep = {{k, 0}, {q, 0}, {v, 0}},
                                       .keeps_output = true,
                                       .back = {{SPW_GRADIENT_TO, 0, rows * width * b, 0.0, 2.5 * flop},
                                                TO(1, rows * kv * b, 0.0),
                                                TO(2, rows * kv * b, 0.0),
                                                WORK(0, work)},
                                       .flop = flop,
                                       .rate = SPW_HF_ATTENTION_PRODUCT});
}

/* Heads: their gradient comes transposed, and is copied. Takes the name of x. */
static spw_value by_heads(spw_hf_model *m, spw_value x, uint64_t bytes) {
    const spw_value out =
        spw_tape_apply(m->tape, &(spw_op){.input = {x}, .back = {TO(0, bytes, (double)bytes)}});
    spw_tape_drop(m->tape, x);
    return out;
}

static spw_value normed(spw_hf_model *m, spw_value x, uint64_t width, size_t heads, size_t at) {
    const uint64_t rows = m->shape->tokens, bytes = rows * width * m->shape->element_bytes;
    spw_value out = x;
    if (m->shape->norm == SPW_HF_NORM_WHOLE) {
        out = norm(m, x, rows, width, at);
        spw_tape_drop(m->tape, x);
    }
    out = by_heads(m, out, bytes);
    if (m->shape->norm != SPW_HF_NORM_HEAD) return out;
    const spw_value flat = out;
    out = norm(m, flat, rows * heads, width / heads, at);
    spw_tape_drop(m->tape, flat);
    return out;
}

static spw_value attention(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes,
                   width = model->heads * model->head_dim, kv = model->kv_heads * model->head_dim;
    const bool adapts = m->shape->adapts_attention;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ATTENTION);
    const spw_value q = normed(m, linear(m, x, l->q, rows, adapts), width, model->heads, l->q_norm);
    const spw_value k = normed(m, linear(m, x, l->k, rows, adapts), kv, model->kv_heads, l->k_norm);
    const spw_value v = linear(m, x, l->v, rows, adapts);
    const spw_value queries = rotate(m, q, rows * width * b), keys = rotate(m, k, rows * kv * b);
    spw_tape_drop(t, q);
    spw_tape_drop(t, k);
    const spw_value heads = attend(m, queries, keys, v);
    const spw_value out = linear(m, heads, l->o, rows, adapts);
    spw_tape_drop(t, heads);
    spw_tape_drop(t, queries);
    spw_tape_drop(t, keys);
    spw_tape_drop(t, v);
    spw_tape_kind(t, kind);
    return out;
}

static spw_value ffn(spw_hf_model *m, const spw_hf_layer *l, spw_value x, uint64_t width) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, bytes = rows * width * m->shape->element_bytes;
    const bool all = m->shape->adapts_all;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_FFN);
    const spw_value gate = linear(m, x, l->ffn_gate, rows, all), act = silu(t, gate, bytes);
    spw_tape_drop(t, gate);
    const spw_value up = linear(m, x, l->ffn_up, rows, all), both = multiply(t, act, up, bytes);
    spw_tape_drop(t, act);
    spw_tape_drop(t, up);
    const spw_value out = linear(m, both, l->ffn_down, rows, all);
    spw_tape_drop(t, both);
    spw_tape_kind(t, kind);
    return out;
}

/* --- Experts --- */

typedef struct routes {
    spw_value weights, choices; /* of T K */
    spw_value logits;
} routes;

static routes route(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, all = rows * model->experts,
                   some = rows * model->top_k;
    const double r = (double)(FP32 * all);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ROUTER);
    const spw_value logits = product(m, x, LEAF(m, l->router), rows, model->hidden, model->experts, false);
    const spw_value wide = cast(t, logits, all, b, FP32);
    const spw_value parts =
        spw_tape_apply(t, &(spw_op){.bytes = FP32 * all,
                                    .input = {wide},
                                    .keeps_output = true,
                                    .back = {TO(0, FP32 * all, 2.0 * r), WORK(0, FP32 * all)},
                                    .read_bytes = r});
    spw_tape_drop(t, wide);
    spw_value choices = {.storage = 0};
    const spw_value top = spw_tape_apply(t, &(spw_op){.bytes = FP32 * some,
                                                      .kept_bytes = INDEX * some,
                                                      .second = &choices,
                                                      .input = {parts},
                                                      .back = {TO(0, FP32 * all, 0.0)},
                                                      .read_bytes = r});
    const spw_value before =
        spw_tape_tensor(t, FP32 * some); /* the values that the division in place replaces */
    const spw_value shared = spw_tape_apply(
        t,
        &(spw_op){.input = {top},
                  .keep = {{before, 0}},
                  .back = {TEMP(0, FP32 * some, 0.0), TEMP(0, FP32 * some, 0.0), TO(0, FP32 * some, 0.0)}});
    const spw_value weights = cast(t, shared, some, FP32, m->shape->wide_scores ? FP32 : b);
    spw_tape_drop(t, before);
    spw_tape_drop(t, top);
    spw_tape_drop(t, shared);
    spw_tape_drop(t, parts);
    spw_tape_kind(t, kind);
    return (routes){weights, choices, logits};
}

static spw_value grouped(spw_hf_model *m, spw_value x, size_t at, uint64_t rows, uint64_t in, uint64_t out) {
    const uint64_t b = m->shape->element_bytes, e = m->shape->model->experts;
    const double flop = 2.0 * (double)rows * (double)in * (double)out;
    return spw_tape_apply(
        m->tape, &(spw_op){.bytes = rows * out * b,
                           .input = {x, LEAF(m, at)},
                           .keep = {{x, 1}},
                           .back = {PRODUCT(1, e * in * out * b, flop), PRODUCT(0, rows * in * b, flop)},
                           .flop = flop,
                           .rate = SPW_HF_GROUPED_PRODUCT});
}

/* masked_fill: a copy; in place, a view whose gradient is one. */
static spw_value masked(spw_tape *t, spw_value x, spw_value mask, uint64_t bytes, bool in_place) {
    return spw_tape_apply(t, &(spw_op){.bytes = in_place ? 0 : bytes,
                                       .input = {x},
                                       .keep = {{mask, 0}},
                                       .back = {TO(0, bytes, (double)bytes)},
                                       .read_bytes = (double)bytes});
}

/* x[index]: its gradient is added up into zeros, sorted by index. */
static spw_value take(spw_tape *t, spw_value x, spw_value index, uint64_t n, uint64_t bytes, uint64_t from) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keep = {{index, 0}},
                                       .back = {TO(0, from, 2.0 * (double)bytes), SORTED(0, n)},
                                       .read_bytes = (double)bytes});
}

static spw_value up(spw_hf_model *m, const spw_hf_layer *l, spw_value rows_of, spw_value mask) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens * model->top_k, b = m->shape->element_bytes,
                   wide = rows * 2 * model->expert_ffn * b, half = wide / 2;
    const double r = (double)half;
    const spw_value made = grouped(m, rows_of, l->gate_up, rows, model->hidden, 2 * model->expert_ffn);
    const spw_value both = masked(t, made, mask, wide, false);
    spw_tape_drop(t, made);
    /* chunk(): one node, whose gradient joins those of its two views */
    const spw_value parts = spw_tape_apply(t, &(spw_op){.input = {both}, .back = {TO(0, wide, 2.0 * r)}});
    const spw_value act = silu(t, parts, half);
    const spw_value out = multiply(t, act, spw_tape_output(parts, 1), half);
    spw_tape_drop(t, act);
    spw_tape_drop(t, parts);
    spw_tape_drop(t, both);
    return out;
}

/* Scores of fp32 make the products fp32. */
static spw_value weigh(spw_hf_model *m, spw_value rows_of, spw_value weights) {
    const uint64_t rows = m->shape->tokens * m->shape->model->top_k, b = m->shape->element_bytes,
                   s = m->shape->wide_scores ? FP32 : b, numbers = rows * m->shape->model->hidden;
    const double r = (double)(s * numbers);
    spw_op op = {.bytes = s * numbers,
                 .input = {rows_of, weights},
                 .keep = {{weights, 0}, {rows_of, 1}},
                 .back = {TEMP(1, s * numbers, 2.0 * r), TO(0, b * numbers, r), DONE, TO(1, s * rows, r)},
                 .read_bytes = r};
    if (s != b) {
        const spw_gradient_step wide[] = {TEMP(1, s * numbers, 2.0 * r), TEMP(0, s * numbers, r), DONE,
                                          TO(0, b * numbers, r), TO(1, s * rows, r)};
        memcpy(op.back, wide, sizeof wide);
    }
    return spw_tape_apply(m->tape, &op);
}

/* Back to the tokens' order, and the sum of a token's choices, whose gradient is copied for each. *names: the tensor of choices that
 * still has a name. */
static spw_value combine(spw_hf_model *m, spw_value weighted, spw_value back, spw_value *named) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens * model->top_k, b = m->shape->element_bytes,
                   s = m->shape->wide_scores ? FP32 : b, bytes = rows * model->hidden * s,
                   numbers = m->shape->tokens * model->hidden;
    const spw_value ordered = take(t, weighted, back, rows, bytes, bytes);
    if (ordered.storage != 0) spw_tape_drop(t, weighted);
    *named = ordered.storage != 0 ? ordered : weighted;
    const spw_value each = spw_tape_apply(t, &(spw_op){.input = {ordered}, .back = {TO(0, bytes, 0.0)}});
    const spw_value sum = spw_tape_apply(
        t, &(spw_op){.bytes = s * numbers, .input = {each}, .back = {PASS(0)}, .read_bytes = (double)bytes});
    spw_tape_drop(t, each);
    const spw_value out = cast(t, sum, numbers, s, b);
    spw_tape_drop(t, sum);
    return out;
}

/* grouped_mm_experts_forward(). */
static spw_value experts(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens * model->top_k, b = m->shape->element_bytes,
                   tokens = m->shape->tokens * model->hidden * b, bytes = rows * model->hidden * b;
    const routes r = route(m, l, x);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_EXPERTS);
    const spw_value sorted = spw_tape_tensor(t, INDEX * rows), order = spw_tape_tensor(t, INDEX * rows);
    const spw_value keys = spw_tape_tensor(t, INDEX * rows);
    spw_tape_drop(t, spw_tape_tensor(t, sort_bytes(rows)));
    spw_tape_drop(t, keys);
    const spw_value token = spw_tape_tensor(t, INDEX * rows);
    const spw_value gathered = take(t, x, token, rows, bytes, tokens);
    spw_tape_drop(t, token);
    const uint64_t score = m->shape->wide_scores ? FP32 : b;
    const spw_value weights = take(t, r.weights, order, rows, score * rows, score * rows);
    const spw_value counts = spw_tape_tensor(t, FP32 * rows), mask = spw_tape_tensor(t, rows);
    const spw_value clean = masked(t, gathered, mask, bytes, true);
    const spw_value inner = up(m, l, clean, mask);
    const spw_value raw = grouped(m, inner, l->down, rows, model->expert_ffn, model->hidden);
    spw_tape_drop(t, inner);
    const spw_value made = masked(t, raw, mask, bytes, false);
    spw_tape_drop(t, raw);
    const spw_value weighted = weigh(m, made, weights);
    const spw_value back = spw_tape_tensor(t, INDEX * rows);
    spw_tape_drop(t, spw_tape_tensor(t, INDEX * rows)); /* arange() */
    spw_value ordered = {.storage = 0};
    const spw_value out = combine(m, weighted, back, &ordered);
    const spw_value names[] = {sorted, order,   clean, gathered, weights,   counts,   mask,
                               made,   ordered, back,  r.logits, r.weights, r.choices};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    spw_tape_kind(t, kind);
    return out;
}

static spw_value mixture(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    const spw_model *model = m->shape->model;
    if (!l->moe) return ffn(m, l, x, model->dense_ffn);
    const spw_value routed = experts(m, l, x);
    if (model->shared_ffn == 0) return routed;
    const spw_value beside = ffn(m, l, x, model->shared_ffn);
    const spw_value out =
        add(m->tape, routed, beside, m->shape->tokens * model->hidden * m->shape->element_bytes);
    spw_tape_drop(m->tape, routed);
    spw_tape_drop(m->tape, beside);
    return out;
}

/* --- The model --- */

void spw_hf_layer_forward(spw_tape *t, void *of, size_t index) {
    spw_hf_model *m = of;
    const spw_hf_layer *l = &m->layer[index];
    const uint64_t rows = m->shape->tokens, hidden = m->shape->model->hidden,
                   bytes = rows * hidden * m->shape->element_bytes;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_HIDDEN);
    const spw_value x = m->hidden[index], first = norm(m, x, rows, hidden, l->input_norm);
    const spw_value attended = attention(m, l, first);
    spw_tape_drop(t, first);
    const spw_value middle = add(t, x, attended, bytes);
    spw_tape_drop(t, attended);
    const spw_value second = norm(m, middle, rows, hidden, l->post_norm);
    const spw_value mixed = mixture(m, l, second);
    spw_tape_drop(t, second);
    const spw_value out = add(t, middle, mixed, bytes);
    spw_tape_drop(t, mixed);
    spw_tape_drop(t, middle);
    m->hidden[index + 1] = out;
    spw_tape_kind(t, kind);
}

/* Cosines and sines of n angles. The product of positions and frequencies is the forward pass' first. */
static void rotary(spw_hf_model *m, uint64_t n) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, f = FP32 * n;
    const spw_value half = spw_tape_tensor(t, f / 2);
    if (!m->ran) (void)spw_tape_tensor(t, CUBLAS_BYTES);
    m->ran = true;
    const spw_value angles = spw_tape_tensor(t, f);
    spw_value wide[2];
    for (int i = 0; i < 2; i++) {
        const spw_value raw = spw_tape_tensor(t, f);
        wide[i] = spw_tape_tensor(t, f);
        spw_tape_drop(t, raw);
    }
    m->cosine = spw_tape_tensor(t, b * n);
    m->sine = spw_tape_tensor(t, b * n);
    spw_tape_drop(t, half);
    spw_tape_drop(t, angles);
    for (int i = 0; i < 2; i++) spw_tape_drop(t, wide[i]);
}

void spw_hf_begin(spw_hf_model *m) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t b = m->shape->element_bytes, rows = m->shape->tokens,
                   table = model->vocab * model->hidden * b;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_HIDDEN);
    const uint64_t length = rows / m->shape->sequences;
    m->hidden[0] = spw_tape_apply(
        t, &(spw_op){.bytes = rows * model->hidden * b,
                     .input = {LEAF(m, m->embedding)},
                     .back = {TO(0, table, 0.0), SORTED(0, rows),
                              WORK(0, FP32 * model->hidden * (rows + rows / EMBEDDING_ROWS))}});
    rotary(m, length * model->head_dim);
    /* PEFT with checkpointing: enable_input_require_grads() */
    if (m->shape->frozen && m->shape->checkpoint) m->hidden[0] = spw_tape_needs(t, m->hidden[0]);
    spw_tape_kind(t, kind);
}

static void drop_rotary(spw_hf_model *m) {
    spw_tape_drop(m->tape, m->cosine);
    spw_tape_drop(m->tape, m->sine);
    m->cosine = m->sine = (spw_value){.storage = 0};
}

void spw_hf_end(spw_hf_model *m) { drop_rotary(m); }

/* The backward pass' first product. */
static spw_value head(spw_hf_model *m, spw_value x) {
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes;
    const spw_value w = LEAF(m, m->head);
    const double flop = 2.0 * (double)rows * (double)model->hidden * (double)model->vocab;
    return spw_tape_apply(m->tape, &(spw_op){.bytes = rows * model->vocab * b,
                                             .input = {x, w},
                                             .keep = {{x, 1}},
                                             .back = {PRODUCT(1, model->hidden * model->vocab * b, flop),
                                                      {SPW_GRADIENT_ONCE, 0, CUBLAS_BYTES, 0.0, 0.0},
                                                      PRODUCT(0, rows * model->hidden * b, flop)},
                                             .flop = flop,
                                             .rate = SPW_HF_DENSE_PRODUCT});
}

spw_value spw_hf_loss(spw_hf_model *m) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, n = rows * model->vocab,
                   f = FP32 * n;
    const double r = (double)f;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_HIDDEN);
    const spw_value x = norm(m, m->hidden[m->shape->layers], rows, model->hidden, m->final_norm);
    spw_tape_drop(t, m->hidden[m->shape->layers]);
    m->hidden[m->shape->layers] = (spw_value){.storage = 0};
    if (!m->shape->checkpoint) drop_rotary(m);
    (void)spw_tape_kind(t, SPW_HF_LOGITS);
    m->logits = head(m, x);
    spw_tape_drop(t, x);
    const spw_value wide = cast(t, m->logits, n, b, FP32);
    const spw_value parts = spw_tape_apply(
        t,
        &(spw_op){
            .bytes = f, .input = {wide}, .keeps_output = true, .back = {TO(0, f, 2.0 * r)}, .read_bytes = r});
    const spw_value loss =
        spw_tape_apply(t, &(spw_op){.bytes = FP32, .input = {parts}, .back = {TO(0, f, 0.0)}});
    spw_tape_drop(t, parts);
    spw_tape_drop(t, wide);
    spw_tape_kind(t, kind);
    return loss;
}
