#include "kernels/gemm/grouped_gemm_gpu.h"

#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/gemm/grouped_gemm_mxfp8_launch.h"
#include "kernels/gemm/grouped_gemm_strides.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"

#include <limits.h>
#include <string.h>

const spw_gemm_variant spw_gemm_variants[] = {
    {"naive", spw_launch_gemm_naive},
    {"tiled", spw_launch_gemm_tiled},
#if defined(SPW_HIP)
    {"mfma", spw_launch_gemm_mfma},
#else
    {"wgmma", spw_launch_gemm_wgmma},
#endif
    {NULL, NULL},
};

const spw_gemm_variant spw_gemm_tile_variants[] = {
#if !defined(SPW_HIP)
    {"wgmma, 128 x 192", spw_launch_gemm_pingpong},
    {"wgmma, 128 x 192 in pairs", spw_launch_gemm_pairs},
    {"wgmma, 128 x 256", spw_launch_gemm_wide},
#endif
    {NULL, NULL},
};

const spw_gemm_float8_variant spw_gemm_float8_variants[] = {
    {"fp8 naive", spw_launch_gemm_float8_naive, 24, spw_launch_gemm_float8_weights_naive},
#if defined(SPW_HIP)
    {"fp8 mfma", spw_launch_gemm_float8_mfma, 24, spw_launch_gemm_float8_weights_mfma},
#else
    {"fp8 wgmma", spw_launch_gemm_float8_wgmma, 14, spw_launch_gemm_float8_weights_wgmma},
#endif
    {NULL, NULL, 0, NULL},
};

static spw_gemm_swiglu_launcher *const launch_swiglu =
#if defined(SPW_HIP)
    spw_launch_gemm_swiglu_mfma;
#else
    spw_launch_gemm_swiglu_wgmma;
#endif

int spw_gemm_blocks(spw_gemm_shape s) {
    const int all = spw_device_multiprocessors();
    return s.multiprocessors == 0 || s.multiprocessors > (size_t)all ? all : (int)s.multiprocessors;
}

/* Which of the two forms an operation is, and with which sides. */
static spw_gemm_problem problem_of(spw_gemm_operation operation, spw_gemm_shape s, const spw_bf16 *left,
                                   const spw_bf16 *right) {
    spw_gemm_problem p = {.experts = (int)s.experts, .rows = (int)s.rows, .a = left, .b = right};
    const bool forward = operation == SPW_GEMM_FORWARD;
    p.inner = (int)(operation == SPW_GEMM_INPUT_GRADIENT ? s.out : s.in);
    p.columns = (int)(operation == SPW_GEMM_INPUT_GRADIENT ? s.in : s.out);
    if (operation != SPW_GEMM_WEIGHT_GRADIENT) {
        p.inner_contiguous = forward == s.transposed;
    } else if (s.transposed) { /* dw^T = dy^T x */
        p.a = right, p.b = left, p.inner = (int)s.out, p.columns = (int)s.in;
    }
    return p;
}

static spw_status check(spw_gemm_shape s) {
    if (s.in % 8 != 0 || s.out % 8 != 0 || s.in == 0 || s.out == 0)
        return spw_fail(SPW_EARG, "in %zu, out %zu: positive multiples of 8 are needed", s.in, s.out);
    if (s.experts == 0 || s.rows > INT_MAX / 2 || s.in > INT_MAX / 2 || s.out > INT_MAX / 2)
        return spw_fail(SPW_EARG,
                        "experts %zu, rows %zu, in %zu, out %zu: at least one expert, each below 2^30",
                        s.experts, s.rows, s.in, s.out);
    return SPW_OK;
}

int spw_gemm_clear_weights(spw_gemm_element element, const spw_gemm_problem *p, gpu_stream stream) {
    if (!spw_gemm_writes_packed(p)) return spw_launch_gemm_naive(SPW_GEMM_WEIGHTS, element, *p, stream);
    return (int)cudaMemsetAsync(p->c, 0, (size_t)p->experts * (size_t)p->expert * sizeof *p->c, stream);
}

spw_status spw_gpu_grouped_gemm(const spw_gemm_variant *variant, spw_gemm_operation operation,
                                spw_gemm_shape s, const spw_bf16 *left, const spw_bf16 *right,
                                const int *offset, spw_bf16 *result, gpu_stream stream) {
    spw_status status = check(s);
    if (status != SPW_OK) return status;
    const spw_gemm_form form = operation == SPW_GEMM_WEIGHT_GRADIENT ? SPW_GEMM_WEIGHTS : SPW_GEMM_ROWS;
    spw_gemm_problem p = problem_of(operation, s, left, right);
    p.offset = offset, p.c = result, p.blocks = spw_gemm_blocks(s);
    status = spw_gemm_fill_strides(&s, form, p.columns, &p);
    if (status != SPW_OK) return status;
    if (s.rows == 0)
        return spw_device_check(form == SPW_GEMM_ROWS ? 0 : spw_gemm_clear_weights(s.element, &p, stream),
                                "clear the result");
    return spw_device_check(variant->launch(form, s.element, p, stream), variant->name);
}

spw_status spw_gpu_grouped_gemm_swiglu(spw_gemm_shape s, const spw_bf16 *x, const spw_bf16 *w,
                                       const int *offset, spw_bf16 *act, gpu_stream stream) {
    spw_status status = check(s);
    if (status != SPW_OK) return status;
    if (s.out % 16 != 0)
        return spw_fail(SPW_EARG, "gate and up together have %zu columns: a multiple of 16 is needed", s.out);
    spw_gemm_problem p = problem_of(SPW_GEMM_FORWARD, s, x, w);
    p.columns = (int)(s.out / 2), p.offset = offset, p.c = act, p.blocks = spw_gemm_blocks(s);
    status = spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, (int)s.out, &p);
    if (status != SPW_OK || s.rows == 0) return status;
    return spw_device_check(launch_swiglu(s.element, p, stream), "grouped GEMM with SwiGLU");
}

