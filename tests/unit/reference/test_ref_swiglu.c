/* SwiGLU and its gradient: pencil and paper, and central differences in fp64, plain and clamped. */
#include "reference/swiglu.h"
#include "tests/unit/check.h"
#include "tests/unit/compare.h"
#include "tests/unit/ref_random.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { COUNT = 400 };

static double exact(spw_swiglu kind, double g, double u) {
    if (kind.limit > 0) {
        g = fmin(g, (double)kind.limit);
        u = fmax(fmin(u, (double)kind.limit), -(double)kind.limit);
        return g / (1 + exp(-(double)kind.alpha * g)) * (u + 1);
    }
    if (kind.gate == SPW_GATE_GELU) /* 1 + tanh(x) without its cancellation */
        return g / (1 + exp(-2 * sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g))) * u;
    return g / (1 + exp(-g)) * u;
}

static void pencil(void) {
    const spw_swiglu plain = {0, 0}, clamped = {7, 1.702f};
    const float gate[] = {0, 100, -200, 8}, up[] = {3, 2, 5, -9}, ones[] = {1, 1, 1, 1};
    float act[4], scale[4], dg[4], du[4];
    spw_ref_swiglu(plain, 4, gate, up, act, scale);
    CHECK(act[0] == 0.0f && act[1] == 200.0f && act[2] == 0.0f && scale[1] == 200.0f);
    spw_ref_swiglu_gradient(plain, 4, gate, up, ones, (spw_swiglu_gradients){dg, du, scale});
    CHECK(dg[0] == 1.5f && du[0] == 0.0f && dg[1] == 2.0f && du[1] == 100.0f && dg[2] == 0.0f &&
          du[2] == 0.0f);
    spw_ref_swiglu(clamped, 4, gate, up, act, NULL);
    CHECK(fabsf(act[3] + 42.0f) < 1e-3f); /* 7 * sigmoid(11.9) * (-7 + 1) */
    spw_ref_swiglu_gradient(clamped, 4, gate, up, ones, (spw_swiglu_gradients){dg, du, NULL});
    CHECK(dg[3] == 0.0f && du[3] == 0.0f && dg[1] == 0.0f && du[1] > 6.9f);
    memcpy(act, gate, sizeof act);
    spw_ref_swiglu(plain, 4, act, up, act, NULL); /* in place */
    CHECK(act[1] == 200.0f);
}

/* fp64 differences with h = 1e-5 err by about 1e-9; results are rounded once. The points stay off the kinks. */
static void differences(spw_swiglu kind, uint64_t seed) {
    float gate[COUNT], up[COUNT], d[COUNT], want[COUNT], want_g[COUNT], want_u[COUNT];
    float *act = fenced_create(COUNT), *scale = fenced_create(COUNT), *dg = fenced_create(COUNT),
          *du = fenced_create(COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        gate[i] = 10 * random_uniform(&seed), up[i] = 10 * random_uniform(&seed),
        d[i] = random_uniform(&seed);
        if (fabsf(gate[i] - kind.limit) < 0.01f) gate[i] += 0.1f;
        if (fabsf(fabsf(up[i]) - kind.limit) < 0.01f) up[i] = 0.5f;
    }
    const int threads[] = {1, 2, 7};
    for (size_t n = 0; n < 3; n++) {
        omp_set_num_threads(threads[n]);
        spw_ref_swiglu(kind, COUNT, gate, up, act, scale);
        spw_ref_swiglu_gradient(kind, COUNT, gate, up, d, (spw_swiglu_gradients){dg, du, scale});
        if (n == 0)
            memcpy(want, act, sizeof want), memcpy(want_g, dg, sizeof want), memcpy(want_u, du, sizeof want);
        CHECK_OK(compare_exact(act, want, COUNT));
        CHECK_OK(compare_exact(dg, want_g, COUNT));
        CHECK_OK(compare_exact(du, want_u, COUNT));
    }
    const double h = 1e-5;
    for (size_t i = 0; i < COUNT; i++) {
        const double g = (double)gate[i], u = (double)up[i], e = (double)d[i];
        const double by_gate = e * (exact(kind, g + h, u) - exact(kind, g - h, u)) / (2 * h);
        const double by_up = e * (exact(kind, g, u + h) - exact(kind, g, u - h)) / (2 * h);
        CHECK(fabs((double)act[i] - exact(kind, g, u)) <= 0x1p-24 * fabs(exact(kind, g, u)) + 1e-45);
        CHECK(fabs((double)dg[i] - by_gate) <= 1e-8 + 0x1p-23 * (double)scale[i]);
        CHECK(fabs((double)du[i] - by_up) <= 1e-8 + 0x1p-23 * fabs(by_up));
        CHECK((double)scale[i] >= fabs((double)dg[i]) * (1 - 0x1p-22));
    }
    float *all[] = {act, scale, dg, du};
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(fenced_check(all[i], COUNT));
        fenced_destroy(all[i]);
    }
}

