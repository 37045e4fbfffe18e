/* The operations on a CPU: the reference, in fp32 between arrays, each number rounded once where it is stored. */
#include "kernels/experts/experts_call.h"

#include "base/memory.h"
#include "kernels/gemm/grouped_gemm_strides.h"
#include "reference/bf16.h"
#include "reference/fp16.h"
#include "reference/grouped_gemm.h"
#include "reference/swiglu.h"

#include <stdint.h>
#include <string.h>

/* --- Arrays as fp32 --- */

/* Copies that a call makes; freed together. */
typedef struct scratch {
    void *memory[16];
    size_t count;
    spw_status status;
} scratch;

static void *room(scratch *s, size_t rows, size_t columns, size_t size) {
    size_t n = 0;
    unsigned char *at = NULL;
    if (s->status != SPW_OK) return NULL;
    if (!spw_mul_size(rows, columns, &n) || !spw_mul_size(n, size, &n)) {
        s->status = spw_fail(SPW_EARG, "an array of %zu x %zu elements; fewer would be right", rows, columns);
        return NULL;
    }
    s->status = SPW_ALLOC(n + 1, &at);
    if (s->status == SPW_OK) s->memory[s->count++] = at;
    return at;
}

static void leave(scratch *s) {
    for (size_t i = 0; i < s->count; i++) spw_free(s->memory[i]);
}

float spw_experts_number(const spw_experts_call *c, const void *from, size_t i) {
    if (c->element == SPW_EXPERTS_FP32) return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return c->element == SPW_EXPERTS_FP16 ? spw_fp16_to_float(bits) : spw_bf16_to_float(bits);
}

void spw_experts_put(const spw_experts_call *c, void *to, size_t i, float value) {
    if (c->element == SPW_EXPERTS_FP32)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] =
            c->element == SPW_EXPERTS_FP16 ? spw_fp16_from_float(value) : spw_bf16_from_float(value);
}

/* Rows in memory, and matrices of them, one an expert. */
typedef struct layout {
    size_t width, row, height, expert;
} layout;

/* said: the stride, 0: packed. */
static layout rows_of(scratch *s, const char *what, size_t width, size_t said) {
    if (said != 0 && said < width && s->status == SPW_OK)
        s->status =
            spw_fail(SPW_EARG, "%s: rows of %zu elements are %zu apart; at least as many would be right",
                     what, width, said);
    return (layout){width, said == 0 ? width : said, SIZE_MAX, 0};
}
/* Of w and dw. */
static layout matrices_of(scratch *s, const spw_experts_call *c, const char *what, size_t said) {
    layout l = rows_of(s, what, c->transposed != 0 ? c->in : c->out, said);
    l.height = c->transposed != 0 ? c->out : c->in;
    l.expert = c->stride.expert != 0 ? c->stride.expert : l.height * l.row;
    if (s->status == SPW_OK && !spw_gemm_experts_fit(c->experts, l.height, l.width, l.row, l.expert))
        s->status =
            spw_fail(SPW_EARG, "%s: matrices of experts, %zu elements apart, overlap; more would be right",
                     what, l.expert);
    return l;
}
/* Where row r begins, of all experts' rows. */
static size_t row_at(layout l, size_t r) { return r / l.height * l.expert + r % l.height * l.row; }

/* `rows` rows of an array; row r is row from[r] / top_k where from is given. Rows that no expert has become 0. */
static float *gathered(scratch *s, const spw_experts_call *c, const void *array, size_t rows, layout l,
                       const int32_t *from) {
    float *copy = room(s, rows, l.width, sizeof *copy);
    if (copy == NULL) return NULL;
    const size_t used = from == NULL ? rows : (size_t)((const int32_t *)c->operand[2])[c->experts];
    for (size_t r = 0; r < used; r++) {
        const size_t at = row_at(l, from == NULL ? r : (size_t)from[r] / c->top_k);
        for (size_t i = 0; i < l.width; i++) copy[r * l.width + i] = spw_experts_number(c, array, at + i);
    }
    for (size_t i = used * l.width; i < rows * l.width; i++) copy[i] = 0;
    return copy;
}
static float *weights(scratch *s, const spw_experts_call *c) {
    const layout l = matrices_of(s, c, "the right operand", c->stride.right);
    return gathered(s, c, c->operand[1], c->experts * l.height, l, NULL);
}

static void store(const spw_experts_call *c, void *to, layout l, const float *from, size_t rows) {
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < l.width; i++) spw_experts_put(c, to, row_at(l, r) + i, from[r * l.width + i]);
}

