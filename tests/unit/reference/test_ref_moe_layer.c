/* The whole layer: forward against fp64 loops, every gradient against central differences of those loops. */
#include "base/memory.h"
#include "reference/moe_layer.h"
#include "tests/unit/check.h"
#include "tests/unit/compare.h"
#include "tests/unit/ref_random.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { TOKENS = 7, HIDDEN = 6, FFN = 5, SHARED = 9, EXPERTS = 8, TOP_K = 2 };
enum { WR = HIDDEN * EXPERTS, WE = EXPERTS * HIDDEN * FFN, WS = HIDDEN * SHARED, NX = TOKENS * HIDDEN };

/* Everything that the loss depends on, in one array: x, router, w0, w1, wo, shared w0, w1, wo. */
enum {
    X = 0,
    R = X + NX,
    W0 = R + WR,
    W1 = W0 + WE,
    WO = W1 + WE,
    S0 = WO + WE,
    S1 = S0 + WS,
    SO = S1 + WS,
    ALL = SO + WS
};
static const struct {
    const char *name;
    size_t first, end;
} parts[] = {{"x", X, R},    {"router", R, W0},     {"w0", W0, W1},        {"w1", W1, WO},
             {"wo", WO, S0}, {"shared w0", S0, S1}, {"shared w1", S1, SO}, {"shared wo", SO, ALL}};

static const spw_moe_shape shapes[] = {
    {.router = {TOKENS, EXPERTS, TOP_K, SPW_SCORE_SOFTMAX, 1, 1, 1, true, 1.0f},
     .hidden = HIDDEN,
     .ffn = FFN,
     .shared_ffn = 0,
     .auxiliary_coefficient = 0.1,
     .z_coefficient = 0.01},
    {.router = {TOKENS, EXPERTS, TOP_K, SPW_SCORE_SIGMOID, 4, 2, 1, true, 2.5f},
     .hidden = HIDDEN,
     .ffn = FFN,
     .shared_ffn = SHARED,
     .auxiliary_coefficient = 0.1},
    {.router = {TOKENS, EXPERTS, TOP_K, SPW_SCORE_SOFTMAX, 1, 1, 1, false, 1.0f},
     .hidden = HIDDEN,
     .ffn = FFN,
     .shared_ffn = SHARED,
     .activation = {7.0f, 1.702f},
     .z_coefficient = 0.02},
};

static double activation(spw_swiglu kind, double g, double u) {
    if (kind.limit > 0)
        return g / (1 + exp(-(double)kind.alpha * g)) * (u + 1); /* the data stay within the limit */
    return g / (1 + exp(-g)) * u;
}

/* y += weight * ffn(x) */
static void ffn(spw_swiglu kind, size_t width, double weight, const double *x, const double *w0,
                const double *w1, const double *wo, double *y) {
    for (size_t f = 0; f < width; f++) {
        double g = 0, u = 0;
        for (size_t h = 0; h < HIDDEN; h++) g += x[h] * w0[h * width + f], u += x[h] * w1[h * width + f];
        const double act = weight * activation(kind, g, u);
        for (size_t h = 0; h < HIDDEN; h++) y[h] += act * wo[f * HIDDEN + h];
    }
}

/* The layer's loss in fp64 with the choice given; y if not NULL. */
static double loss_of(const spw_moe_shape *s, const double *p, const int32_t *expert, const float *dy,
                      double *y) {
    const spw_router *r = &s->router;
    double loss = 0, count[EXPERTS] = {0};
    for (size_t i = 0; i < TOKENS * TOP_K; i++) count[expert[i]] += 1;
    for (size_t t = 0; t < TOKENS; t++) {
        double score[EXPERTS], exps = 0, sum = 0, chosen = 0, out[HIDDEN] = {0};
        const double *x = p + X + t * HIDDEN;
        for (size_t e = 0; e < EXPERTS; e++) {
            double z = 0;
            for (size_t h = 0; h < HIDDEN; h++) z += x[h] * p[R + h * EXPERTS + e];
            score[e] = exp(z), exps += exp(z);
        }
        for (size_t e = 0; e < EXPERTS; e++) {
            score[e] /= r->score == SPW_SCORE_SOFTMAX ? exps : 1 + score[e];
            sum += score[e];
        }
        for (size_t k = 0; k < TOP_K; k++) chosen += score[expert[t * TOP_K + k]];
        for (size_t k = 0; k < TOP_K; k++) {
            const size_t e = (size_t)expert[t * TOP_K + k], at = e * HIDDEN * FFN;
            const double weight = (double)r->scaling * score[e] / (r->renormalize ? chosen : 1);
            ffn(s->activation, FFN, weight, x, p + W0 + at, p + W1 + at, p + WO + at, out);
        }
        if (s->shared_ffn > 0) ffn(s->activation, SHARED, 1, x, p + S0, p + S1, p + SO, out);
        for (size_t h = 0; h < HIDDEN; h++) loss += (double)dy[t * HIDDEN + h] * out[h];
        for (size_t h = 0; h < HIDDEN && y != NULL; h++) y[t * HIDDEN + h] = out[h];
        for (size_t e = 0; e < EXPERTS; e++) {
            loss +=
                s->auxiliary_coefficient * EXPERTS * count[e] / (TOP_K * TOKENS) * score[e] / sum / TOKENS;
        }
        loss += s->z_coefficient * log(exps) * log(exps) / TOKENS;
    }
    return loss;
}