/* Without a gate: 3^2 and its slope 6; GELU of 1 is 0.8413447 (table of the normal distribution); slopes by differences. */
static void plain(void) {
    const float gate[] = {3.0f, -2.0f, 1.0f, -1.0f}, d[] = {1.0f, 1.0f, 2.0f, 1.0f};
    float act[4], dg[4], du[4], scale[4];
    spw_ref_swiglu((spw_swiglu){.plain = SPW_RELU2}, 4, gate, NULL, act, NULL);
    spw_ref_swiglu_gradient((spw_swiglu){.plain = SPW_RELU2}, 4, gate, NULL, d,
                            (spw_swiglu_gradients){dg, du, scale});
    CHECK(act[0] == 9.0f && act[1] == 0.0f && act[2] == 1.0f && act[3] == 0.0f);
    CHECK(dg[0] == 6.0f && dg[1] == 0.0f && dg[2] == 4.0f && du[0] == 0.0f && scale[2] == 4.0f);
    const spw_swiglu gelu = {.plain = SPW_GELU};
    spw_ref_swiglu(gelu, 4, gate, NULL, act, NULL);
    spw_ref_swiglu_gradient(gelu, 4, gate, NULL, d, (spw_swiglu_gradients){dg, NULL, NULL});
    CHECK(fabs((double)act[2] - 0.8413447461) < 1e-7 && fabs((double)act[3] + 0.1586552539) < 1e-7);
    for (size_t i = 0; i < 4; i++) {
        const float h = 1e-3f, near_gate[] = {gate[i] - h, gate[i] + h};
        float two[2];
        spw_ref_swiglu(gelu, 2, near_gate, NULL, two, NULL);
        const double slope =
            ((double)two[1] - (double)two[0]) / ((double)near_gate[1] - (double)near_gate[0]);
        CHECK(fabs((double)dg[i] - (double)d[i] * slope) < 1e-3);
    }
}

/* GeGLU: tanh's form of GELU times up. GELU of 1 is 0.8411920, of -2 is -0.0454023 (0.5 g (1 + tanh(0.7978846 (g + 0.044715 g^3)))). */
static void geglu(void) {
    const spw_swiglu kind = {.gate = SPW_GATE_GELU};
    const float gate[] = {1.0f, -2.0f, 0.0f, 1000.0f, -1000.0f}, up[] = {1.0f, 2.0f, 5.0f, 1.0f, 1.0f};
    float act[5];
    spw_ref_swiglu(kind, 5, gate, up, act, NULL);
    CHECK(fabs((double)act[0] - 0.8411920) < 1e-6 && fabs((double)act[1] + 2 * 0.0454023) < 1e-6);
    CHECK(act[2] == 0.0f && act[3] == 1000.0f && act[4] == 0.0f);
    for (int i = -40; i <= 40; i++) {
        const float at = (float)i / 8, one = 1.0f;
        spw_ref_swiglu(kind, 1, &at, &one, act, NULL);
        const double g = (double)at, x = sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g);
        CHECK(fabs((double)act[0] - 0.5 * g * (1 + tanh(x))) < 1e-6);
    }
}

int main(void) {
    pencil();
    plain();
    geglu();
    for (uint64_t seed = 1; seed <= 5; seed++) {
        differences((spw_swiglu){0, 0}, seed);
        differences((spw_swiglu){7.0f, 1.702f}, seed);
        differences((spw_swiglu){.gate = SPW_GATE_GELU}, seed);
    }
    return check_done();
}
