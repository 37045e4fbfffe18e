/* fp8 on a CPU: the reference's quantiser, and its products of the numbers that codes stand for. */
#include "kernels/experts/experts_call.h"

#include "base/memory.h"
#include "reference/float8.h"
#include "reference/grouped_gemm.h"
#include "reference/swiglu.h"

#include <string.h>

/* What a call allocates; freed together. */
typedef struct arrays {
    float *left, *right, *sum;
    size_t *offset;
} arrays;

static void leave(arrays *a) { spw_free(a->left), spw_free(a->right), spw_free(a->sum), spw_free(a->offset); }

/* Room for `count` times rows x columns numbers. */
static spw_status room(size_t count, size_t rows, size_t columns, float **out) {
    size_t n = 0;
    if (!spw_mul_size(rows, columns, &n) || !spw_mul_size(n, count, &n) || n > SIZE_MAX / sizeof **out - 1)
        return spw_fail(SPW_EARG, "an array of %zu x %zu x %zu elements; fewer would be right", count, rows,
                        columns);
    return SPW_ALLOC(n + 1, out);
}

static size_t blocks(size_t count) { return count / SPW_FLOAT8_BLOCK + (count % SPW_FLOAT8_BLOCK != 0); }

static spw_status offsets(const spw_experts_call *c, arrays *a) {
    const int32_t *offset = c->operand[2];
    const spw_status status = SPW_ALLOC(c->experts + 1, &a->offset);
    if (status != SPW_OK) return status;
    for (size_t e = 0; e <= c->experts; e++) {
        if (offset[e] < (e == 0 ? 0 : offset[e - 1]) || (size_t)offset[e] > c->rows ||
            (e == 0 && offset[e] != 0))
            return spw_fail(SPW_EARG, "offset[%zu] is %d; 0, then growing, at most %zu would be right", e,
                            (int)offset[e], c->rows);
        a->offset[e] = (size_t)offset[e];
    }
    return SPW_OK;
}

/* Codes of the rows in `left`, in the forms that are wanted. */
static void code(const spw_experts_call *c, const arrays *a, size_t width) {
    if (c->result[0] != NULL)
        spw_float8_quantize_rows(a->left, a->offset[c->experts], width, c->result[0], c->result[1]);
    if (c->result[2] != NULL)
        spw_float8_quantize_columns((spw_float8_groups){c->experts, c->rows, a->offset}, a->left, width,
                                    c->result[2], c->result[3]);
}

static spw_status check_assignment(const spw_experts_call *c, const int32_t *assignment, size_t used) {
    for (size_t r = 0; assignment != NULL && r < used; r++)
        if (assignment[r] < 0 || (size_t)assignment[r] >= c->tokens * c->top_k)
            return spw_fail(SPW_EARG, "assignment[%zu] is %d; 0 to %zu would be right", r, (int)assignment[r],
                            c->tokens * c->top_k - 1);
    return SPW_OK;
}

static spw_status code_rows(const spw_experts_call *c, arrays *a) {
    spw_status status = SPW_OK;
    const int32_t *assignment = c->gathers != 0 ? c->operand[3] : NULL;
    SPW_TRY(offsets(c, a));
    const size_t used = a->offset[c->experts];
    SPW_TRY(check_assignment(c, assignment, used));
    SPW_TRY(room(1, c->rows, c->in, &a->left));
    for (size_t r = 0; r < used; r++) {
        const size_t from = assignment == NULL ? r : (size_t)assignment[r] / c->top_k;
        for (size_t i = 0; i < c->in; i++)
            a->left[r * c->in + i] = spw_experts_number(c, c->operand[0], from * c->in + i);
    }
    code(c, a, c->in);
cleanup:
    return status;
}

/* --- Activations --- */

/* As it would be stored. */
static float rounded(const spw_experts_call *c, float value) {
    union {
        float single;
        uint16_t half;
    } stored;
    spw_experts_put(c, &stored, 0, value);
    return spw_experts_number(c, &stored, 0);
}

/* A row of act into `left`, times the row's weight in a backward pass; parts of that weight's gradient. */
static void act_row(const spw_experts_call *c, size_t r, const float *gate, const float *up, float *left) {
    const float *weight = c->operand[4];
    float *sum = c->result[4];
    spw_ref_swiglu(spw_experts_swiglu(c), c->in, gate, up, left, NULL);
    for (size_t i = 0; sum != NULL && i < c->in; i++) {
        float *part = sum + i / SPW_EXPERTS_ROW_SUM_TILE * c->rows + r;
        *part = (i % SPW_EXPERTS_ROW_SUM_TILE == 0 ? 0 : *part) +
                left[i] * spw_experts_number(c, c->operand[1], r * c->in + i);
    }
    const float factor = weight == NULL ? 1 : weight[((const int32_t *)c->operand[3])[r]];
    for (size_t i = 0; i < c->in; i++) left[i] = rounded(c, factor * left[i]);
}

/* Of d_h, where gate and up lie. */
static void slope_row(const spw_experts_call *c, size_t r, float *gate, float *up, float *left) {
    const spw_experts_gate g = spw_experts_gate_of(c, c->in);
    const float weight = ((const float *)c->operand[4])[((const int32_t *)c->operand[3])[r]];
    for (size_t i = 0; i < c->in; i++) {
        const float d = weight * spw_experts_number(c, c->operand[1], r * c->in + i);
        spw_ref_swiglu_gradient(spw_experts_swiglu(c), 1, gate + i, up + i, &d,
                                (spw_swiglu_gradients){gate + i, up + i, NULL});
        if (g.up != 0) left[i * g.step + g.up] = rounded(c, up[i]);
        left[i * g.step] = rounded(c, gate[i]);
    }
}