/* --- Rows --- */

static spw_status check_offset(const spw_experts_call *c) {
    const int32_t *offset = c->operand[2];
    for (size_t e = 0; e <= c->experts; e++)
        if (offset[e] < (e == 0 ? 0 : offset[e - 1]) || (size_t)offset[e] > c->rows ||
            (e == 0 && offset[e] != 0))
            return spw_fail(SPW_EARG, "offset[%zu] is %d; 0, then growing, at most %zu would be right", e,
                            (int)offset[e], c->rows);
    return SPW_OK;
}

/* The rows' assignments where they lead to rows of the array that is gathered. */
static spw_status check_assignment(const spw_experts_call *c, const int32_t *assignment, size_t choices) {
    const size_t used = (size_t)((const int32_t *)c->operand[2])[c->experts];
    for (size_t r = 0; assignment != NULL && r < used; r++)
        if (assignment[r] < 0 || (size_t)assignment[r] >= choices)
            return spw_fail(SPW_EARG, "assignment[%zu] is %d; 0 to %zu would be right", r, (int)assignment[r],
                            choices - 1);
    return SPW_OK;
}

static spw_status plan(const spw_experts_call *c) {
    const int32_t *expert = c->operand[0];
    int32_t *row = c->result[0], *assignment = c->result[1], *offset = c->result[2];
    const size_t choices = c->tokens * c->top_k;
    for (size_t i = 0; i < choices; i++)
        if (expert[i] >= 0 && (size_t)expert[i] >= c->experts)
            return spw_fail(SPW_EARG, "expert %d of choice %zu; below %zu, or negative, would be right",
                            (int)expert[i], i, c->experts);
    memset(offset, 0, (c->experts + 1) * sizeof *offset);
    for (size_t i = 0; i < choices; i++)
        if (expert[i] >= 0) offset[expert[i] + 1]++;
    for (size_t e = 0; e < c->experts; e++) offset[e + 1] += offset[e];
    int32_t *next = c->result[3]; /* scratch of at least as many numbers as there are experts */
    memcpy(next, offset, c->experts * sizeof *next);
    for (size_t i = 0; i < choices; i++) {
        row[i] = expert[i] < 0 ? -1 : next[expert[i]]++;
        if (row[i] >= 0) assignment[row[i]] = (int32_t)i;
    }
    return SPW_OK;
}

static spw_status check_row(const spw_experts_call *c) {
    const int32_t *row = c->operand[1];
    for (size_t i = 0; i < c->tokens * c->top_k; i++)
        if (row[i] >= 0 && (size_t)row[i] >= c->rows)
            return spw_fail(SPW_EARG, "row %d of choice %zu; below %zu would be right", (int)row[i], i,
                            c->rows);
    return SPW_OK;
}

static spw_status combine(const spw_experts_call *c) {
    const int32_t *row = c->operand[1];
    const float *weight = c->operand[2];
    const spw_status status = check_row(c);
    if (status != SPW_OK) return status;
    for (size_t t = 0; t < c->tokens; t++)
        for (size_t i = 0; i < c->in; i++) {
            double sum = 0;
            for (size_t k = t * c->top_k; k < (t + 1) * c->top_k; k++)
                if (row[k] >= 0)
                    sum += (double)(weight == NULL ? 1 : weight[k]) *
                           (double)spw_experts_number(c, c->operand[0], (size_t)row[k] * c->in + i);
            spw_experts_put(c, c->result[0], t * c->in + i, (float)sum);
        }
    return SPW_OK;
}

static spw_status row_sums(const spw_experts_call *c) {
    const float *part = c->operand[0];
    const int32_t *row = c->operand[1];
    float *d_weight = c->result[0];
    const spw_status status = check_row(c);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < c->tokens * c->top_k; i++) {
        double sum = 0;
        for (size_t p = 0; row[i] >= 0 && p < c->out; p++) sum += (double)part[p * c->rows + (size_t)row[i]];
        d_weight[i] = (float)sum;
    }
    return SPW_OK;
}

/* --- Products --- */

/* Shape, and offsets as the reference takes them. */
typedef struct product {
    spw_gemm_shape shape;
    size_t *offset;
} product;

static product product_of(scratch *s, const spw_experts_call *c) {
    product p = {{.experts = c->experts,
                  .rows = c->rows,
                  .in = c->in,
                  .out = c->out,
                  .transposed = c->transposed != 0},
                 room(s, c->experts + 1, 1, sizeof(size_t))};
    if (p.offset == NULL || s->status != SPW_OK) return p;
    s->status = check_offset(c);
    for (size_t e = 0; s->status == SPW_OK && e <= c->experts; e++)
        p.offset[e] = (size_t)((const int32_t *)c->operand[2])[e];
    return p;
}

