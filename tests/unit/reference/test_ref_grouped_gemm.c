/* Grouped GEMM: pencil and paper, the blocked version against the plain one, gradients against differences,
 * and kernels that are wrong on purpose. */
#include "base/memory.h"
#include "reference/grouped_gemm.h"
#include "reference/grouped_gemm_plain.h"
#include "tests/unit/check.h"
#include "tests/unit/compare.h"
#include "tests/unit/ref_random.h"

#include <omp.h>
#include <stdbool.h>
#include <string.h>

typedef struct routing_case {
    const char *name;
    spw_gemm_shape shape;
    size_t offset[5]; /* experts + 1 used */
} routing_case;

/* Tiles are 12 x 16, blocks 144 x 192, and sums are cut every 192 terms: the edges are around those. */
static const routing_case cases[] = {
    {"balanced", {4, 8, 16, 8, false}, {0, 2, 4, 6, 8}},
    {"empty expert", {4, 7, 5, 3, false}, {0, 3, 3, 6, 7}},
    {"all to the last", {4, 9, 33, 17, false}, {0, 0, 0, 0, 9}},
    {"single row", {1, 1, 1, 1, true}, {0, 1}},
    {"no rows", {2, 0, 4, 4, true}, {0, 0, 0}},
    {"unused tail", {3, 20, 12, 16, false}, {0, 12, 12, 13}},
    {"just over a tile", {2, 26, 13, 17, true}, {0, 13, 26}},
    {"just over a block", {2, 300, 193, 193, false}, {0, 145, 300}},
    {"just over a block, transposed", {2, 300, 193, 257, true}, {0, 0, 257}},
};

typedef spw_status gemm(spw_gemm_shape, const float *, const float *, const size_t *, float *, float *);
typedef struct operation {
    const char *name;
    gemm *fast, *plain;
} operation;
static const operation operations[] = {
    {"forward", spw_ref_grouped_gemm, spw_ref_grouped_gemm_plain},
    {"input gradient", spw_ref_grouped_gemm_input_gradient, spw_ref_grouped_gemm_input_gradient_plain},
    {"weight gradient", spw_ref_grouped_gemm_weight_gradient, spw_ref_grouped_gemm_weight_gradient_plain},
};

typedef struct sizes {
    size_t a, b, out, terms;
} sizes;

static sizes sizes_of(spw_gemm_shape s, size_t which) {
    const size_t x = s.rows * s.in, y = s.rows * s.out, w = s.experts * s.in * s.out;
    const sizes all[] = {{x, w, y, s.in}, {y, w, x, s.out}, {x, y, w, s.rows}};
    return all[which];
}

/* Results that are wrong on purpose; the judge must reject them, or it has no teeth. */
static void check_judge(const float *want, const float *scale, sizes n, float *got) {
    for (int how = 0; how < 4 && n.out > 0; how++) {
        memcpy(got, want, n.out * sizeof *got);
        const size_t last = n.out - 1;
        if (how == 0) poison(got, 1); /* one element never written */
        if (how == 1) got[last] += 2 * ((float)n.terms + 3) * 0x1p-24f * (scale[last] + 1); /* slightly off */
        if (how == 2) got[0] = got[0] > 0 ? -got[0] - 1 : 1 - got[0];                       /* wrong sign */
        if (how == 3) got[last] = 1e38f * 10;                                               /* infinity */
        CHECK_STATUS(compare_sum(got, want, scale, n.terms, n.out), SPW_EMISMATCH);
        CHECK_STATUS(compare_exact(got, want, n.out), SPW_EMISMATCH);
    }
}

static void run_case(const routing_case *c, size_t which, bool transposed, float (*draw)(uint64_t *),
                     uint64_t seed) {
    spw_gemm_shape s = c->shape;
    s.transposed ^= transposed;
    const sizes n = sizes_of(s, which);
    uint64_t state = seed;
    float *a = NULL, *b = NULL;
    CHECK_OK(SPW_ALLOC(n.a, &a));
    CHECK_OK(SPW_ALLOC(n.b, &b));
    random_fill(&state, draw, a, n.a);
    random_fill(&state, draw, b, n.b);
    float *want = fenced_create(n.out), *scale = fenced_create(n.out);
    CHECK_OK(operations[which].plain(s, a, b, c->offset, want, scale));
    const int threads[] = {1, 2, 7};
    for (size_t i = 0; i < 3; i++) {
        float *got = fenced_create(n.out), *got_scale = fenced_create(n.out);
        omp_set_num_threads(threads[i]);
        CHECK_OK(operations[which].fast(s, a, b, c->offset, got, got_scale));
        CHECK_OK(compare_exact(got, want, n.out));
        CHECK_OK(compare_exact(got_scale, scale, n.out));
        CHECK_OK(operations[which].fast(s, a, b, c->offset, got, NULL));
        CHECK_OK(compare_exact(got, want, n.out));
        CHECK_OK(fenced_check(got, n.out));
        CHECK_OK(fenced_check(got_scale, n.out));
        if (i == 0) check_judge(want, scale, n, got);
        fenced_destroy(got_scale), fenced_destroy(got);
    }
    CHECK_OK(fenced_check(want, n.out));
    fenced_destroy(scale), fenced_destroy(want);
    spw_free(b), spw_free(a);
}

