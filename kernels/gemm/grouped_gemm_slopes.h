/* Activations between an expert layer's products, and their slopes: spw_gemm_curve, element by element. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_SLOPES_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_SLOPES_H

#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/local/swiglu_math.h"

GPU_DEVICE swiglu_point curve_at(const spw_gemm_curve &c, float gate, float up) {
    return swiglu_curve_at({c.limit, c.alpha, c.cubic, c.shift}, gate, up);
}

GPU_DEVICE float curve_act(const spw_gemm_curve &c, float gate, float up) {
    const swiglu_point p = curve_at(c, gate, up);
    return p.gate * p.sigmoid * p.up;
}

/* One number: `sum` of d act before the weight. act, and the gradients of gate and up. */
struct curve_slopes {
    float act, gate, up;
};
template <spw_gemm_between BETWEEN>
GPU_DEVICE curve_slopes curve_slopes_at(const spw_gemm_curve &c, float sum, float weight, float gate,
                                        float up) {
    const float d = sum * weight;
    if constexpr (BETWEEN == SPW_GEMM_RELU2) {
        return {relu_squared(gate), gate > 0 ? d * (2 * gate) : 0, 0};
    } else if constexpr (BETWEEN == SPW_GEMM_SILU) {
        const swiglu_point p = swiglu_at(0, 0, gate, up);
        const float through = p.gate * p.sigmoid;
        return {through * p.up, d * p.up * p.sigmoid * (1 + p.gate * p.rest), d * through};
    } else {
        const swiglu_point p = curve_at(c, gate, up);
        const float through = p.gate * p.sigmoid, slope = p.sigmoid * (1 + p.alpha * p.gate * p.rest);
        return {through * p.up, p.gate_cut ? 0 : d * p.up * slope, p.up_cut ? 0 : d * through};
    }
}

#endif
