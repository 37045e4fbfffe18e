#include "sim/memory/transformers_operations.h"

#include <string.h>

static void add_dense(spw_hf_model *m, spw_hf_layer *l, uint64_t width) {
    const uint64_t hidden = m->shape->model->hidden;
    const bool all = m->shape->adapts_all;
    l->ffn_gate = spw_hf_add_matrix(m, width, hidden, all);
    l->ffn_up = spw_hf_add_matrix(m, width, hidden, all);
    l->ffn_down = spw_hf_add_matrix(m, hidden, width, all);
}

static spw_value dense(spw_hf_model *m, const spw_hf_layer *l, spw_value x, uint64_t width) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, bytes = rows * width * m->shape->element_bytes;
    const bool all = m->shape->adapts_all;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_FFN);
    const spw_value gate = spw_hf_linear(m, x, l->ffn_gate, rows, all), act = spw_hf_silu(t, gate, bytes);
    spw_tape_drop(t, gate);
    const spw_value up = spw_hf_linear(m, x, l->ffn_up, rows, all), both = spw_hf_multiply(t, act, up, bytes);
    spw_tape_drop(t, act);
    spw_tape_drop(t, up);
    const spw_value out = spw_hf_linear(m, both, l->ffn_down, rows, all);
    spw_tape_drop(t, both);
    spw_tape_kind(t, kind);
    return out;
}

typedef struct routes {
    spw_value weights, choices; /* of T K */
    spw_value logits;
} routes;

static routes route(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, all = rows * model->experts,
                   some = rows * model->top_k;
    const double r = (double)(SPW_HF_FP32 * all);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ROUTER);
    const spw_value gate = spw_hf_router_weight(m, l->router);
    const spw_value logits = spw_hf_product(m, x, gate, rows, model->hidden, model->experts, false);
    spw_tape_drop(t, gate);
    const spw_value wide = spw_hf_cast(t, logits, all, b, SPW_HF_FP32);
    const spw_value parts = spw_tape_apply(
        t, &(spw_op){.bytes = SPW_HF_FP32 * all,
                     .input = {wide},
                     .keeps_output = true,
                     .back = {SPW_TO(0, SPW_HF_FP32 * all, 2.0 * r), SPW_TO_WORK(0, SPW_HF_FP32 * all)},
                     .read_bytes = r});
    spw_tape_drop(t, wide);
    spw_value choices = {.storage = 0};
    const spw_value top = spw_tape_apply(t, &(spw_op){.bytes = SPW_HF_FP32 * some,
                                                      .kept_bytes = SPW_HF_INDEX * some,
                                                      .second = &choices,
                                                      .input = {parts},
                                                      .back = {SPW_TO(0, SPW_HF_FP32 * all, 0.0)},
                                                      .read_bytes = r});
    const spw_value before =
        spw_tape_tensor(t, SPW_HF_FP32 * some); /* the values that the division in place replaces */
    const spw_value shared = spw_tape_apply(
        t, &(spw_op){.input = {top},
                     .keep = {{before, 0}},
                     .back = {SPW_TO_TEMP(0, SPW_HF_FP32 * some, 0.0),
                              SPW_TO_TEMP(0, SPW_HF_FP32 * some, 0.0), SPW_TO(0, SPW_HF_FP32 * some, 0.0)}});
    const spw_value weights =
        spw_hf_cast(t, shared, some, SPW_HF_FP32, m->shape->wide_scores ? SPW_HF_FP32 : b);
    spw_tape_drop(t, before);
    spw_tape_drop(t, top);
    spw_tape_drop(t, shared);
    spw_tape_drop(t, parts);
    spw_tape_kind(t, kind);
    return (routes){weights, choices, logits};
}

static spw_value grouped(spw_hf_model *m, spw_value x, spw_value w, uint64_t rows, uint64_t in,
                         uint64_t out) {
    const uint64_t b = m->shape->element_bytes, e = m->shape->model->experts;
    const double flop = 2.0 * (double)rows * (double)in * (double)out;
    return spw_tape_apply(m->tape, &(spw_op){.bytes = rows * out * b,
                                             .input = {x, w},
                                             .keep = {{x, 1}, {w, 0}},
                                             .back = {SPW_TO_PRODUCT(1, e * in * out * b, flop),
                                                      SPW_TO_PRODUCT(0, rows * in * b, flop)},
                                             .flop = flop,
                                             .rate = SPW_HF_GROUPED_PRODUCT});
}

static spw_value up(spw_hf_model *m, spw_value weight, spw_value rows_of, spw_value mask) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens * model->top_k, b = m->shape->element_bytes,
                   wide = rows * 2 * model->expert_ffn * b, half = wide / 2;
    const double r = (double)half;
    const spw_value made = grouped(m, rows_of, weight, rows, model->hidden, 2 * model->expert_ffn);
    const spw_value both = spw_hf_masked(t, made, mask, wide, false);
    spw_tape_drop(t, made);
    /* chunk(): one node, whose gradient joins those of its two views */
    const spw_value parts = spw_tape_apply(t, &(spw_op){.input = {both}, .back = {SPW_TO(0, wide, 2.0 * r)}});
    const spw_value act = spw_hf_silu(t, parts, half);
    const spw_value out = spw_hf_multiply(t, act, spw_tape_output(parts, 1), half);
    spw_tape_drop(t, act);
    spw_tape_drop(t, parts);
    spw_tape_drop(t, both);
    return out;
}

