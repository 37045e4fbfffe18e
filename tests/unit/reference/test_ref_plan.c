/* Plan, dispatch and combine: pencil and paper, then properties over seeds. */
#include "base/memory.h"
#include "reference/combine.h"
#include "reference/plan.h"
#include "tests/unit/check.h"
#include "tests/unit/compare.h"
#include "tests/unit/ref_random.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Three tokens, two choices, three experts; one slot is unused. */
static void pencil(void) {
    const int32_t expert[] = {2, 0, 0, -1, 2, 0};
    const int32_t row[] = {3, 0, 1, -1, 4, 2}, assignment[] = {1, 2, 5, 0, 4};
    const float x[] = {1, 2, 3}, rows_want[] = {1, 2, 3, 1, 3}, weight[] = {2, 10, 3, 7, 5, 1};
    const float outputs[] = {1, 2, 3, 4, 5}, y[] = {2 * 4 + 10 * 1, 3 * 2, 5 * 5 + 1 * 3};
    const float dy[] = {1, 2, 3}, d_rows_want[] = {10, 6, 3, 2, 15}, d_weight_want[] = {4, 1, 4, 0, 15, 9};
    spw_plan p;
    CHECK_OK(spw_ref_plan_create(3, 2, 3, expert, &p));
    CHECK(p.rows == 5);
    CHECK(p.count[0] == 3 && p.count[1] == 0 && p.count[2] == 2);
    CHECK(p.offset[0] == 0 && p.offset[1] == 3 && p.offset[2] == 3 && p.offset[3] == 5);
    CHECK(memcmp(p.row, row, sizeof row) == 0);
    CHECK(memcmp(p.assignment, assignment, sizeof assignment) == 0);
    float got[6], scale[6];
    spw_ref_permute(&p, 1, x, got);
    CHECK_OK(compare_exact(got, rows_want, 5));
    spw_ref_combine(&p, 1, outputs, weight, got, scale);
    CHECK_OK(compare_exact(got, y, 3));
    CHECK_OK(compare_exact(scale, y, 3));
    float d_rows[5];
    spw_ref_combine_gradient(&p, 1, dy, outputs, weight, (spw_combine_gradients){d_rows, got, scale});
    CHECK_OK(compare_exact(d_rows, d_rows_want, 5));
    CHECK_OK(compare_exact(got, d_weight_want, 6));
    CHECK_OK(compare_exact(scale, d_weight_want, 6));
    spw_ref_permute_gradient(&p, 1, outputs, got, scale);
    const float dx[] = {4 + 1, 2, 5 + 3};
    CHECK_OK(compare_exact(got, dx, 3));
    CHECK_OK(compare_exact(scale, dx, 3));
    spw_ref_plan_destroy(&p);
}

/* A combine that forgets one choice, or takes the neighbour's weight; both must be rejected. */
static void broken_combine(const spw_plan *p, size_t width, const float *rows, const float *weight, int how,
                           float *y) {
    for (size_t t = 0; t < p->tokens; t++) {
        for (size_t h = 0; h < width; h++) {
            float sum = 0;
            for (size_t k = how == 0 ? 1 : 0; k < p->top_k; k++) {
                const size_t i = t * p->top_k + k, other = t * p->top_k + (k + 1) % p->top_k;
                if (p->row[i] >= 0) sum += weight[how == 1 ? other : i] * rows[(size_t)p->row[i] * width + h];
            }
            y[t * width + h] = sum;
        }
    }
}

static void judge(const spw_plan *p, size_t width, const float *rows, const float *weight, const float *want,
                  const float *scale, float *got) {
    broken_combine(p, width, rows, weight, 2, got); /* the honest one, in fp32 */
    CHECK_OK(compare_sum(got, want, scale, p->top_k, p->tokens * width));
    for (int how = 0; how < 2; how++) {
        broken_combine(p, width, rows, weight, how, got);
        CHECK_STATUS(compare_sum(got, want, scale, p->top_k, p->tokens * width), SPW_EMISMATCH);
    }
}

