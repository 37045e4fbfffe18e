#include "reference/swiglu.h"

#include <math.h>
#include <stdbool.h>

enum { FEW = 1024 }; /* a thread's start takes longer than as many elements */

static const double GELU_CUBIC = 0.044715;

/* gate and up after clamping, and what follows from them. */
typedef struct point {
    double gate, up, sigmoid, alpha,
        shift; /* alpha: slope of sigmoid's argument; act = gate * sigmoid * (up + shift) */
    bool gate_cut, up_cut;
} point;

static point at(spw_swiglu kind, float gate, float up) {
    point p = {.gate = (double)gate, .up = (double)up, .alpha = 1.0, .shift = 0.0};
    if (kind.limit > 0.0f) {
        const double limit = (double)kind.limit;
        p.gate_cut = p.gate > limit, p.up_cut = fabs(p.up) > limit;
        p.gate = fmin(p.gate, limit), p.up = fmax(fmin(p.up, limit), -limit);
        p.alpha = (double)kind.alpha, p.shift = 1.0;
    }
    double x = p.alpha * p.gate;
    if (kind.gate == SPW_GATE_GELU) {
        const double c = 2.0 * M_2_SQRTPI * M_SQRT1_2, square = p.gate * p.gate;
        x = c * p.gate * (1.0 + GELU_CUBIC * square), p.alpha = c * (1.0 + 3.0 * GELU_CUBIC * square);
    }
    p.sigmoid = 1.0 / (1.0 + exp(-x)); /* exp may be infinite: then 0 is right */
    return p;
}

/* Without a gate: value, and slope by g. */
static double plain_value(spw_plain_activation kind, double g) {
    if (kind == SPW_RELU2) return g > 0.0 ? g * g : 0.0;
    return 0.5 * g * (1.0 + erf(g * M_SQRT1_2));
}
static double plain_slope(spw_plain_activation kind, double g) {
    if (kind == SPW_RELU2) return g > 0.0 ? 2.0 * g : 0.0;
    return 0.5 * (1.0 + erf(g * M_SQRT1_2)) + g * exp(-0.5 * g * g) * 0.5 * M_2_SQRTPI * M_SQRT1_2;
}

void spw_ref_swiglu(spw_swiglu kind, size_t count, const float *gate, const float *up, float *act,
                    float *scale) {
#pragma omp parallel for schedule(static) if (count >= FEW)
    for (size_t i = 0; i < count; i++) {
        if (kind.plain != SPW_GATED) {
            act[i] = (float)plain_value(kind.plain, (double)gate[i]);
            if (scale != NULL) scale[i] = fabsf(act[i]);
            continue;
        }
        const point p = at(kind, gate[i], up[i]);
        act[i] = (float)(p.gate * p.sigmoid * (p.up + p.shift));
        if (scale != NULL) scale[i] = (float)(fabs(p.gate) * p.sigmoid * (fabs(p.up) + p.shift));
    }
}

void spw_ref_swiglu_gradient(spw_swiglu kind, size_t count, const float *gate, const float *up,
                             const float *d_act, spw_swiglu_gradients out) {
    float *const d_gate = out.d_gate, *const d_up = out.d_up, *const gate_scale = out.gate_scale;
#pragma omp parallel for schedule(static) if (count >= FEW)
    for (size_t i = 0; i < count; i++) {
        if (kind.plain != SPW_GATED) {
            const double change = (double)d_act[i] * plain_slope(kind.plain, (double)gate[i]);
            d_gate[i] = (float)change;
            if (d_up != NULL) d_up[i] = 0.0f;
            if (gate_scale != NULL) gate_scale[i] = (float)fabs(change);
            continue;
        }
        const point p = at(kind, gate[i], up[i]);
        const double d = (double)d_act[i], rest = p.alpha * (1.0 - p.sigmoid);
        const double slope = p.sigmoid * (1.0 + p.gate * rest);
        d_gate[i] = p.gate_cut ? 0.0f : (float)(d * (p.up + p.shift) * slope);
        d_up[i] = p.up_cut ? 0.0f : (float)(d * p.gate * p.sigmoid);
        if (gate_scale != NULL) {
            gate_scale[i] =
                (float)(fabs(d) * (fabs(p.up) + p.shift) * p.sigmoid * (1.0 + fabs(p.gate) * rest));
        }
    }
}