/* Scores of fp32 make the products fp32. */
static spw_value weigh(spw_hf_model *m, spw_value rows_of, spw_value weights) {
    const uint64_t rows = m->shape->tokens * m->shape->model->top_k, b = m->shape->element_bytes,
                   s = m->shape->wide_scores ? SPW_HF_FP32 : b, numbers = rows * m->shape->model->hidden;
    const double r = (double)(s * numbers);
    spw_op op = {.bytes = s * numbers,
                 .input = {rows_of, weights},
                 .keep = {{weights, 0}, {rows_of, 1}},
                 .back = {SPW_TO_TEMP(1, s * numbers, 2.0 * r), SPW_TO(0, b * numbers, r), SPW_TO_DONE,
                          SPW_TO(1, s * rows, r)},
                 .read_bytes = r};
    if (s != b) {
        const spw_gradient_step wide[] = {SPW_TO_TEMP(1, s * numbers, 2.0 * r),
                                          SPW_TO_TEMP(0, s * numbers, r), SPW_TO_DONE,
                                          SPW_TO(0, b * numbers, r), SPW_TO(1, s * rows, r)};
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
                   s = m->shape->wide_scores ? SPW_HF_FP32 : b, bytes = rows * model->hidden * s,
                   numbers = m->shape->tokens * model->hidden;
    const spw_value ordered = spw_hf_take(t, weighted, back, rows, bytes, bytes);
    if (ordered.storage != 0) spw_tape_drop(t, weighted);
    *named = ordered.storage != 0 ? ordered : weighted;
    const spw_value each = spw_tape_apply(t, &(spw_op){.input = {ordered}, .back = {SPW_TO(0, bytes, 0.0)}});
    const spw_value sum = spw_tape_apply(
        t, &(spw_op){
               .bytes = s * numbers, .input = {each}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)bytes});
    spw_tape_drop(t, each);
    const spw_value out = spw_hf_cast(t, sum, numbers, s, b);
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
    spw_hf_try_experts(m);
    const spw_value sorted = spw_tape_tensor(t, SPW_HF_INDEX * rows),
                    order = spw_tape_tensor(t, SPW_HF_INDEX * rows);
    const spw_value keys = spw_tape_tensor(t, SPW_HF_INDEX * rows);
    spw_tape_drop(t, spw_tape_tensor(t, spw_hf_sort_bytes(rows)));
    spw_tape_drop(t, keys);
    const spw_value token = spw_tape_tensor(t, SPW_HF_INDEX * rows);
    const spw_value gathered = spw_hf_take(t, x, token, rows, bytes, tokens);
    spw_tape_drop(t, token);
    const uint64_t score = m->shape->wide_scores ? SPW_HF_FP32 : b;
    const spw_value weights = spw_hf_take(t, r.weights, order, rows, score * rows, score * rows);
    const spw_value counts = spw_tape_tensor(t, SPW_HF_FP32 * rows), mask = spw_tape_tensor(t, rows);
    const spw_value clean = spw_hf_masked(t, gathered, mask, bytes, true);
    const spw_value wide = spw_hf_expert_weight(m, l, true), inner = up(m, wide, clean, mask);
    const spw_value narrow = spw_hf_expert_weight(m, l, false),
                    raw = grouped(m, inner, narrow, rows, model->expert_ffn, model->hidden);
    spw_tape_drop(t, inner);
    const spw_value made = spw_hf_masked(t, raw, mask, bytes, false);
    spw_tape_drop(t, raw);
    const spw_value weighted = weigh(m, made, weights);
    const spw_value back = spw_tape_tensor(t, SPW_HF_INDEX * rows);
    spw_tape_drop(t, spw_tape_tensor(t, SPW_HF_INDEX * rows)); /* arange() */
    spw_value ordered = {.storage = 0};
    const spw_value out = combine(m, weighted, back, &ordered);
    const spw_value names[] = {sorted,  order, clean,    gathered,  weights,   counts, mask,  made,
                               ordered, back,  r.logits, r.weights, r.choices, wide,   narrow};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    spw_tape_kind(t, kind);
    return out;
}

void spw_hf_ffn_weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *model = m->shape->model;
    if (!l->moe) {
        add_dense(m, l, model->dense_ffn);
        return;
    }
    spw_hf_add_experts(m, l);
    if (model->shared_ffn > 0) add_dense(m, l, model->shared_ffn);
}

spw_value spw_hf_ffn(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    const spw_model *model = m->shape->model;
    if (!l->moe) return dense(m, l, x, model->dense_ffn);
    const spw_value routed = experts(m, l, x);
    if (model->shared_ffn == 0) return routed;
    const spw_value beside = dense(m, l, x, model->shared_ffn);
    const spw_value out =
        spw_hf_add(m->tape, routed, beside, m->shape->tokens * model->hidden * m->shape->element_bytes);
    spw_tape_drop(m->tape, routed);
    spw_tape_drop(m->tape, beside);
    return out;
}