static void round_trip(uint64_t seed, int threads) {
    enum { TOKENS = 37, TOP_K = 4, EXPERTS = 9, WIDTH = 5 };
    uint64_t state = seed;
    int32_t expert[TOKENS * TOP_K], renamed[TOKENS * TOP_K];
    float x[TOKENS * WIDTH], want[TOKENS * WIDTH], weight[TOKENS * TOP_K];
    omp_set_num_threads(threads);
    random_routing(&state, TOKENS, TOP_K, EXPERTS, expert);
    random_fill(&state, random_uniform, x, TOKENS * WIDTH);
    random_fill(&state, random_uniform, weight, TOKENS * TOP_K);
    spw_plan p, q;
    CHECK_OK(spw_ref_plan_create(TOKENS, TOP_K, EXPERTS, expert, &p));
    CHECK(p.rows == TOKENS * TOP_K);
    for (size_t r = 0; r < p.rows; r++) {
        CHECK(p.row[p.assignment[r]] == (int32_t)r);
        const size_t e = (size_t)expert[p.assignment[r]];
        CHECK(p.offset[e] <= r && r < p.offset[e + 1]);
        if (r > p.offset[e]) CHECK(p.assignment[r - 1] < p.assignment[r]);
    }
    float *rows = fenced_create(p.rows * WIDTH), *other = fenced_create(p.rows * WIDTH);
    float *got = fenced_create(TOKENS * WIDTH), *scale = fenced_create(TOKENS * WIDTH);
    spw_ref_permute(&p, WIDTH, x, rows);
    CHECK_OK(fenced_check(rows, p.rows * WIDTH));
    spw_ref_combine(&p, WIDTH, rows, NULL, got, scale); /* the same row top_k = 4 times: exact */
    for (size_t i = 0; i < TOKENS * WIDTH; i++) want[i] = 4 * x[i];
    CHECK_OK(compare_exact(got, want, TOKENS * WIDTH));
    spw_ref_permute_gradient(&p, WIDTH, rows, got, NULL);
    CHECK_OK(compare_exact(got, want, TOKENS * WIDTH));

    random_fill(&state, random_uniform, other, p.rows * WIDTH);
    spw_ref_combine(&p, WIDTH, other, weight, want, scale);
    judge(&p, WIDTH, other, weight, want, scale, got);

    spw_ref_combine(&p, WIDTH, rows, weight, want, NULL);
    for (size_t i = 0; i < TOKENS * TOP_K; i++) renamed[i] = EXPERTS - 1 - expert[i];
    CHECK_OK(spw_ref_plan_create(TOKENS, TOP_K, EXPERTS, renamed, &q));
    for (size_t e = 0; e < EXPERTS; e++) CHECK(q.count[e] == p.count[EXPERTS - 1 - e]);
    spw_ref_permute(&q, WIDTH, x, other);
    spw_ref_combine(&q, WIDTH, other, weight, got,
                    NULL); /* renaming experts changes no bit: k is the order */
    CHECK_OK(compare_exact(got, want, TOKENS * WIDTH));
    CHECK_OK(fenced_check(got, TOKENS * WIDTH));
    spw_ref_plan_destroy(&q), spw_ref_plan_destroy(&p);
    fenced_destroy(scale), fenced_destroy(got), fenced_destroy(other), fenced_destroy(rows);
}

/* With top_k = 1 and weight 1, dispatch then combine is the identity, bit for bit. */
static void identity(uint64_t seed) {
    enum { TOKENS = 50, EXPERTS = 6, WIDTH = 3 };
    int32_t expert[TOKENS];
    float x[TOKENS * WIDTH], rows[TOKENS * WIDTH], y[TOKENS * WIDTH];
    random_routing(&seed, TOKENS, 1, EXPERTS, expert);
    random_fill(&seed, random_uniform, x, TOKENS * WIDTH);
    spw_plan p;
    CHECK_OK(spw_ref_plan_create(TOKENS, 1, EXPERTS, expert, &p));
    spw_ref_permute(&p, WIDTH, x, rows);
    spw_ref_combine(&p, WIDTH, rows, NULL, y, NULL);
    CHECK_OK(compare_exact(y, x, TOKENS * WIDTH));
    spw_ref_plan_destroy(&p);
}

static void damage(void) {
    const int32_t beyond[] = {0, 3}, good[] = {0, 1};
    spw_plan p;
    CHECK_STATUS(spw_ref_plan_create(2, 1, 3, beyond, &p), SPW_EARG);
    CHECK_STATUS(spw_ref_plan_create(SIZE_MAX, 2, 3, good, &p), SPW_EARG);
    CHECK_STATUS(spw_ref_plan_create((size_t)1 << 31, 1, 3, good, &p), SPW_EARG);
    for (int n = 0; n < 5; n++) {
        spw_alloc_fail_after(n);
        CHECK_STATUS(spw_ref_plan_create(2, 1, 3, good, &p), SPW_ENOMEM);
        CHECK(p.row == NULL && p.rows == 0);
    }
    spw_alloc_fail_after(-1);
    CHECK_OK(spw_ref_plan_create(0, 1, 3, good, &p));
    CHECK(p.rows == 0 && p.offset[3] == 0);
    spw_ref_plan_destroy(&p);
}

int main(void) {
    pencil();
    const int threads[] = {1, 2, 7};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        for (size_t i = 0; i < 3; i++) round_trip(seed, threads[i]);
        identity(seed);
    }
    damage();
    return check_done();
}
