/* Residual streams [DeepseekV4HyperConnection, DeepseekV4HyperHead; transformers 5.24.0]: weights in fp32 make of all streams of a
 * token what collapses them, what expands what a layer made, and a matrix that mixes them, whose rows and columns are brought to a
 * sum of 1 in turns. Every turn keeps its numerator and its denominator. */
#include "sim/memory/tensors/transformers_operations.h"

enum { PROJECTION, BASE, SCALE };

void spw_hf_stream_weights(spw_hf_model *m, size_t at[SPW_HF_STREAM_WEIGHTS], bool head) {
    const uint64_t n = m->shape->model->streams, out = head ? n : (2 + n) * n;
    at[PROJECTION] = spw_hf_add_wide_weight(m, out, n * m->shape->model->hidden);
    at[BASE] = spw_hf_add_wide_weight(m, out, 1);
    at[SCALE] = spw_hf_add_wide_weight(m, head ? 1 : 3, 1);
}

/* x times a number, of a parameter; a parameter a column is added. Of n numbers a token. */
static spw_value scale_and_shift(spw_hf_model *m, const size_t at[SPW_HF_STREAM_WEIGHTS], spw_value x,
                                 uint64_t n) {
    spw_tape *t = m->tape;
    const uint64_t bytes = SPW_HF_FP32 * m->shape->tokens * n;
    const spw_value scaled =
        spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                    .input = {x, SPW_HF_LEAF(m, at[SCALE])},
                                    .keep = {{x, 1}},
                                    .back = {SPW_TO_TEMP(1, bytes, 0.0), SPW_TO(0, bytes, 0.0), SPW_TO_DONE,
                                             SPW_TO(1, SPW_HF_FP32, 0.0)}});
    const spw_value out =
        spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                    .input = {scaled, SPW_HF_LEAF(m, at[BASE])},
                                    .back = {SPW_TO_PASS(0), SPW_TO_DONE, SPW_TO(1, SPW_HF_FP32 * n, 0.0)}});
    spw_tape_drop(t, scaled);
    return out;
}

/* sigmoid() or softmax(), and a number more where `more`. */
static spw_value squash(spw_hf_model *m, const size_t at[SPW_HF_STREAM_WEIGHTS], spw_value x, uint64_t n) {
    spw_tape *t = m->tape;
    const uint64_t bytes = SPW_HF_FP32 * m->shape->tokens * n;
    const spw_value shifted = scale_and_shift(m, at, x, n), out = spw_hf_keeping_output(t, shifted, bytes);
    spw_tape_drop(t, shifted);
    const spw_value more =
        spw_tape_apply(t, &(spw_op){.bytes = bytes, .input = {out}, .back = {SPW_TO_PASS(0)}});
    spw_tape_drop(t, out);
    return more;
}

/* comb / (its sum + a number), of rows or of columns. Takes the name of comb. */
static spw_value divide(spw_hf_model *m, spw_value comb) {
    spw_tape *t = m->tape;
    const uint64_t n = m->shape->model->streams, all = SPW_HF_FP32 * m->shape->tokens * n * n, some = all / n;
    const spw_value sum =
        spw_tape_apply(t, &(spw_op){.bytes = some, .input = {comb}, .back = {SPW_TO(0, all, 0.0)}});
    const spw_value more =
        spw_tape_apply(t, &(spw_op){.bytes = some, .input = {sum}, .back = {SPW_TO_PASS(0)}});
    spw_tape_drop(t, sum);
    const spw_value out = spw_tape_apply(
        t, &(spw_op){.bytes = all,
                     .input = {comb, more},
                     .keep = {{more, 0}, {comb, 1}},
                     .back = {SPW_TO(0, all, 0.0), SPW_TO_TEMP(1, all, 0.0), SPW_TO_TEMP(1, all, 0.0),
                              SPW_TO_TEMP(1, all, 0.0), SPW_TO_DONE, SPW_TO(1, some, 0.0)}});
    spw_tape_drop(t, more);
    spw_tape_drop(t, comb);
    return out;
}

/* What mixes streams: the projection of all of them, normed. */
static spw_value project(spw_hf_model *m, const size_t at[SPW_HF_STREAM_WEIGHTS], spw_value streams,
                         uint64_t out) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, wide = spw_model_carried(m->shape->model);
    const spw_value flat = spw_hf_cast(t, streams, rows * wide, m->shape->element_bytes, SPW_HF_FP32);
    const spw_value normed = spw_hf_plain_norm(m, flat, rows, wide, SPW_HF_FP32);
    spw_tape_drop(t, flat);
    const spw_value by = spw_hf_widened(m, at[PROJECTION]),
                    made = spw_hf_wide_product(m, normed, by, rows, wide, out);
    spw_tape_drop(t, normed);
    spw_tape_drop(t, by);
    return made;
}

