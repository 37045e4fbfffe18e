/* The custom calls on the CPU: the reference behind them, and for exchanges a meeting of the devices' threads, in which
 * each takes from the buffers of the others what is its own. */
#include "kernels/jax/jax_calls.h"

#include "base/memory.h"
#include "kernels/jax/jax_experts.h"
#include "kernels/jax/jax_meeting.h"
#include "reference/bf16.h"
#include "reference/dispatch.h"
#include "reference/fp16.h"

#include <string.h>

/* --- Numbers as the reference wants them: fp32 --- */

/* `data` itself where it is fp32, else a copy, which *copy owns. */
static spw_status as_float(const void *data, spw_jax_type type, size_t count, float **copy,
                           const float **out) {
    *copy = NULL, *out = data;
    if (type == SPW_JAX_F32) return SPW_OK;
    const spw_status status = SPW_ALLOC(count, copy);
    if (status != SPW_OK) return status;
    const uint16_t *bits = data;
    for (size_t i = 0; i < count; i++)
        (*copy)[i] = type == SPW_JAX_F16 ? spw_fp16_to_float(bits[i]) : spw_bf16_to_float(bits[i]);
    *out = *copy;
    return SPW_OK;
}

/* Where a result of `count` numbers is to be formed: `data` itself, or *copy, to be rounded into it by round_into. */
static spw_status float_room(void *data, spw_jax_type type, size_t count, float **copy, float **out) {
    *copy = NULL, *out = data;
    if (type == SPW_JAX_F32) return SPW_OK;
    const spw_status status = SPW_ALLOC(count, copy);
    if (status == SPW_OK) *out = *copy;
    return status;
}

static void round_into(void *data, spw_jax_type type, const float *copy, size_t count) {
    uint16_t *bits = data;
    for (size_t i = 0; copy != NULL && i < count; i++)
        bits[i] = type == SPW_JAX_F16 ? spw_fp16_from_float(copy[i]) : spw_bf16_from_float(copy[i]);
}

static spw_status product(size_t a, size_t b, size_t *out) {
    if (spw_mul_size(a, b, out)) return SPW_OK;
    return spw_fail(SPW_EARG, "an array of %zu x %zu elements; fewer would be right", a, b);
}

/* --- Grouped GEMM --- */

static spw_status offsets_of(const spw_jax_gemm *g, size_t *offset) {
    offset[0] = 0;
    for (size_t e = 0; e < g->shape.experts; e++) {
        if (g->size[e] < 0 || (size_t)g->size[e] > g->shape.rows - offset[e])
            return spw_fail(
                SPW_EARG,
                "group_sizes[%zu] is %d, where %zu of %zu rows are taken; sizes of 0 or more with a sum "
                "of at most %zu would be right",
                e, (int)g->size[e], offset[e], g->shape.rows, g->shape.rows);
        offset[e + 1] = offset[e] + (size_t)g->size[e];
    }
    for (size_t e = 0; e <= g->shape.experts; e++) g->offset[e] = (int32_t)offset[e];
    return SPW_OK;
}

typedef spw_status gemm_function(spw_gemm_shape shape, const float *left, const float *right,
                                 const size_t *offset, float *result, float *scale);
static gemm_function *const gemm_functions[] = {
    [SPW_JAX_FORWARD] = spw_ref_grouped_gemm,
    [SPW_JAX_INPUT] = spw_ref_grouped_gemm_input_gradient,
    [SPW_JAX_WEIGHT] = spw_ref_grouped_gemm_weight_gradient,
};

