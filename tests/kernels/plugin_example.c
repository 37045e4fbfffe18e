/* A plugin for the how-to and for tests: plain loops over host memory. Built
 * with WRONG=1 to 6 it makes one mistake, which must be found;
 * docs/check_your_kernel.md shows it. */
#include "kernels/verify/plugin.h"

#include <math.h>
#include <string.h>

#ifndef WRONG
#define WRONG 0
#endif

static float get(const spw_kernel_call *call, const void *array, size_t i) {
    if (call->type == SPW_TYPE_FLOAT) return ((const float *)array)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(const spw_kernel_call *call, size_t i, double value) {
    const float rounded = (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    if (call->type == SPW_TYPE_FLOAT) {
        ((float *)call->output)[i] = rounded;
    } else { /* to the nearest, ties to even; WRONG 1 cuts */
        ((uint16_t *)call->output)[i] =
            (uint16_t)((bits + (WRONG == 1 ? 0 : 0x7fff + (bits >> 16 & 1))) >> 16);
    }
}

static size_t weight_at(const spw_kernel_call *c, size_t e, size_t i, size_t o) {
    return c->transposed ? (e * c->out + o) * c->in + i : (e * c->in + i) * c->out + o;
}

static int product(const spw_kernel_call *c) {
    const int forward = c->kernel == SPW_KERNEL_GROUPED_GEMM;
    const size_t width = forward ? c->out : c->in, terms = forward ? c->in : c->out;
    for (size_t e = 0; e < c->experts; e++) {
        for (int32_t r = c->offset[e]; r < c->offset[e + 1] - (WRONG == 2);
             r++) { /* 2: the last row of a group */
            for (size_t j = 0; j < width; j++) {
                double sum = 0;
                for (size_t k = 0; k < terms; k++)
                    sum +=
                        (double)get(c, c->input[0], (size_t)r * terms + k) *
                        (double)get(c, c->input[1], forward ? weight_at(c, e, k, j) : weight_at(c, e, j, k));
                put(c, (size_t)r * width + j, sum * (WRONG == 3 ? 1.02 : 1));
            }
        }
    }
    return 0;
}

static int weight_gradient(const spw_kernel_call *c) {
    const int32_t end = c->offset[c->experts];
    for (size_t e = 0; e < c->experts; e++) {
        for (size_t i = 0; i < c->in * c->out; i++) {
            double sum = 0;
            const int32_t last = WRONG == 4 && e + 1 == c->experts ? (int32_t)c->rows : c->offset[e + 1];
            for (int32_t r = c->offset[e]; r < last && end > 0; r++) /* 4: reads the unused tail */
                sum += (double)get(c, c->input[0], (size_t)r * c->in + i / c->out) *
                       (double)get(c, c->input[1], (size_t)r * c->out + i % c->out);
            put(c, weight_at(c, e, i / c->out, i % c->out), sum);
        }
    }
    return 0;
}

static int permute(const spw_kernel_call *c) {
    const int32_t *expert = c->input[1];
    size_t row = 0;
    for (size_t e = 0; e < c->experts; e++) {
        for (size_t a = 0; a < c->tokens * c->top_k; a++) {
            if (expert[a] != (int32_t)e) continue;
            for (size_t h = 0; h < c->in; h++)
                put(c, row * c->in + h, (double)get(c, c->input[0], a / c->top_k * c->in + h));
            row++;
        }
    }
    if (WRONG == 5) put(c, row * c->in, 0); /* one element behind the output */
    return 0;
}

static int unpermute(const spw_kernel_call *c) {
    const int32_t *row = c->input[1];
    const float *weight = c->input[2];
    for (size_t i = 0; i < c->tokens * c->in; i++) {
        const size_t t = i / c->in;
        double sum = 0;
        for (size_t k = 0; k < c->top_k; k++) {
            const int32_t r = row[t * c->top_k + k];
            if (r >= 0)
                sum += (double)weight[t * c->top_k + k] *
                       (double)get(c, c->input[0], (size_t)r * c->in + i % c->in);
        }
        put(c, i, sum);
    }
    return 0;
}

static int swiglu(const spw_kernel_call *c) {
    for (size_t i = 0; i < c->rows * c->out; i++) {
        const double gate = (double)get(c, c->input[0], i), up = (double)get(c, c->input[1], i);
        put(c, i, WRONG == 6 ? gate / (1 + exp(gate)) * up : gate / (1 + exp(-gate)) * up);
    }
    return 0;
}

static const spw_plugin_table table = {
    .version = SPW_PLUGIN_VERSION,
    .name = "plain loops",
    .memory = SPW_MEMORY_HOST,
    .types = 1 << SPW_TYPE_BF16 | 1 << SPW_TYPE_FLOAT,
    .function = {[SPW_KERNEL_GROUPED_GEMM] = product,
                 [SPW_KERNEL_INPUT_GRADIENT] = product,
                 [SPW_KERNEL_WEIGHT_GRADIENT] = weight_gradient,
                 [SPW_KERNEL_PERMUTE] = permute,
                 [SPW_KERNEL_UNPERMUTE] = unpermute,
                 [SPW_KERNEL_SWIGLU] = swiglu},
};

const spw_plugin_table *spw_plugin(void) { return &table; }