static spw_moe_weights weights_in(const float *p) {
    return (spw_moe_weights){
        .router = p + R, .routed = {p + W0, p + W1, p + WO}, .shared = {p + S0, p + S1, p + SO}};
}
static spw_moe_gradients gradients_in(float *p) {
    return (spw_moe_gradients){
        .x = p + X, .router = p + R, .routed = {p + W0, p + W1, p + WO}, .shared = {p + S0, p + S1, p + SO}};
}

/* Roundings on a way through the layer: sums over hidden (three times), ffn (twice), tokens, experts, top_k.
 * Each errs by 2^-24 of terms that are bounded by the largest of the tensor, in this small layer. Differences
 * err by 1e-8. */
static const double unit = (3 * HIDDEN + 2 * FFN + TOKENS + EXPERTS + TOP_K + 2) * 0x1p-24;

static double largest(const double *x, size_t first, size_t end) {
    double m = 1;
    for (size_t i = first; i < end; i++) m = fmax(m, fabs(x[i]));
    return m;
}

static void check_gradients(const spw_moe_shape *s, const float *p, const int32_t *expert, const float *dy,
                            const float *got) {
    double exact[ALL], want[ALL];
    const double h = 1e-5;
    for (size_t i = 0; i < ALL; i++) exact[i] = (double)p[i];
    for (size_t i = 0; i < ALL; i++) {
        exact[i] = (double)p[i] + h;
        want[i] = loss_of(s, exact, expert, dy, NULL);
        exact[i] = (double)p[i] - h;
        want[i] = (want[i] - loss_of(s, exact, expert, dy, NULL)) / (2 * h);
        exact[i] = (double)p[i];
    }
    for (size_t n = 0; n < sizeof parts / sizeof parts[0]; n++) {
        if (s->shared_ffn == 0 && parts[n].first >= S0) continue;
        const double limit = 1e-8 + unit * largest(want, parts[n].first, parts[n].end);
        size_t wrong = 0;
        for (size_t i = parts[n].first; i < parts[n].end; i++)
            wrong += !(fabs((double)got[i] - want[i]) <= limit);
        CHECK(wrong == 0);
        if (wrong > 0)
            fprintf(stderr, "gradient of %s: %zu elements beyond %.3g\n", parts[n].name, wrong, limit);
    }
}

static void layer(const spw_moe_shape *s, uint64_t seed) {
    float p[ALL], dy[NX], y_first[NX];
    double exact[ALL], y_want[NX], loss;
    random_fill(&seed, random_uniform, p, ALL);
    random_fill(&seed, random_uniform, dy, NX);
    for (size_t i = 0; i < ALL; i++) exact[i] = (double)p[i];
    float *y = fenced_create(NX), *got = fenced_create(ALL), *first = fenced_create(ALL);
    const spw_moe_weights w = weights_in(p);
    spw_moe_gradients g = gradients_in(got);
    const int threads[] = {1, 2, 7};
    for (size_t n = 0; n < 3; n++) {
        spw_moe_state state;
        omp_set_num_threads(threads[n]);
        poison(y, NX), poison(got, ALL);
        CHECK_OK(spw_ref_moe(s, p + X, &w, &state, y));
        loss = loss_of(s, exact, state.expert, dy, y_want) - state.auxiliary_loss - state.z_loss;
        for (size_t i = 0; i < NX; i++) {
            CHECK(fabs((double)y[i] - y_want[i]) <= unit * largest(y_want, 0, NX));
            loss -= (double)y[i] * (double)dy[i];
        }
        CHECK(fabs(loss) <= NX * unit * largest(y_want, 0, NX));
        CHECK_OK(spw_ref_moe_gradient(s, p + X, dy, &w, &state, &g));
        if (n == 0) {
            check_gradients(s, p, state.expert, dy, got);
            memcpy(first, got, ALL * sizeof *got), memcpy(y_first, y, sizeof y_first);
        }
        CHECK_OK(compare_exact(got, first, ALL)); /* poison included: nothing beyond its own */
        CHECK_OK(compare_exact(y, y_first, NX));
        spw_ref_moe_destroy(&state);
    }
    CHECK_OK(fenced_check(y, NX));
    CHECK_OK(fenced_check(got, ALL));
    fenced_destroy(first), fenced_destroy(got), fenced_destroy(y);
}

/* Every allocation of a forward and backward pass fails once. */
static void allocations(void) {
    float p[ALL] = {0}, y[NX], dy[NX] = {0}, got[ALL];
    const spw_moe_weights w = weights_in(p);
    spw_moe_gradients g = gradients_in(got);
    bool done = false;
    int n = 0;
    for (; !done && n < 200; n++) {
        spw_moe_state state;
        spw_alloc_fail_after(n);
        spw_status status = spw_ref_moe(&shapes[1], p, &w, &state, y);
        if (status == SPW_OK) status = spw_ref_moe_gradient(&shapes[1], p, dy, &w, &state, &g);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
        done = status == SPW_OK;
        spw_ref_moe_destroy(&state);
    }
    CHECK(done && n > 30);
    CHECK_STATUS(
        spw_ref_shared_expert((spw_expert_shape){.experts = 2}, p, w.shared, (spw_expert_state){0}, y),
        SPW_EARG);
}

int main(void) {
    for (uint64_t seed = 1; seed <= 4; seed++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) layer(&shapes[i], seed);
    }
    allocations();
    return check_done();
}
