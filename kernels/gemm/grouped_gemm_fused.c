#include "kernels/gemm/grouped_gemm_fused.h"

#include "kernels/gemm/grouped_gemm_gpu.h"
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_strides.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/local/local_launch.h"

#include <limits.h>
#include <math.h>

/* By what this build has. */
#if defined(SPW_HIP)
#define launch_swiglu spw_launch_gemm_swiglu_mfma
#define launch_up spw_launch_gemm_up_mfma
#define launch_down_gradient spw_launch_gemm_down_gradient_mfma
#define launch_activated_up spw_launch_gemm_up_mfma
#define launch_activated_down_gradient spw_launch_gemm_down_gradient_mfma
#define launch_weights spw_launch_gemm_weights_mfma
#else
#define launch_swiglu spw_launch_gemm_swiglu_wgmma
#define launch_up spw_launch_gemm_up_wgmma
#define launch_down_gradient spw_launch_gemm_down_gradient_wgmma
#define launch_activated_up spw_launch_gemm_activated_up_wgmma
#define launch_activated_down_gradient spw_launch_gemm_activated_down_gradient_wgmma
#define launch_weights spw_launch_gemm_weights_wgmma
#endif

/* act alone: h is NULL. */
static int launch_act(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream) {
    if (f.curve.between == SPW_GEMM_SILU) return launch_swiglu(element, f.p, stream);
    return launch_activated_up(element, f, stream);
}

/* out's share: 16 where it is gate and up. */
static spw_status check_sizes(spw_gemm_shape s, size_t share) {
    if (s.in % 8 != 0 || s.out % share != 0 || s.in == 0 || s.out == 0)
        return spw_fail(SPW_EARG, "in %zu, out %zu: positive multiples of 8 and %zu are needed", s.in, s.out,
                        share);
    if (s.experts == 0 || s.rows > INT_MAX / 2 || s.in > INT_MAX / 2 || s.out > INT_MAX / 2)
        return spw_fail(SPW_EARG,
                        "experts %zu, rows %zu, in %zu, out %zu: at least one expert, each below 2^30",
                        s.experts, s.rows, s.in, s.out);
    return SPW_OK;
}

static spw_status check(spw_gemm_shape s, spw_gemm_rows rows, size_t share) {
    const spw_status status = check_sizes(s, share);
    if (status != SPW_OK) return status;
    if (rows.top_k > (rows.assignment != NULL ? INT_MAX : 0))
        return spw_fail(SPW_EARG, "top-%zu with%s assignments: rows are gathered by both", rows.top_k,
                        rows.assignment != NULL ? "" : "out");
    if (rows.top_k > 0 && rows.tokens > INT_MAX / 2)
        return spw_fail(SPW_EARG, "rows gathered of %zu tokens: less than 2^30 are needed", rows.tokens);
    return SPW_OK;
}

static spw_gemm_fused_problem problem_of(spw_gemm_shape s, spw_gemm_rows rows, const int *offset) {
    return (spw_gemm_fused_problem){
        .p = {.experts = (int)s.experts, .rows = (int)s.rows, .offset = offset, .blocks = spw_gemm_blocks(s)},
        .assignment = rows.assignment,
        .top_k = (int)rows.top_k,
        .tokens = (int)rows.tokens};
}

/* As the kernels see it. */
static spw_status curve_of(const spw_gemm_activation *a, spw_gemm_curve *curve) {
    const bool gelu = a->kind.gate == SPW_GATE_GELU, clamped = a->kind.limit > 0;
    if (a->kind.plain == SPW_GELU)
        return spw_fail(SPW_EARG,
                        "fused products with GELU; a gated activation or ReLU squared would be right");
    if (gelu && clamped)
        return spw_fail(SPW_EARG, "GeGLU with a limit of %g; 0 would be right", (double)a->kind.limit);
    if (a->kind.plain == SPW_RELU2 && (a->pairs || gelu || clamped))
        return spw_fail(SPW_EARG,
                        "ReLU squared with a gate; one matrix, no pairs and no limit would be right");
    *curve = (spw_gemm_curve){.limit = clamped ? a->kind.limit : INFINITY,
                              .alpha = clamped ? a->kind.alpha
                                       : gelu  ? SPW_GELU_ALPHA
                                               : 1,
                              .cubic = gelu ? SPW_GELU_CUBIC : 0,
                              .shift = clamped ? 1 : 0,
                              .bias = a->bias,
                              .between = a->kind.plain == SPW_RELU2 ? SPW_GEMM_RELU2
                                         : a->pairs                 ? SPW_GEMM_PAIRS
                                                                    : SPW_GEMM_GATED};
    if (curve->between == SPW_GEMM_GATED && !clamped && !gelu && a->bias == NULL)
        curve->between = SPW_GEMM_SILU;
    return SPW_OK;
}

/* Of the first product: gate and up, or one. */
static size_t matrices_of(const spw_gemm_activation *a) { return a->kind.plain == SPW_GATED ? 2 : 1; }