static layout left_of(scratch *s, const spw_experts_call *c, size_t width) {
    return rows_of(s, "the left operand", width, c->stride.left);
}
static layout result_of(scratch *s, const spw_experts_call *c, size_t width) {
    return rows_of(s, "the result", width, c->stride.result);
}

static void forward(scratch *s, const spw_experts_call *c) {
    const product p = product_of(s, c);
    const layout result = result_of(s, c, c->out);
    const float *x = gathered(s, c, c->operand[0], c->rows, left_of(s, c, c->in), NULL);
    const float *w = weights(s, c);
    float *y = room(s, c->rows, c->out, sizeof *y);
    if (s->status == SPW_OK) s->status = spw_ref_grouped_gemm(p.shape, x, w, p.offset, y, NULL);
    if (s->status == SPW_OK) store(c, c->result[0], result, y, c->rows);
}

static void input_gradient(scratch *s, const spw_experts_call *c) {
    const product p = product_of(s, c);
    const layout result = result_of(s, c, c->in);
    const float *dy = gathered(s, c, c->operand[0], c->rows, left_of(s, c, c->out), NULL);
    const float *w = weights(s, c);
    float *dx = room(s, c->rows, c->in, sizeof *dx);
    if (s->status == SPW_OK)
        s->status = spw_ref_grouped_gemm_input_gradient(p.shape, dy, w, p.offset, dx, NULL);
    if (s->status == SPW_OK) store(c, c->result[0], result, dx, c->rows);
}

static void weight_gradient(scratch *s, const spw_experts_call *c) {
    const product p = product_of(s, c);
    const int32_t *from = c->gathers != 0 ? c->operand[3] : NULL;
    const layout result = matrices_of(s, c, "the result", c->stride.result),
                 right = rows_of(s, "the right operand", c->out, c->stride.right);
    if (s->status == SPW_OK) s->status = check_assignment(c, from, c->tokens * c->top_k);
    const float *x =
        gathered(s, c, c->operand[0], c->rows, left_of(s, c, c->in), c->gathers == 1 ? from : NULL);
    const float *dy = gathered(s, c, c->operand[1], c->rows, right, c->gathers == 2 ? from : NULL);
    float *dw = room(s, c->experts * c->in, c->out, sizeof *dw), *main = c->result[1];
    if (s->status == SPW_OK)
        s->status = spw_ref_grouped_gemm_weight_gradient(p.shape, x, dy, p.offset, dw, NULL);
    if (s->status != SPW_OK) return;
    if (c->result[0] != NULL) store(c, c->result[0], result, dw, c->experts * result.height);
    for (size_t r = 0; c->result[0] == NULL && r < c->experts * result.height; r++)
        for (size_t i = 0; i < result.width; i++) main[row_at(result, r) + i] += dw[r * result.width + i];
}

static void add_bias(const spw_experts_call *c, const size_t *offset, float *h) {
    for (size_t e = 0; c->operand[4] != NULL && e < c->experts; e++)
        for (size_t r = offset[e]; r < offset[e + 1]; r++)
            for (size_t o = 0; o < c->out; o++)
                h[r * c->out + o] += spw_experts_number(c, c->operand[4], e * c->out + o);
}

static void up(scratch *s, const spw_experts_call *c) {
    const product p = product_of(s, c);
    const spw_experts_gate g =
        spw_experts_gate_of(c, c->activation == SPW_EXPERTS_RELU2 ? c->out : c->out / 2);
    const int32_t *from = c->gathers != 0 ? c->operand[3] : NULL;
    if (s->status == SPW_OK) s->status = check_assignment(c, from, c->tokens * c->top_k);
    const layout h_rows = rows_of(s, "h", c->out, c->stride.h), act_rows = result_of(s, c, g.ffn);
    const float *x = gathered(s, c, c->operand[0], c->rows, left_of(s, c, c->in), from);
    const float *w = weights(s, c);
    float *h = room(s, c->rows, c->out, sizeof *h), *act = room(s, c->rows, g.ffn, sizeof *act);
    if (s->status == SPW_OK) s->status = spw_ref_grouped_gemm(p.shape, x, w, p.offset, h, NULL);
    if (s->status != SPW_OK) return;
    add_bias(c, p.offset, h);
    for (size_t r = 0; r < c->rows; r++)
        for (size_t i = 0; i < g.ffn; i++) {
            const float *gate = h + r * g.wide + i * g.step;
            spw_ref_swiglu(spw_experts_swiglu(c), 1, gate, gate + g.up, act + r * g.ffn + i, NULL);
        }
    store(c, c->result[0], h_rows, h, c->rows), store(c, c->result[1], act_rows, act, c->rows);
}

