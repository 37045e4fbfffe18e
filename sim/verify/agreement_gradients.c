/* The gradients of the plain layer against central differences of its formula in fp64. */
#include "sim/verify/agreement.h"

#include "base/memory.h"
#include "sim/verify/plain_layer.h"

#include <math.h>
#include <stdio.h>

enum { TOKENS = 6, EXPERTS = 4, TOP_K = 2, HIDDEN = 8, FFN = 6, KINDS = 5, LONGEST = TOKENS * HIDDEN };
enum { TERMS = 2 * HIDDEN + FFN + TOKENS + TOP_K + 8 }; /* roundings on the longest way to a gradient */
static const double STEP = 0x1p-13;
static const double SLOPE = 1.1, CURVE = 0.5; /* bounds of |silu'| and |silu''| */

typedef enum kind { X, WEIGHT, W0, W1, WO } kind;
static const char *const kind_names[KINDS] = {"x", "router weights", "w0", "w1", "wo"};
static const size_t kind_counts[KINDS] = {(size_t)TOKENS * HIDDEN, (size_t)TOKENS *TOP_K,
                                          (size_t)EXPERTS *HIDDEN *FFN, (size_t)EXPERTS *HIDDEN *FFN,
                                          (size_t)EXPERTS *FFN *HIDDEN};

/* What the loss is a function of, in fp64, and its yardstick: for each number the sum of the magnitudes of all terms
 * of its gradient. */
typedef struct point {
    double value[KINDS][EXPERTS * HIDDEN * FFN];
    double scale[KINDS][EXPERTS * HIDDEN * FFN];
    double dy[LONGEST];
    int32_t expert[TOKENS * TOP_K];
} point;

/* sum over t, h of dy[t][h] * sum over k of weight[t][k] * (silu(x w0) * (x w1)) wo */
static double loss(const point *p) {
    double sum = 0.0;
    for (size_t i = 0; i < (size_t)TOKENS * TOP_K; i++) {
        const size_t t = i / TOP_K, e = (size_t)p->expert[i];
        for (size_t f = 0; f < FFN; f++) {
            double gate = 0.0, up = 0.0, down = 0.0;
            for (size_t h = 0; h < HIDDEN; h++) {
                gate += p->value[X][t * HIDDEN + h] * p->value[W0][(e * HIDDEN + h) * FFN + f];
                up += p->value[X][t * HIDDEN + h] * p->value[W1][(e * HIDDEN + h) * FFN + f];
                down += p->dy[t * HIDDEN + h] * p->value[WO][(e * FFN + f) * HIDDEN + h];
            }
            sum += p->value[WEIGHT][i] * gate / (1.0 + exp(-gate)) * up * down;
        }
    }
    return sum;
}

/* Every factor of every term by its magnitude, and what a rounded gate does to silu and its slope. */
static void fill_scales(point *p) {
    for (size_t i = 0; i < (size_t)TOKENS * TOP_K; i++) {
        const size_t t = i / TOP_K, e = (size_t)p->expert[i];
        const double weight = fabs(p->value[WEIGHT][i]);
        for (size_t f = 0; f < FFN; f++) {
            double gate = 0.0, up = 0.0, down = 0.0;
            for (size_t h = 0; h < HIDDEN; h++) {
                gate += fabs(p->value[X][t * HIDDEN + h] * p->value[W0][(e * HIDDEN + h) * FFN + f]);
                up += fabs(p->value[X][t * HIDDEN + h] * p->value[W1][(e * HIDDEN + h) * FFN + f]);
                down += fabs(p->dy[t * HIDDEN + h] * p->value[WO][(e * FFN + f) * HIDDEN + h]);
            }
            const double to_gate = weight * down * up * (SLOPE + CURVE * gate),
                         to_up = weight * down * gate * (1.0 + SLOPE);
            const double act = gate * up * (1.0 + SLOPE);
            p->scale[WEIGHT][i] += act * down;
            for (size_t h = 0; h < HIDDEN; h++) {
                const size_t in = (e * HIDDEN + h) * FFN + f, out = (e * FFN + f) * HIDDEN + h;
                const double x = fabs(p->value[X][t * HIDDEN + h]);
                p->scale[X][t * HIDDEN + h] +=
                    to_gate * fabs(p->value[W0][in]) + to_up * fabs(p->value[W1][in]);
                p->scale[W0][in] += x * to_gate;
                p->scale[W1][in] += x * to_up;
                p->scale[WO][out] += weight * act * fabs(p->dy[t * HIDDEN + h]);
            }
        }
    }
}

static void check_kind(point *p, kind which, const float *gradient, spw_verify_tally *tally) {
    for (size_t i = 0; i < kind_counts[which]; i++) {
        const double middle = p->value[which][i];
        p->value[which][i] = middle + STEP;
        const double above = loss(p);
        p->value[which][i] = middle - STEP;
        const double difference = (above - loss(p)) / (2.0 * STEP);
        p->value[which][i] = middle;
        const double error = fabs((double)gradient[i] - difference);
        const double limit = (TERMS + 2.0) * 0x1p-24 * p->scale[which][i];
        const bool good = error <= limit;
        tally->comparisons++;
        tally->agreed += good;
        if (good && limit > 0.0 && error / limit > tally->worst_share) tally->worst_share = error / limit;
        if (good || tally->first_miss[0] != '\0') continue;
        (void)snprintf(tally->first_miss, sizeof tally->first_miss,
                       "gradient of %s, element %zu: %.9g, by differences %.9g, allowed error %.3g",
                       kind_names[which], i, (double)gradient[i], difference, limit);
    }
}

spw_status spw_verify_gradients(uint64_t seed, spw_verify_tally *tally) {
    const spw_layer_shape shape = {.ranks = 1,
                                   .experts = EXPERTS,
                                   .top_k = TOP_K,
                                   .hidden = HIDDEN,
                                   .ffn = FFN,
                                   .tokens = TOKENS,
                                   .assignments = (size_t)TOKENS * TOP_K};
    spw_plain_layer layer = {.x = NULL};
    point *p = NULL;
    spw_status status = SPW_ALLOC(1, &p);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < (size_t)TOKENS * TOP_K; i++)
        p->expert[i] = (int32_t)((seed + i / TOP_K * 3 + i % TOP_K * (1 + i / TOP_K % 2)) % EXPERTS);
    SPW_TRY(spw_plain_layer_create(&shape, seed, &layer));
    const spw_plain_routing routing = {
        .slots = TOP_K, .expert = p->expert, .weight = layer.weight, .weighted_activation = seed % 2 == 0};
    SPW_TRY(spw_plain_layer_run(&shape, &routing, &layer));
    const float *const value[KINDS] = {layer.x, layer.weight, layer.weights.w0, layer.weights.w1,
                                       layer.weights.wo};
    const float *const gradient[KINDS] = {layer.dx, layer.d_weight, layer.gradients.w0, layer.gradients.w1,
                                          layer.gradients.wo};
    for (int k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < kind_counts[k]; i++) p->value[k][i] = (double)value[k][i];
    }
    for (size_t i = 0; i < (size_t)TOKENS * HIDDEN; i++) p->dy[i] = (double)layer.dy[i];
    fill_scales(p);
    for (int k = 0; k < KINDS; k++) check_kind(p, (kind)k, gradient[k], tally);
    tally->cases++;

cleanup:
    spw_plain_layer_destroy(&layer);
    spw_free(p);
    return status;
}