static spw_status up_problem_of(spw_gemm_shape s, spw_gemm_rows rows, const spw_gemm_up *g,
                                spw_gemm_curve curve, spw_gemm_fused_problem *out) {
    spw_gemm_fused_problem f = problem_of(s, rows, g->offset);
    f.p.inner = (int)s.in, f.p.columns = (int)(s.out / matrices_of(&g->activation));
    f.p.inner_contiguous = s.transposed;
    f.p.a = g->x, f.p.b = g->w, f.p.c = g->act, f.h = g->h, f.curve = curve;
    spw_status status = spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, (int)s.out, &f.p);
    if (status == SPW_OK)
        status = spw_gemm_row_stride((spw_gemm_array){"h", g->h, s.out, s.stride.h}, &f.h_row);
    *out = f;
    return status;
}

spw_status spw_gpu_grouped_gemm_up(spw_gemm_shape s, spw_gemm_rows rows, const spw_gemm_up *g,
                                   gpu_stream stream) {
    spw_gemm_curve curve = {0};
    spw_gemm_fused_problem f;
    spw_status status = check(s, rows, 8 * matrices_of(&g->activation));
    if (status == SPW_OK) status = curve_of(&g->activation, &curve);
    if (status == SPW_OK) status = up_problem_of(s, rows, g, curve, &f);
    if (status != SPW_OK || s.rows == 0) return status;
    return spw_device_check(
        (curve.between == SPW_GEMM_SILU ? launch_up : launch_activated_up)(s.element, f, stream),
        "grouped GEMM up");
}

spw_status spw_gpu_grouped_gemm_activated(spw_gemm_shape s, const spw_gemm_activation *a, const spw_bf16 *x,
                                          const spw_bf16 *w, const int *offset, spw_bf16 *act,
                                          gpu_stream stream) {
    const spw_gemm_up g = {.x = x, .w = w, .offset = offset, .act = act, .activation = *a};
    const char what[] = "grouped GEMM with an activation";
    spw_gemm_curve curve = {0};
    spw_gemm_fused_problem f;
    spw_status status = check_sizes(s, 8 * matrices_of(a));
    if (status == SPW_OK) status = curve_of(a, &curve);
    if (status == SPW_OK) status = up_problem_of(s, (spw_gemm_rows){NULL, 0, 0}, &g, curve, &f);
    if (status != SPW_OK || s.rows == 0) return status;
    return spw_device_check(launch_act(s.element, f, stream), what);
}

spw_status spw_gpu_grouped_gemm_down_gradient(spw_gemm_shape s, spw_gemm_rows rows,
                                              const spw_gemm_down_gradient *g, gpu_stream stream) {
    spw_gemm_curve curve = {0};
    spw_gemm_activation activation = g->activation;
    activation.bias = NULL; /* h has it */
    spw_status status = check(s, rows, 8);
    if (status == SPW_OK) status = curve_of(&activation, &curve);
    if (status != SPW_OK) return status;
    spw_gemm_fused_problem f = problem_of(s, rows, g->offset);
    f.curve = curve;
    f.p.inner = (int)s.out, f.p.columns = (int)s.in, f.p.inner_contiguous = !s.transposed;
    f.p.a = g->dy, f.p.b = g->w, f.p.c = g->act;
    f.weight = g->weight, f.h = (spw_bf16 *)g->h, f.d_h = g->d_h, f.row_sum = g->row_sum;
    const size_t wide = s.in * matrices_of(&activation);
    status = spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, f.p.columns, &f.p);
    if (status == SPW_OK)
        status = spw_gemm_row_stride((spw_gemm_array){"h", g->h, wide, s.stride.h}, &f.h_row);
    if (status == SPW_OK)
        status = spw_gemm_row_stride((spw_gemm_array){"d_h", g->d_h, wide, s.stride.d_h}, &f.d_h_row);
    if (status != SPW_OK || s.rows == 0) return status;
    return spw_device_check((curve.between == SPW_GEMM_SILU
                                 ? launch_down_gradient
                                 : launch_activated_down_gradient)(s.element, f, stream),
                            "grouped GEMM down gradient");
}

spw_status spw_gpu_grouped_gemm_weight_gradient(spw_gemm_shape s, spw_gemm_rows rows,
                                                const spw_gemm_weight_gradient *g, gpu_stream stream) {
    spw_status status = check(s, rows, 8);
    if (status != SPW_OK) return status;
    const bool a_is_x = !s.transposed; /* dw^T = dy^T x */
    spw_gemm_fused_problem f = problem_of(s, rows, g->offset);
    f.p.inner = (int)(a_is_x ? s.in : s.out), f.p.columns = (int)(a_is_x ? s.out : s.in);
    f.p.a = a_is_x ? g->x : g->dy, f.p.b = a_is_x ? g->dy : g->x;
    f.p.c = g->dw, f.main = g->main, f.add = g->dw == NULL;
    status = spw_gemm_fill_gradient_strides(&s, g->main, &f.p);
    if (status != SPW_OK) return status;
    if (s.rows == 0)
        return spw_device_check(f.add ? 0 : spw_gemm_clear_weights(s.element, &f.p, stream),
                                "clear the result");
    const spw_gemm_gather gather = rows.assignment == NULL  ? SPW_GEMM_GATHER_NONE
                                   : g->gathers_x == a_is_x ? SPW_GEMM_GATHER_A
                                                            : SPW_GEMM_GATHER_B;
    return spw_device_check(launch_weights(gather, s.element, f, stream), "grouped GEMM weight gradient");
}
