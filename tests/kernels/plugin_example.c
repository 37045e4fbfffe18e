/* A plugin for the how-to and for tests: plain loops over host memory. Built
 * with WRONG=1 to 15 it makes one mistake, which must be found;
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

/* --- Router: 7 takes the higher of equal experts, 8 never divides, 9 lists by expert --- */

static int better(const float *logit, size_t a, size_t b) {
    return logit[a] > logit[b] || (logit[a] == logit[b] && (WRONG == 7 ? a > b : a < b));
}

static void choose(const spw_kernel_call *c, const float *logit, int32_t *chosen) {
    for (size_t k = 0; k < c->top_k; k++) {
        size_t best = c->experts;
        for (size_t e = 0; e < c->experts; e++) {
            int taken = 0;
            for (size_t j = 0; j < k; j++) taken |= chosen[j] == (int32_t)e;
            if (!taken && (best == c->experts || better(logit, e, best))) best = e;
        }
        chosen[k] = (int32_t)best;
    }
    for (size_t k = 1; WRONG == 9 && k < c->top_k; k++) {
        for (size_t j = k; j > 0 && chosen[j] < chosen[j - 1]; j--) {
            const int32_t other = chosen[j];
            chosen[j] = chosen[j - 1], chosen[j - 1] = other;
        }
    }
}

static int router(const spw_kernel_call *c) {
    enum { MOST = 64 };
    float logit[MOST] = {0};
    if (c->experts > MOST) return 1;
    for (size_t t = 0; t < c->tokens; t++) {
        float *weight = (float *)c->output + t * c->top_k;
        double sum = 0, chosen = 0;
        for (size_t e = 0; e < c->experts; e++) {
            logit[e] = get(c, c->input[0], t * c->experts + e);
            sum += exp((double)logit[e]);
        }
        choose(c, logit, c->index + t * c->top_k);
        for (size_t k = 0; k < c->top_k; k++) {
            const double x = (double)logit[c->index[t * c->top_k + k]];
            weight[k] = (float)(c->sigmoid ? 1 / (1 + exp(-x)) : exp(x) / sum);
            chosen += (double)weight[k];
        }
        for (size_t k = 0; c->renormalize && WRONG != 8 && k < c->top_k; k++)
            weight[k] = (float)((double)weight[k] / chosen);
    }
    return 0;
}

/* --- Between ranks: 10 walks down the sources the other way, 11 forgets a rank's last row, 12 writes a row behind; 13 counts a rank
 * for every expert of it, 14 forgets the last rank, 15 leaves tokens that went nowhere --- */

static int goes(const spw_kernel_call *c, size_t item, size_t rank) {
    const int32_t *expert = (const int32_t *)c->input[1] + item * c->top_k;
    int count = 0;
    for (size_t k = 0; k < c->top_k; k++)
        count += expert[k] >= 0 && (size_t)expert[k] / (c->experts / c->ranks) == rank;
    return count;
}

static int dispatch(const spw_kernel_call *c) {
    const size_t items = c->ranks * c->tokens;
    for (size_t d = 0; d < c->ranks; d++) {
        size_t row = (size_t)c->offset[d];
        for (size_t i = 0; i < items; i++) {
            const size_t item = WRONG == 10 ? (i + c->tokens) % items : i;
            if (goes(c, item, d) == 0 || (WRONG == 11 && row + 1 == (size_t)c->offset[d + 1])) continue;
            for (size_t h = 0; h < c->in; h++)
                put(c, row * c->in + h, (double)get(c, c->input[0], item * c->in + h));
            row++;
        }
    }
    if (WRONG == 12) put(c, c->rows * c->in, 0);
    return 0;
}

static int combine(const spw_kernel_call *c) {
    enum { MOST = 64 };
    size_t next[MOST];
    const size_t items = c->ranks * c->tokens, last = c->ranks - (WRONG == 14);
    if (c->ranks > MOST || c->in > (size_t)MOST * MOST) return 1;
    for (size_t d = 0; d < c->ranks; d++) next[d] = (size_t)c->offset[d];
    for (size_t item = 0; item < items; item++) {
        double sum[MOST * MOST] = {0};
        int went = 0;
        for (size_t d = 0; d < last; d++) {
            const int count = goes(c, item, d);
            for (size_t h = 0; count > 0 && h < c->in; h++)
                sum[h] += (double)get(c, c->input[0], next[d] * c->in + h) * (WRONG == 13 ? count : 1);
            next[d] += count > 0;
            went += count;
        }
        for (size_t h = 0; h < c->in && (WRONG != 15 || went > 0); h++) put(c, item * c->in + h, sum[h]);
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
                 [SPW_KERNEL_SWIGLU] = swiglu,
                 [SPW_KERNEL_ROUTER] = router,
                 [SPW_KERNEL_DISPATCH] = dispatch,
                 [SPW_KERNEL_COMBINE] = combine},
};

const spw_plugin_table *spw_plugin(void) { return &table; }
