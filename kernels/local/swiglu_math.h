/* One element of SwiGLU: reference/swiglu.h in fp32. Rounding errors in units of 2^-24: exp2 4, its argument 1
 * (carried in two parts), 1 + e 1, reciprocal 2; so sigmoid 8, the rest 1 - sigmoid 10. A sigmoid below 2^-126 may
 * be 0. A product of sigmoid with two numbers has 10, the slope's bracket 12, d_gate 23. */
#ifndef SPW_KERNELS_LOCAL_SWIGLU_MATH_H
#define SPW_KERNELS_LOCAL_SWIGLU_MATH_H

#include "kernels/gpu/gpu.h"

struct swiglu_point {
    float gate, up, sigmoid, rest,
        alpha; /* after clamping; up with 1 added in the clamped form; rest = 1 - sigmoid */
    bool gate_cut, up_cut;
};

/* 1 / (1 + exp(-x)) of x = high + low. */
GPU_DEVICE void swiglu_sigmoid(float high, float low, float &sigmoid, float &rest) {
    const float x = high < -1000.0f ? -1000.0f : high > 1000.0f ? 1000.0f : high;
    const float power = -x * 1.44269502f; /* log2(e) in two parts */
    const float power_low = __builtin_fmaf(-x, 1.44269502f, -power) - x * 1.92596299e-8f - low * 1.44269502f;
    const float e = gpu_exp2(power);
    const float grown =
        e * __builtin_fmaf(power_low, 0.693147182f, 1); /* not e + e * ..: inf must stay inf */
    sigmoid = gpu_reciprocal(1 + grown);
    rest = x < 0 ? 1 - sigmoid : grown * sigmoid;
}

GPU_DEVICE swiglu_point swiglu_at(float limit, float alpha, float gate, float up) {
    swiglu_point p = {gate, up, 0, 0, 1, false, false};
    if (limit > 0) {
        p.gate_cut = gate > limit, p.up_cut = up > limit || up < -limit;
        p.gate = p.gate_cut ? limit : gate;
        p.up = (up > limit ? limit : up < -limit ? -limit : up) + 1;
        p.alpha = alpha;
    }
    const float x = p.alpha * p.gate;
    swiglu_sigmoid(x, __builtin_fmaf(p.alpha, p.gate, -x), p.sigmoid, p.rest);
    return p;
}

/* Any gated activation: gate' s(alpha gate' (1 + cubic gate'^2)) (up' + shift), gate' cut at limit, up' at both ends, s the logistic
 * function. Of swiglu_at's forms limit infinite and shift 0, or shift 1; of GELU by tanh the two numbers of SPW_GELU. */
struct swiglu_curve {
    float limit, alpha, cubic, shift;
};

/* alpha of the point: the slope of the logistic function's argument by gate. Without || and ?: of ?:, of which a branch an element was
 * made, behind which no other element began. */
GPU_DEVICE swiglu_point swiglu_curve_at(swiglu_curve c, float gate, float up) {
    const bool above = up > c.limit, below = up < -c.limit;
    swiglu_point p;
    p.gate_cut = gate > c.limit, p.up_cut = above | below;
    p.gate = p.gate_cut ? c.limit : gate;
    p.up = above ? c.limit : up;
    p.up = (below ? -c.limit : p.up) + c.shift;
    float tame = p.gate > 1000.0f ? 1000.0f : p.gate; /* no infinity times 0 */
    tame = tame < -1000.0f ? -1000.0f : tame;
    const float bend = c.cubic * tame * tame, high = c.alpha * p.gate, x = high * (1 + bend);
    const float low = __builtin_fmaf(c.alpha, p.gate, -high); /* of the product without the bend */
    p.alpha = c.alpha * (1 + 3 * bend);
    swiglu_sigmoid(x, low, p.sigmoid, p.rest);
    return p;
}

GPU_DEVICE float relu_squared(float x) { return x > 0 ? x * x : 0; }

#endif