/* Two experts, rows [1 2], [3 4] and [5 6]; the first two belong to expert 0. */
static void pencil(void) {
    const float x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, 2, 0, 1, 3, /**/ 1, 1, 1, 2, 2, 2};
    const float wt[] = {1, 0, 0, 1, 2, 3, /**/ 1, 2, 1, 2, 1, 2};
    const float y[] = {1, 2, 8, 3, 4, 18, 17, 17, 17}, scale[] = {1, 2, 8, 3, 4, 18, 17, 17, 17};
    const float dx[] = {1 + 16, 2 + 24, 3 + 36, 4 + 54, 51, 102};
    const float dw[] = {1 + 9, 2 + 12, 8 + 54, 2 + 12, 4 + 16, 16 + 72, /**/ 85, 85, 85, 102, 102, 102};
    const size_t offset[] = {0, 2, 3};
    spw_gemm_shape s = {.experts = 2, .rows = 3, .in = 2, .out = 3};
    float got[12], got_scale[12];
    CHECK_OK(spw_ref_grouped_gemm_plain(s, x, w, offset, got, got_scale));
    CHECK_OK(compare_exact(got, y, 9));
    CHECK_OK(compare_exact(got_scale, scale, 9));
    CHECK_OK(spw_ref_grouped_gemm_weight_gradient_plain(s, x, y, offset, got, NULL));
    CHECK_OK(compare_exact(got, dw, 12));
    CHECK_OK(spw_ref_grouped_gemm_input_gradient_plain(s, y, w, offset, got, NULL));
    CHECK_OK(compare_exact(got, dx, 6));
    s.transposed = true;
    CHECK_OK(spw_ref_grouped_gemm_plain(s, x, wt, offset, got, NULL));
    CHECK_OK(compare_exact(got, y, 9));
    CHECK_OK(spw_ref_grouped_gemm_weight_gradient_plain(s, x, y, offset, got, NULL));
    const float dwt[] = {dw[0], dw[3], dw[1], dw[4], dw[2], dw[5], 85, 102, 85, 102, 85, 102};
    CHECK_OK(compare_exact(got, dwt, 12));
}

/* y is bilinear, so <dy, y(x)> has the gradients dx and dw exactly: <dx, v> = <dy, y(v)>, <dw, v> likewise. */
static void adjoint(void) {
    enum { ROWS = 9, IN = 5, OUT = 7, EXPERTS = 3 };
    const spw_gemm_shape s = {.experts = EXPERTS, .rows = ROWS, .in = IN, .out = OUT};
    const size_t offset[] = {0, 4, 4, 9};
    uint64_t state = 5;
    float x[ROWS * IN], w[EXPERTS * IN * OUT], dy[ROWS * OUT], y[ROWS * OUT], dx[ROWS * IN],
        dw[EXPERTS * IN * OUT];
    random_fill(&state, random_integer, x, ROWS * IN);
    random_fill(&state, random_integer, w, EXPERTS * IN * OUT);
    random_fill(&state, random_integer, dy, ROWS * OUT);
    CHECK_OK(spw_ref_grouped_gemm(s, x, w, offset, y, NULL));
    CHECK_OK(spw_ref_grouped_gemm_input_gradient(s, dy, w, offset, dx, NULL));
    CHECK_OK(spw_ref_grouped_gemm_weight_gradient(s, x, dy, offset, dw, NULL));
    double by_y = 0, by_x = 0, by_w = 0;
    for (size_t i = 0; i < ROWS * OUT; i++) by_y += (double)dy[i] * (double)y[i];
    for (size_t i = 0; i < ROWS * IN; i++) by_x += (double)dx[i] * (double)x[i];
    for (size_t i = 0; i < EXPERTS * IN * OUT; i++) by_w += (double)dw[i] * (double)w[i];
    CHECK(by_y == by_x);
    CHECK(by_y == by_w);
    for (size_t i = IN * OUT; i < 2 * IN * OUT; i++) CHECK(dw[i] == 0.0f); /* expert 1 has no rows */
}

static void damage(void) {
    const size_t backwards[] = {0, 2, 1}, late[] = {1, 1, 1}, beyond[] = {0, 1, 2};
    const size_t *bad[] = {backwards, late, beyond};
    float one[4] = {1, 1, 1, 1};
    const spw_gemm_shape s = {.experts = 2, .rows = 1, .in = 1, .out = 1};
    for (size_t i = 0; i < 3; i++) {
        for (size_t o = 0; o < 3; o++) {
            CHECK_STATUS(operations[o].fast(s, one, one, bad[i], one, NULL), SPW_EARG);
            CHECK_STATUS(operations[o].plain(s, one, one, bad[i], one, NULL), SPW_EARG);
        }
    }
    const size_t good[] = {0, 1, 1};
    for (int n = 0; n < 3; n++) {
        for (size_t o = 0; o < 3; o++) {
            spw_alloc_fail_after(n);
            CHECK_STATUS(operations[o].fast(s, one, one, good, one, NULL), SPW_ENOMEM);
        }
    }
    spw_alloc_fail_after(-1);
}

int main(void) {
    pencil();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t o = 0; o < 3; o++) {
            run_case(&cases[i], o, false, random_uniform, i + 1);
            run_case(&cases[i], o, true, random_integer, i + 1);
        }
    }
    adjoint();
    damage();
    return check_done();
}