/* In pairs of codes, which the kernels take for numbers of 16 bits. */
static spw_status halve_strides(spw_gemm_strides *of) {
    if ((of->left | of->right | of->expert) % 16 != 0)
        return spw_fail(SPW_EARG,
                        "fp8: rows %zu and %zu codes apart, experts %zu: multiples of 16 would be right",
                        of->left, of->right, of->expert);
    of->left /= 2, of->right /= 2, of->expert /= 2;
    return SPW_OK;
}

spw_status spw_gpu_grouped_gemm_float8(const spw_gemm_float8_variant *variant, spw_gemm_shape s,
                                       const unsigned char *x, const float *x_scale, const unsigned char *w,
                                       const float *w_scale, const int *offset, spw_bf16 *y,
                                       gpu_stream stream) {
    spw_status status = check(s);
    if (status != SPW_OK) return status;
    if (!s.transposed || s.in % 16 != 0)
        return spw_fail(SPW_EARG,
                        "fp8: in %zu, weights %s: a multiple of 16 and weights [experts][out][in] are needed",
                        s.in, s.transposed ? "[out][in]" : "[in][out]");
    status = halve_strides(&s.stride);
    if (status != SPW_OK || s.rows == 0) return status;
    spw_gemm_float8_problem p = {
        .pairs = problem_of(SPW_GEMM_FORWARD, s, (const spw_bf16 *)x, (const spw_bf16 *)w)};
    p.pairs.inner /= 2, p.pairs.offset = offset, p.pairs.c = y, p.pairs.blocks = spw_gemm_blocks(s);
    p.blocks = (int)((s.in + SPW_GEMM_FLOAT8_BLOCK - 1) / SPW_GEMM_FLOAT8_BLOCK);
    p.across = (int)((s.out + SPW_GEMM_FLOAT8_BLOCK - 1) / SPW_GEMM_FLOAT8_BLOCK);
    p.a_scale = x_scale, p.b_scale = w_scale;
    status = spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, p.pairs.columns, &p.pairs);
    if (status != SPW_OK) return status;
    return spw_device_check(variant->launch(p, stream), variant->name);
}

spw_status spw_gpu_grouped_gemm_float8_weight_gradient(const spw_gemm_float8_variant *variant,
                                                       spw_gemm_shape s, const spw_gemm_float8_gradient *g,
                                                       gpu_stream stream) {
    spw_status status = check(s);
    if (status == SPW_OK)
        status = spw_gemm_refuse_strides("fp8 by columns", (spw_gemm_strides){s.stride.left, s.stride.right});
    if (status != SPW_OK) return status;
    spw_gemm_float8_weights_problem w = {
        .p = problem_of(SPW_GEMM_WEIGHT_GRADIENT, s, (const spw_bf16 *)g->x, (const spw_bf16 *)g->dy),
        .blocks = (int)(s.rows / SPW_GEMM_FLOAT8_BLOCK + s.experts),
        .adds = g->dw == NULL,
        .a_scale = s.transposed ? g->dy_scale : g->x_scale,
        .b_scale = s.transposed ? g->x_scale : g->dy_scale,
        .main = g->main};
    w.p.offset = g->offset, w.p.c = g->dw, w.p.blocks = spw_gemm_blocks(s);
    status = spw_gemm_fill_gradient_strides(&s, g->main, &w.p);
    if (status != SPW_OK) return status;
    if (s.rows == 0)
        return spw_device_check(g->dw == NULL ? 0 : spw_gemm_clear_weights(s.element, &w.p, stream),
                                "clear the gradient");
    return spw_device_check(variant->weights(w, stream), variant->name);
}

bool spw_gpu_has_mxfp8(void) {
    static const char has[] = "gfx950";
    return strncmp(spw_device_architecture(), has, sizeof has - 1) == 0;
}

spw_status spw_gpu_grouped_gemm_mxfp8(spw_gemm_shape s, const unsigned char *x, const unsigned *x_scale,
                                      const unsigned char *w, const unsigned *w_scale, const int *offset,
                                      spw_bf16 *y, gpu_stream stream) {
    spw_status status = check(s);
    if (status == SPW_OK) status = spw_gemm_refuse_strides("MXFP8", s.stride);
    if (status != SPW_OK) return status;
    if (!s.transposed || s.in % 32 != 0)
        return spw_fail(
            SPW_EARG, "MXFP8: in %zu, weights %s: a multiple of 32 and weights [experts][out][in] are needed",
            s.in, s.transposed ? "[out][in]" : "[in][out]");
    if (!spw_gpu_has_mxfp8())
        return spw_fail(SPW_EDEVICE, "MXFP8: %s has no such matrix products; an MI350 or MI355X has them",
                        spw_device_name());
    if (s.rows == 0) return SPW_OK;
#if defined(SPW_HIP)
    const spw_gemm_mxfp8_problem p = {.experts = (int)s.experts,
                                      .rows = (int)s.rows,
                                      .inner = (int)s.in,
                                      .columns = (int)s.out,
                                      .blocks = spw_gemm_blocks(s),
                                      .a = x,
                                      .b = w,
                                      .a_scale = x_scale,
                                      .b_scale = w_scale,
                                      .offset = offset,
                                      .c = y};
    return spw_device_check(spw_launch_gemm_mxfp8_mfma(p, stream), "mxfp8 mfma");
#else
    (void)x, (void)x_scale, (void)w, (void)w_scale, (void)offset, (void)y, (void)stream;
    return spw_fail(SPW_EDEVICE, "MXFP8: this build has no kernel of it");
#endif
}