/* The sum of the streams, each times its number, in fp32 and back. */
static spw_value collapse(spw_hf_model *m, spw_value by, spw_value streams) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, n = rows * spw_model_carried(k),
                   f = SPW_HF_FP32 * n, one = rows * k->hidden;
    const double r = (double)f;
    const spw_value product = spw_tape_apply(
        t, &(spw_op){.bytes = f,
                     .input = {by, streams},
                     .keep = {{streams, 0}, {by, 1}},
                     .back = {SPW_TO_TEMP(0, f, r), SPW_TO_TEMP(1, f, r), SPW_TO_DONE, SPW_TO(1, b * n, r),
                              SPW_TO(0, SPW_HF_FP32 * rows * k->streams, r)},
                     .read_bytes = r});
    const spw_value sum = spw_tape_apply(
        t,
        &(spw_op){.bytes = SPW_HF_FP32 * one, .input = {product}, .back = {SPW_TO_PASS(0)}, .read_bytes = r});
    spw_tape_drop(t, product);
    const spw_value out = spw_hf_cast(t, sum, one, SPW_HF_FP32, b);
    spw_tape_drop(t, sum);
    return out;
}

spw_hf_mix spw_hf_collapse(spw_hf_model *m, const size_t at[SPW_HF_STREAM_WEIGHTS], spw_value streams) {
    spw_tape *t = m->tape;
    const uint64_t n = m->shape->model->streams, all = SPW_HF_FP32 * m->shape->tokens * (2 + n) * n;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_STREAMS);
    const spw_value made = project(m, at, streams, (2 + n) * n), parts = spw_hf_part(t, made, all);
    const spw_value before = squash(m, at, parts, n);
    const spw_value shifted = scale_and_shift(m, at, spw_tape_output(parts, 1), n),
                    open = spw_hf_keeping_output(t, shifted, SPW_HF_FP32 * m->shape->tokens * n);
    spw_tape_drop(t, shifted);
    const spw_value behind =
        spw_hf_scale(t, open, (spw_value){.storage = 0}, SPW_HF_FP32 * m->shape->tokens * n);
    spw_tape_drop(t, open);
    spw_value between = squash(m, at, spw_tape_output(parts, 2), n * n);
    for (size_t i = 0; i < 2 * m->shape->model->stream_rounds - 1; i++) between = divide(m, between);
    const spw_value collapsed = collapse(m, before, streams);
    spw_tape_drop(t, made);
    spw_tape_drop(t, parts);
    spw_tape_drop(t, before);
    spw_tape_kind(t, kind);
    return (spw_hf_mix){behind, between, collapsed};
}

spw_value spw_hf_expand(spw_hf_model *m, spw_hf_mix mix, spw_value made, spw_value streams) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, n = k->streams,
                   all = rows * spw_model_carried(k) * b;
    const double r = (double)all, flop = 2.0 * (double)(rows * n) * (double)(n * k->hidden);
    const spw_value behind = spw_hf_cast(t, mix.behind, rows * n, SPW_HF_FP32, b);
    const spw_value expanded =
        spw_tape_apply(t, &(spw_op){.bytes = all,
                                    .input = {behind, made},
                                    .keep = {{made, 0}, {behind, 1}},
                                    .back = {SPW_TO_TEMP(0, all, r), SPW_TO_TEMP(1, all, r), SPW_TO_DONE,
                                             SPW_TO(1, rows * k->hidden * b, r), SPW_TO(0, rows * n * b, r)},
                                    .read_bytes = r});
    const spw_value between = spw_hf_cast(t, mix.between, rows * n * n, SPW_HF_FP32, b);
    const spw_value mixed = spw_tape_apply(
        t, &(spw_op){.bytes = all,
                     .input = {between, streams},
                     .keep = {{streams, 0}, {between, 1}},
                     .back = {SPW_TO_PRODUCT(0, rows * n * n * b, flop), SPW_TO_PRODUCT(1, all, flop)},
                     .flop = flop,
                     .rate = SPW_HF_SMALL_PRODUCT});
    spw_tape_drop(t, between);
    const spw_value out = spw_hf_add(t, expanded, mixed, all);
    const spw_value names[] = {behind, expanded, mixed, made, mix.behind, mix.between, mix.collapsed};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

spw_value spw_hf_stream_head(spw_hf_model *m, spw_value streams) {
    spw_tape *t = m->tape;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_STREAMS);
    const spw_value made = project(m, m->stream_head, streams, m->shape->model->streams),
                    before = squash(m, m->stream_head, made, m->shape->model->streams);
    const spw_value out = collapse(m, before, streams);
    spw_tape_drop(t, before);
    spw_tape_drop(t, made);
    spw_tape_kind(t, kind);
    return out;
}
