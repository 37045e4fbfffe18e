#include "reference/combine.h"
#include "reference/grouped_gemm.h"
#include "reference/plan.h"
#include "reference/router.h"
#include "reference/swiglu.h"
#include "sim/library/comparison.h"
#include "sim/library/gate.h"

#include <string.h>

typedef spw_status product_function(spw_gemm_shape shape, const float *left, const float *right,
                                    const size_t *offset, float *result, float *scale);
static product_function *const products[] = {
    [SPW_PRODUCT_FORWARD] = spw_ref_grouped_gemm,
    [SPW_PRODUCT_INPUT_GRADIENT] = spw_ref_grouped_gemm_input_gradient,
    [SPW_PRODUCT_WEIGHT_GRADIENT] = spw_ref_grouped_gemm_weight_gradient,
};

/* An array of no elements may be NULL. */
static spw_status check_product(spw_product product, const spw_product_shape *shape, const float *left,
                                const float *right, const size_t *offset, const float *result) {
    static const char function[] = "spw_compute_product";
    const spw_status status = spw_check_given(function, (spw_given[]){{"shape", shape}, {NULL, NULL}});
    if (status != SPW_OK) return status;
    const int x = shape->rows > 0 && shape->in > 0, y = shape->rows > 0 && shape->out > 0,
              w = shape->experts > 0 && shape->in > 0 && shape->out > 0;
    const int has[][3] = {[SPW_PRODUCT_FORWARD] = {x, w, y},
                          [SPW_PRODUCT_INPUT_GRADIENT] = {y, w, x},
                          [SPW_PRODUCT_WEIGHT_GRADIENT] = {x, y, w}};
    return spw_check_given(function, (spw_given[]){{"left", spw_array(left, has[product][0])},
                                                   {"right", spw_array(right, has[product][1])},
                                                   {"offset", offset},
                                                   {"result", spw_array(result, has[product][2])},
                                                   {NULL, NULL}});
}

spw_code spw_compute_product(spw_product product, const spw_product_shape *shape, const float *left,
                             const float *right, const size_t *offset, float *result, float *scale) {
    if ((unsigned)product >= sizeof products / sizeof *products)
        return (spw_code)spw_fail(SPW_EARG, "product %d: forward is 0, the gradients are 1 and 2",
                                  (int)product);
    const spw_status given = check_product(product, shape, left, right, offset, result);
    if (given != SPW_OK) return (spw_code)given;
    spw_gate_watch_forks();
    const spw_gemm_shape own = {.experts = shape->experts,
                                .rows = shape->rows,
                                .in = shape->in,
                                .out = shape->out,
                                .transposed = shape->transposed != 0};
    return (spw_code)products[product](own, left, right, offset, result, scale);
}