static spw_status gemm(const XLA_FFI_CallFrame *frame, unsigned kind) {
    spw_jax_gemm g;
    float *left_copy = NULL, *right_copy = NULL, *result_copy = NULL, *result = NULL;
    const float *left = NULL, *right = NULL;
    size_t *offset = NULL, matrix = 0, of_x = 0, of_y = 0, of_w = 0;
    spw_status status = spw_jax_read_gemm(frame, kind, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(product(g.shape.in, g.shape.out, &matrix));
    SPW_TRY(product(matrix, g.shape.experts, &of_w));
    SPW_TRY(product(g.shape.rows, g.shape.in, &of_x));
    SPW_TRY(product(g.shape.rows, g.shape.out, &of_y));
    const size_t count[3][3] = {{of_x, of_w, of_y}, {of_y, of_w, of_x}, {of_x, of_y, of_w}};
    SPW_TRY(SPW_ALLOC(g.shape.experts + 1, &offset));
    SPW_TRY(offsets_of(&g, offset));
    SPW_TRY(as_float(g.left, g.type, count[kind][0], &left_copy, &left));
    SPW_TRY(as_float(g.right, g.type, count[kind][1], &right_copy, &right));
    SPW_TRY(float_room(g.result, g.type, count[kind][2], &result_copy, &result));
    SPW_TRY(gemm_functions[kind](g.shape, left, right, offset, result, NULL));
    round_into(g.result, g.type, result_copy, count[kind][2]);
cleanup:
    spw_free(left_copy), spw_free(right_copy), spw_free(result_copy), spw_free(offset);
    return status;
}

/* --- Exchanges --- */

/* What a rank brings: its call, its rows in fp32 where they are to be added, and the plan of all that the leader makes. */
typedef struct cpu_part {
    spw_jax_exchange call;
    const float *rows;
    spw_dispatch_plan plan; /* of rank 0's part: for all */
} cpu_part;

static const cpu_part *part_of(void *const *part, size_t rank) { return part[rank]; }

/* All ranks came with the same shapes. */
static spw_status same_shapes(void *const *part, const spw_jax_group *g) {
    const spw_jax_exchange *a = &part_of(part, 0)->call;
    for (size_t r = 1; r < g->ranks; r++) {
        const spw_jax_exchange *b = &part_of(part, r)->call;
        if (a->kind != b->kind || a->tokens != b->tokens || a->top_k != b->top_k || a->hidden != b->hidden ||
            a->rows_max != b->rows_max || a->experts != b->experts || a->type != b->type)
            return spw_fail(
                SPW_EARG,
                "rank %zu came with %zu tokens x %zu, %zu rows, rank 0 with %zu x %zu, %zu; the same call "
                "on every rank would be right",
                r, b->tokens, b->hidden, b->rows_max, a->tokens, a->hidden, a->rows_max);
    }
    return SPW_OK;
}

static spw_status plan_for_all(void *const *part, const spw_jax_group *g) {
    spw_status status = same_shapes(part, g);
    if (status != SPW_OK) return status;
    const spw_jax_exchange *a = &part_of(part, 0)->call;
    const size_t choices = a->tokens * a->top_k;
    int32_t *expert = NULL;
    SPW_TRY(SPW_ALLOC(g->ranks * choices, &expert));
    for (size_t r = 0; r < g->ranks; r++)
        memcpy(expert + r * choices, part_of(part, r)->call.expert, choices * sizeof *expert);
    SPW_TRY(spw_ref_dispatch_create(g->ranks, a->tokens, a->top_k, a->experts, expert,
                                    &((cpu_part *)part[0])->plan));
cleanup:
    spw_free(expert);
    return status;
}

/* A row's choices of the experts of rank d: counted from 0, and their weights. */
static void take_choices(const spw_jax_exchange *own, const spw_jax_exchange *from, size_t token,
                         size_t row) {
    const size_t k = own->top_k, local = own->experts / own->group.ranks;
    int32_t *row_expert = (int32_t *)own->row_expert + row * k;
    float *row_weight = (float *)own->row_weight + row * k;
    for (size_t i = 0; i < k; i++) {
        const int64_t expert =
            ((const int32_t *)from->expert)[token * k + i] - (int64_t)(own->group.rank * local);
        const int mine =
            ((const int32_t *)from->expert)[token * k + i] >= 0 && expert >= 0 && expert < (int64_t)local;
        row_expert[i] = mine ? (int32_t)expert : -1;
        row_weight[i] = mine ? ((const float *)from->weight)[token * k + i] : 0;
    }
}

static void take_dispatch(const spw_jax_exchange *own, void *const *part) {
    const spw_dispatch_plan *p = &part_of(part, 0)->plan;
    const size_t d = own->group.rank, ranks = p->ranks, width = own->hidden * spw_jax_type_bytes(own->type);
    const size_t *begin = p->first + d * (ranks + 1);
    int32_t *source = (int32_t *)own->source, *first = (int32_t *)own->first, *base = (int32_t *)own->base;
    for (size_t s = 0; s <= ranks; s++) first[s] = (int32_t)begin[s];
    for (size_t to = 0; to < ranks; to++) base[to] = (int32_t)p->first[to * (ranks + 1) + d];
    memcpy((void *)own->place, p->place + d * p->tokens * ranks, p->tokens * ranks * sizeof *p->place);
    for (size_t r = 0; r < own->rows_max; r++) {
        char *row = (char *)own->rows + r * width;
        source[r] = -1;
        if (r < begin[ranks]) {
            const size_t item = (size_t)p->item[d * ranks * p->tokens + r], token = item % p->tokens;
            const spw_jax_exchange *from = &part_of(part, item / p->tokens)->call;
            memcpy(row, (const char *)from->token_rows + token * width, width);
            take_choices(own, from, token, r);
            source[r] = (int32_t)token;
            continue;
        }
        memset(row, 0, width);
        for (size_t i = 0; i < own->top_k; i++) {
            ((int32_t *)own->row_expert)[r * own->top_k + i] = -1;
            ((float *)own->row_weight)[r * own->top_k + i] = 0;
        }
    }
}

static spw_status dispatch(const XLA_FFI_CallFrame *frame) {
    spw_jax_meeting *meeting = NULL;
    cpu_part own = {0};
    spw_status status = spw_jax_read_exchange(frame, SPW_JAX_DISPATCH, &own.call);
    if (status != SPW_OK) return status;
    SPW_TRY(spw_jax_meet(&own.call.group, &own, plan_for_all, &meeting));
    take_dispatch(&own.call, spw_jax_meeting_parts(meeting));
    status = spw_jax_leave(meeting, &own.call.group, SPW_OK);
cleanup:
    spw_ref_dispatch_destroy(&own.plan);
    return status;
}

/* The row of rank d where a token of `from` lies, or -1: nowhere, or beyond the buffer. */
static int64_t row_of(const spw_jax_exchange *from, size_t token, size_t d) {
    const int32_t place = ((const int32_t *)from->place)[token * from->group.ranks + d];
    const int64_t row = (int64_t)((const int32_t *)from->base)[d] + place;
    return place >= 0 && row >= 0 && row < (int64_t)from->rows_max ? row : -1;
}

/* y[t] = the sum of what the ranks hold for t, by the reference: seen from the one rank that is its source. */
static void take_sums(const spw_jax_exchange *own, int32_t *place, size_t *first, size_t width,
                      const float *const *rows, float *y) {
    const size_t ranks = own->group.ranks;
    for (size_t i = 0; i < own->tokens * ranks; i++) place[i] = (int32_t)row_of(own, i / ranks, i % ranks);
    const spw_dispatch_plan seen = {
        .ranks = ranks, .tokens = own->tokens, .first = first /* zeros */, .place = place};
    spw_ref_dispatch_combine(&seen, 0, width, rows, y, NULL);
}

static spw_status combine(const XLA_FFI_CallFrame *frame, unsigned kind) {
    spw_jax_meeting *meeting = NULL;
    cpu_part own = {0};
    float *rows_copy = NULL, *y_copy = NULL, *y = NULL;
    const float *rows[SPW_JAX_RANKS_MAX], *weights[SPW_JAX_RANKS_MAX];
    int32_t *place = NULL;
    size_t *first = NULL;
    spw_status status = spw_jax_read_exchange(frame, kind, &own.call);
    if (status != SPW_OK) return status;
    const spw_jax_exchange *e = &own.call;
    const size_t ranks = e->group.ranks, count = e->tokens * e->hidden;
    SPW_TRY(as_float(e->rows, e->type, e->rows_max * e->hidden, &rows_copy, &own.rows));
    SPW_TRY(float_room((void *)e->token_rows, e->type, count, &y_copy, &y));
    SPW_TRY(SPW_ALLOC(e->tokens * ranks, &place));
    SPW_TRY(SPW_ALLOC(ranks * (ranks + 1), &first));
    SPW_TRY(spw_jax_meet(&e->group, &own, same_shapes, &meeting));
    for (size_t r = 0; r < ranks; r++) {
        rows[r] = part_of(spw_jax_meeting_parts(meeting), r)->rows;
        weights[r] = part_of(spw_jax_meeting_parts(meeting), r)->call.row_weight;
    }
    take_sums(e, place, first, e->hidden, rows, y);
    if (kind == SPW_JAX_DISPATCH_GRADIENT) take_sums(e, place, first, e->top_k, weights, (float *)e->weight);
    round_into((void *)e->token_rows, e->type, y_copy, count);
    status = spw_jax_leave(meeting, &e->group, SPW_OK);
cleanup:
    spw_free(rows_copy), spw_free(y_copy), spw_free(place), spw_free(first);
    return status;
}

static spw_status combine_gradient(const XLA_FFI_CallFrame *frame) {
    spw_jax_meeting *meeting = NULL;
    cpu_part own = {0};
    spw_status status = spw_jax_read_exchange(frame, SPW_JAX_COMBINE_GRADIENT, &own.call);
    if (status != SPW_OK) return status;
    const spw_jax_exchange *e = &own.call;
    const size_t width = e->hidden * spw_jax_type_bytes(e->type);
    status = spw_jax_meet(&e->group, &own, same_shapes, &meeting);
    if (status != SPW_OK) return status;
    memset((void *)e->rows, 0, e->rows_max * width);
    for (size_t s = 0; s < e->group.ranks; s++) {
        const spw_jax_exchange *from = &part_of(spw_jax_meeting_parts(meeting), s)->call;
        for (size_t t = 0; t < e->tokens; t++) {
            const int64_t row = row_of(from, t, e->group.rank);
            if (row < 0) continue;
            memcpy((char *)e->rows + (size_t)row * width, (const char *)from->token_rows + t * width, width);
        }
    }
    return spw_jax_leave(meeting, &e->group, SPW_OK);
}

static spw_status exchange(const XLA_FFI_CallFrame *frame, unsigned kind) {
    if (kind == SPW_JAX_DISPATCH) return dispatch(frame);
    if (kind == SPW_JAX_COMBINE_GRADIENT) return combine_gradient(frame);
    return combine(frame, kind);
}

/* --- Expert layers --- */

static spw_status experts(const XLA_FFI_CallFrame *frame, unsigned operation) {
    spw_experts_call call;
    const spw_status status = spw_jax_read_experts(frame, operation, &call);
    return status == SPW_OK ? spw_experts_run(&call) : status;
}

SPW_JAX_HANDLERS(cpu, gemm, exchange)
SPW_JAX_EXPERTS_HANDLERS(cpu, experts)