/* Rows of a gradient of the activation. */
typedef struct down_layouts {
    layout h, d_h, act;
} down_layouts;

/* One of them; s: the sums of dy w. */
static void down_gradient_row(const spw_experts_call *c, down_layouts l, size_t r, float weight,
                              const float *s) {
    const spw_experts_gate g = spw_experts_gate_of(c, c->in);
    const spw_swiglu kind = spw_experts_swiglu(c);
    for (size_t i = 0; i < g.ffn; i++) {
        const size_t h = r * l.h.row + i * g.step, at = r * l.d_h.row + i * g.step;
        const float gate = spw_experts_number(c, c->operand[4], h),
                    up = spw_experts_number(c, c->operand[4], h + g.up), d = s[i] * weight;
        float act, d_gate, d_up;
        spw_ref_swiglu(kind, 1, &gate, &up, &act, NULL);
        spw_ref_swiglu_gradient(kind, 1, &gate, &up, &d, (spw_swiglu_gradients){&d_gate, &d_up, NULL});
        if (g.up != 0) spw_experts_put(c, c->result[0], at + g.up, d_up);
        spw_experts_put(c, c->result[0], at, d_gate);
        spw_experts_put(c, c->result[1], r * l.act.row + i, weight * act);
        ((float *)c->result[2])[i / SPW_EXPERTS_ROW_SUM_TILE * c->rows + r] += s[i] * act;
    }
}

static void down_gradient(scratch *s, const spw_experts_call *c) {
    const product p = product_of(s, c);
    const int32_t *assignment = c->operand[3];
    const float *weight = c->operand[5];
    if (s->status == SPW_OK) s->status = check_assignment(c, assignment, c->tokens * c->top_k);
    const size_t wide = spw_experts_gate_of(c, c->in).wide;
    const down_layouts l = {rows_of(s, "h", wide, c->stride.h), rows_of(s, "d_h", wide, c->stride.d_h),
                            result_of(s, c, c->in)};
    const float *dy =
        gathered(s, c, c->operand[0], c->rows, left_of(s, c, c->out), c->gathers != 0 ? assignment : NULL);
    const float *w = weights(s, c);
    float *sum = room(s, c->rows, c->in, sizeof *sum);
    if (s->status == SPW_OK)
        s->status = spw_ref_grouped_gemm_input_gradient(p.shape, dy, w, p.offset, sum, NULL);
    if (s->status != SPW_OK || p.offset == NULL) return;
    const size_t used = p.offset[c->experts];
    for (size_t r = used; r < c->rows; r++) {
        for (size_t i = 0; i < wide; i++) spw_experts_put(c, c->result[0], r * l.d_h.row + i, 0);
        for (size_t i = 0; i < c->in; i++) spw_experts_put(c, c->result[1], r * l.act.row + i, 0);
    }
    memset(c->result[2], 0,
           (c->in + SPW_EXPERTS_ROW_SUM_TILE - 1) / SPW_EXPERTS_ROW_SUM_TILE * c->rows * sizeof(float));
    for (size_t r = 0; r < used; r++) down_gradient_row(c, l, r, weight[assignment[r]], sum + r * c->in);
}

spw_status spw_experts_cpu(const spw_experts_call *c) {
    static void (*const products[SPW_EXPERTS_OPERATIONS])(scratch *, const spw_experts_call *) = {
        [SPW_EXPERTS_FORWARD] = forward,
        [SPW_EXPERTS_INPUT_GRADIENT] = input_gradient,
        [SPW_EXPERTS_WEIGHT_GRADIENT] = weight_gradient,
        [SPW_EXPERTS_UP] = up,
        [SPW_EXPERTS_DOWN_GRADIENT] = down_gradient,
    };
    scratch s = {.status = SPW_OK};
    switch (c->operation) {
    case SPW_EXPERTS_PLAN: return plan(c);
    case SPW_EXPERTS_COMBINE: return combine(c);
    case SPW_EXPERTS_ROW_SUMS: return row_sums(c);
    default: products[c->operation](&s, c);
    }
    leave(&s);
    return s.status;
}
