/* Eight elements of an activation, for the .hip files that store them. */
#ifndef SPW_KERNELS_LOCAL_ACTIVATION_MATH_H
#define SPW_KERNELS_LOCAL_ACTIVATION_MATH_H

#include "kernels/local/local_launch.h"
#include "kernels/local/swiglu_math.h"

/* Eight elements of a row and where they are, in eights. */
template <int FORM> struct eight {
    static constexpr bool ONE = FORM == SPW_FORM_RELU2,
                          PAIRS = FORM == SPW_FORM_SWIGLU_PAIRS || FORM == SPW_FORM_GEGLU_PAIRS,
                          GELU = FORM == SPW_FORM_GEGLU || FORM == SPW_FORM_GEGLU_PAIRS;
    float gate[8], up[8];
    long at;

    GPU_MEMBER eight(const spw_swiglu_gpu &s, long row, int piece)
        : at(row * (s.stride / 8) + piece * (PAIRS ? 2 : 1)) {
        const gpu_bf16x8 first = ((const gpu_bf16x8 *)s.gate)[at],
                         second = ONE     ? first
                                  : PAIRS ? ((const gpu_bf16x8 *)s.gate)[at + 1]
                                          : ((const gpu_bf16x8 *)s.up)[at];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            gate[j] = gpu_from_bf16(PAIRS ? (j < 4 ? first : second).v[2 * (j % 4)] : first.v[j]);
            up[j] = gpu_from_bf16(PAIRS ? (j < 4 ? first : second).v[2 * (j % 4) + 1] : second.v[j]);
        }
    }
    /* Plain SwiGLU is evaluated as in swiglu.hip. */
    GPU_MEMBER swiglu_point point(const spw_swiglu_gpu &s, int j) const {
        if (FORM == SPW_FORM_SWIGLU) return swiglu_at(s.limit, s.alpha, gate[j], up[j]);
        const bool clamped = s.limit > 0;
        const float infinite = __builtin_inff();
        const swiglu_curve curve = GELU      ? swiglu_curve{infinite, SPW_GELU_ALPHA, SPW_GELU_CUBIC, 0}
                                   : clamped ? swiglu_curve{s.limit, s.alpha, 0, 1}
                                             : swiglu_curve{infinite, 1, 0, 0};
        return swiglu_curve_at(curve, gate[j], up[j]);
    }
};

/* One of the eight, in fp32. */
template <int FORM> GPU_DEVICE float act_one(const spw_swiglu_gpu &s, const eight<FORM> &of, int j) {
    if (of.ONE) return relu_squared(of.gate[j]);
    const swiglu_point p = of.point(s, j);
    return p.gate * p.sigmoid * p.up;
}

/* Rounded to bf16. */
template <int FORM> GPU_DEVICE gpu_bf16x8 act_eight(const spw_swiglu_gpu &s, long row, int piece) {
    const eight<FORM> of(s, row, piece);
    gpu_bf16x8 out;
#pragma unroll
    for (int j = 0; j < 8; j++) out.v[j] = gpu_to_bf16(act_one(s, of, j));
    return out;
}

/* Gradients of gate and up of `d`, that of act, rounded to bf16: two eights as `eight` reads them, of one matrix the first alone. */
struct slopes_eight {
    gpu_bf16x8 first, second;
};
template <int FORM>
GPU_DEVICE slopes_eight slopes_of(const spw_swiglu_gpu &s, const eight<FORM> &of, const float (&d)[8]) {
    slopes_eight out;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if (of.ONE) {
            out.first.v[j] = gpu_to_bf16(of.gate[j] > 0 ? d[j] * (2 * of.gate[j]) : 0);
            continue;
        }
        const swiglu_point p = of.point(s, j);
        const float slope = 1 + p.gate * p.alpha * p.rest, to_gate = d[j] * p.up * p.sigmoid * slope,
                    to_up = d[j] * p.gate * p.sigmoid;
        gpu_bf16x8 &gates = of.PAIRS && j >= 4 ? out.second : out.first,
                   &ups = of.PAIRS && j < 4 ? out.first : out.second;
        gates.v[of.PAIRS ? 2 * (j % 4) : j] = gpu_to_bf16(p.gate_cut ? 0 : to_gate);
        ups.v[of.PAIRS ? 2 * (j % 4) + 1 : j] = gpu_to_bf16(p.up_cut ? 0 : to_up);
    }
    return out;
}

/* Eight of a row of bf16, times a factor. */
GPU_DEVICE void load_eight(const spw_bf16 *from, long at, float factor, float (&to)[8]) {
    const gpu_bf16x8 x = ((const gpu_bf16x8 *)from)[at];
#pragma unroll
    for (int j = 0; j < 8; j++) to[j] = factor * gpu_from_bf16(x.v[j]);
}

#define OF_FORM(call) \
    switch (s.form) { \
    case SPW_FORM_SWIGLU: call(SPW_FORM_SWIGLU); break; \
    case SPW_FORM_SWIGLU_PAIRS: call(SPW_FORM_SWIGLU_PAIRS); break; \
    case SPW_FORM_GEGLU: call(SPW_FORM_GEGLU); break; \
    case SPW_FORM_GEGLU_PAIRS: call(SPW_FORM_GEGLU_PAIRS); break; \
    default: call(SPW_FORM_RELU2); \
    }

#endif