static spw_status code_activation(const spw_experts_call *c, arrays *a) {
    spw_status status = SPW_OK;
    const spw_experts_gate g = spw_experts_gate_of(c, c->in);
    const bool slopes = c->operation == SPW_EXPERTS_FLOAT8_SLOPES;
    const size_t width = slopes ? g.wide : g.ffn;
    SPW_TRY(offsets(c, a));
    SPW_TRY(check_assignment(c, c->operand[3], a->offset[c->experts]));
    SPW_TRY(room(1, c->rows, width, &a->left));
    SPW_TRY(room(2, 1, c->in, &a->right));
    float *gate = a->right, *up = gate + c->in;
    for (size_t r = 0; r < a->offset[c->experts]; r++) {
        for (size_t i = 0; i < c->in; i++) {
            gate[i] = spw_experts_number(c, c->operand[0], r * g.wide + i * g.step);
            up[i] = spw_experts_number(c, c->operand[0], r * g.wide + i * g.step + g.up);
        }
        if (slopes)
            slope_row(c, r, gate, up, a->left + r * width);
        else
            act_row(c, r, gate, up, a->left + r * width);
    }
    code(c, a, width);
cleanup:
    return status;
}

/* --- Weights --- */

/* Codes and scales as w lies, or of its transpose, which are the same numbers. */
static void code_weights_of(const spw_experts_call *c, size_t expert, bool turned, float *w, void *codes,
                            void *scales) {
    const size_t count = c->in * c->out, down = turned ? c->in : c->out, across = turned ? c->out : c->in;
    if (codes == NULL) return;
    for (size_t i = 0; i < c->in; i++)
        for (size_t o = 0; o < c->out; o++)
            w[turned ? i * c->out + o : o * c->in + i] = spw_experts_number(
                c, c->operand[0], expert * count + (c->transposed != 0 ? o * c->in + i : i * c->out + o));
    spw_float8_quantize_tiles(w, down, across, (uint8_t *)codes + expert * count,
                              (float *)scales + expert * blocks(c->in) * blocks(c->out));
}

static spw_status code_weights(const spw_experts_call *c, arrays *a) {
    const spw_status status = room(1, c->in, c->out, &a->left);
    for (size_t e = 0; a->left != NULL && e < c->experts; e++) {
        code_weights_of(c, e, false, a->left, c->result[0], c->result[1]);
        code_weights_of(c, e, true, a->left, c->result[2], c->result[3]);
    }
    return status;
}

/* --- Products --- */

static spw_status product(const spw_experts_call *c, arrays *a) {
    spw_status status = SPW_OK;
    const size_t weights = c->in * c->out, scales = blocks(c->in) * blocks(c->out);
    SPW_TRY(offsets(c, a));
    SPW_TRY(room(1, c->rows, c->in, &a->left));
    SPW_TRY(room(c->experts, c->in, c->out, &a->right));
    SPW_TRY(room(1, c->rows, c->out, &a->sum));
    spw_float8_dequantize_rows(c->operand[0], c->operand[3], a->offset[c->experts], c->in, a->left);
    for (size_t e = 0; e < c->experts; e++)
        spw_float8_dequantize_tiles((const uint8_t *)c->operand[1] + e * weights,
                                    (const float *)c->operand[4] + e * scales, c->out, c->in,
                                    a->right + e * weights);
    SPW_TRY(spw_ref_grouped_gemm((spw_gemm_shape){c->experts, c->rows, c->in, c->out, true}, a->left,
                                 a->right, a->offset, a->sum, NULL));
    for (size_t i = 0; i < c->rows * c->out; i++) spw_experts_put(c, c->result[0], i, a->sum[i]);
cleanup:
    return status;
}

static spw_status weight_gradient(const spw_experts_call *c, arrays *a) {
    spw_status status = SPW_OK;
    const size_t count = c->experts * c->in * c->out;
    float *main = c->result[1];
    SPW_TRY(offsets(c, a));
    SPW_TRY(room(1, c->rows, c->in, &a->left));
    SPW_TRY(room(1, c->rows, c->out, &a->right));
    SPW_TRY(room(c->experts, c->in, c->out, &a->sum));
    const spw_float8_groups groups = {c->experts, c->rows, a->offset};
    spw_float8_dequantize_columns(groups, c->operand[0], c->operand[3], c->in, a->left);
    spw_float8_dequantize_columns(groups, c->operand[1], c->operand[4], c->out, a->right);
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(
        (spw_gemm_shape){c->experts, c->rows, c->in, c->out, c->transposed != 0}, a->left, a->right,
        a->offset, a->sum, NULL));
    for (size_t i = 0; i < count; i++)
        if (main != NULL)
            main[i] += a->sum[i];
        else
            spw_experts_put(c, c->result[0], i, a->sum[i]);
cleanup:
    return status;
}

spw_status spw_experts_float8_cpu(const spw_experts_call *c) {
    static spw_status (*const works[SPW_EXPERTS_OPERATIONS])(const spw_experts_call *, arrays *) = {
        [SPW_EXPERTS_FLOAT8_ROWS] = code_rows,
        [SPW_EXPERTS_FLOAT8_WEIGHTS] = code_weights,
        [SPW_EXPERTS_FLOAT8_PRODUCT] = product,
        [SPW_EXPERTS_FLOAT8_WEIGHT_GRADIENT] = weight_gradient,
        [SPW_EXPERTS_FLOAT8_ACTIVATION] = code_activation,
        [SPW_EXPERTS_FLOAT8_SLOPES] = code_activation,
    };
    arrays a = {NULL, NULL, NULL, NULL};
    const spw_status status = works[c->operation](c, &a);
    leave(&a);
    return status;
}
