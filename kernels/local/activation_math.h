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
    GPU_MEMBER swiglu_point point(const spw_swiglu_gpu &s, int j) const {
        const bool clamped = s.limit > 0;
        const float infinite = __builtin_inff();
        const swiglu_curve curve = GELU      ? swiglu_curve{infinite, SPW_GELU_ALPHA, SPW_GELU_CUBIC, 0}
                                   : clamped ? swiglu_curve{s.limit, s.alpha, 0, 1}
                                             : swiglu_curve{infinite, 1, 0, 0};
        return swiglu_curve_at(curve, gate[j], up[j]);
    }
};

/* Rounded to bf16. Plain SwiGLU is evaluated as in swiglu.hip. */
template <int FORM> GPU_DEVICE gpu_bf16x8 act_eight(const spw_swiglu_gpu &s, long row, int piece) {
    const eight<FORM> of(s, row, piece);
    gpu_bf16x8 out;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if (of.ONE) {
            out.v[j] = gpu_to_bf16(relu_squared(of.gate[j]));
        } else {
            const swiglu_point p =
                FORM == SPW_FORM_SWIGLU ? swiglu_at(s.limit, s.alpha, of.gate[j], of.up[j]) : of.point(s, j);
            out.v[j] = gpu_to_bf16(p.gate * p.sigmoid * p.up);
        }
    }
    return out;
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