spw_code spw_compute_swiglu(size_t count, const float *gate, const float *up, float *act, float *scale) {
    const spw_status given = spw_check_given(__func__, (spw_given[]){{"gate", spw_array(gate, count > 0)},
                                                                     {"up", spw_array(up, count > 0)},
                                                                     {"act", spw_array(act, count > 0)},
                                                                     {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    spw_gate_watch_forks();
    spw_ref_swiglu((spw_swiglu){.limit = 0}, count, gate, up, act, scale);
    return SPW_CODE_OK;
}

spw_code spw_compute_swiglu_gradient(size_t count, const float *gate, const float *up, const float *d_act,
                                     float *d_gate, float *d_up, float *gate_scale) {
    const spw_status given = spw_check_given(__func__, (spw_given[]){{"gate", spw_array(gate, count > 0)},
                                                                     {"up", spw_array(up, count > 0)},
                                                                     {"d_act", spw_array(d_act, count > 0)},
                                                                     {"d_gate", spw_array(d_gate, count > 0)},
                                                                     {"d_up", spw_array(d_up, count > 0)},
                                                                     {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    spw_gate_watch_forks();
    spw_ref_swiglu_gradient((spw_swiglu){.limit = 0}, count, gate, up, d_act,
                            (spw_swiglu_gradients){d_gate, d_up, gate_scale});
    return SPW_CODE_OK;
}

spw_code spw_compute_router(size_t tokens, size_t experts, size_t top_k, int sigmoid, int renormalize,
                            const float *logits, float *score, int32_t *expert, float *weight) {
    const spw_status given =
        spw_check_given(__func__, (spw_given[]){{"logits", spw_array(logits, tokens > 0 && experts > 0)},
                                                {"score", spw_array(score, tokens > 0 && experts > 0)},
                                                {"expert", spw_array(expert, tokens > 0 && top_k > 0)},
                                                {"weight", spw_array(weight, tokens > 0 && top_k > 0)},
                                                {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    spw_gate_watch_forks();
    const spw_router router = {.tokens = tokens,
                               .experts = experts,
                               .top_k = top_k,
                               .score = sigmoid ? SPW_SCORE_SIGMOID : SPW_SCORE_SOFTMAX,
                               .groups = 1,
                               .groups_kept = 1,
                               .group_terms = 1,
                               .renormalize = renormalize != 0,
                               .scaling = 1.0F};
    return (spw_code)spw_ref_router(&router, logits, NULL, score, expert, weight);
}

spw_code spw_compute_order(size_t tokens, size_t top_k, size_t experts, const int32_t *expert, size_t *offset,
                           int32_t *row, int32_t *assignment) {
    const spw_status given = spw_check_given(
        __func__, (spw_given[]){{"expert", spw_array(expert, tokens > 0 && top_k > 0)},
                                {"offset", offset},
                                {"row", spw_array(row, tokens > 0 && top_k > 0)},
                                {"assignment", spw_array(assignment, tokens > 0 && top_k > 0)},
                                {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    spw_gate_watch_forks();
    spw_plan plan;
    const spw_status status = spw_ref_plan_create(tokens, top_k, experts, expert, &plan);
    if (status != SPW_OK) return (spw_code)status;
    memcpy(offset, plan.offset, (experts + 1) * sizeof *offset);
    memcpy(row, plan.row, tokens * top_k * sizeof *row);
    memcpy(assignment, plan.assignment, plan.rows * sizeof *assignment);
    spw_ref_plan_destroy(&plan);
    return SPW_CODE_OK;
}

spw_code spw_compute_permute(size_t tokens, size_t top_k, size_t experts, const int32_t *expert, size_t width,
                             const float *x, float *rows) {
    const spw_status given = spw_check_given(
        __func__, (spw_given[]){{"expert", spw_array(expert, tokens > 0 && top_k > 0)},
                                {"x", spw_array(x, tokens > 0 && width > 0)},
                                {"rows", spw_array(rows, tokens > 0 && top_k > 0 && width > 0)},
                                {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    spw_gate_watch_forks();
    spw_plan plan;
    const spw_status status = spw_ref_plan_create(tokens, top_k, experts, expert, &plan);
    if (status != SPW_OK) return (spw_code)status;
    spw_ref_permute(&plan, width, x, rows);
    spw_ref_plan_destroy(&plan);
    return SPW_CODE_OK;
}

spw_code spw_compute_unpermute(size_t tokens, size_t top_k, size_t experts, const int32_t *expert,
                               size_t width, const float *rows, const float *weight, float *y, float *scale) {
    const spw_status given = spw_check_given(
        __func__, (spw_given[]){{"expert", spw_array(expert, tokens > 0 && top_k > 0)},
                                {"rows", spw_array(rows, tokens > 0 && top_k > 0 && width > 0)},
                                {"y", spw_array(y, tokens > 0 && width > 0)},
                                {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    spw_gate_watch_forks();
    spw_plan plan;
    const spw_status status = spw_ref_plan_create(tokens, top_k, experts, expert, &plan);
    if (status != SPW_OK) return (spw_code)status;
    spw_ref_combine(&plan, width, rows, weight, y, scale);
    spw_ref_plan_destroy(&plan);
    return SPW_CODE_OK;
}

/* --- The judge --- */

void spw_comparison_of(const spw_judged *j, spw_comparison *out) {
    *out = (spw_comparison){.elements = j->elements,
                            .failed = j->failed,
                            .worst_at = j->at,
                            .worst = j->worst,
                            .got = j->got,
                            .want = j->want,
                            .low = j->low,
                            .high = j->high};
}

static spw_code compared(const spw_judged *j, spw_comparison *out) {
    spw_comparison_of(j, out);
    if (j->failed == 0) return SPW_CODE_OK;
    return (spw_code)spw_fail(SPW_EMISMATCH,
                              "%zu of %zu elements are wrong; element %zu is %.9g, want %.9g in [%.9g, %.9g]",
                              j->failed, j->elements, j->at, j->got, j->want, j->low, j->high);
}

spw_code spw_compare_bf16(size_t count, size_t terms, const uint16_t *got, const float *want,
                          const float *scale, spw_comparison *out) {
    const spw_status given = spw_check_given(__func__, (spw_given[]){{"got", spw_array(got, count > 0)},
                                                                     {"want", spw_array(want, count > 0)},
                                                                     {"scale", spw_array(scale, count > 0)},
                                                                     {"out", out},
                                                                     {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    spw_judged judged;
    spw_judge_all_bf16(count, terms, got, want, scale, &judged);
    return compared(&judged, out);
}

spw_code spw_compare_float(size_t count, size_t terms, const float *got, const float *want,
                           const float *scale, spw_comparison *out) {
    const spw_status given = spw_check_given(__func__, (spw_given[]){{"got", spw_array(got, count > 0)},
                                                                     {"want", spw_array(want, count > 0)},
                                                                     {"scale", spw_array(scale, count > 0)},
                                                                     {"out", out},
                                                                     {NULL, NULL}});
    if (given != SPW_OK) return (spw_code)given;
    spw_judged judged;
    spw_judge_all_float(count, terms, got, want, scale, &judged);
    return compared(&judged, out);
}
