/* The router: pencil and paper, properties over seeds, gradients against central differences in fp64. */
#include "base/memory.h"
#include "reference/router.h"
#include "reference/router_loss.h"
#include "tests/unit/check.h"
#include "tests/unit/compare.h"
#include "tests/unit/ref_random.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { TOKENS = 11, EXPERTS = 16, TOP_K = 4 };

static const spw_router routers[] = {
    {TOKENS, EXPERTS, TOP_K, SPW_SCORE_SOFTMAX, 1, 1, 1, false, 1.0f},
    {TOKENS, EXPERTS, TOP_K, SPW_SCORE_SOFTMAX, 1, 1, 1, true, 1.0f},
    {TOKENS, EXPERTS, TOP_K, SPW_SCORE_SIGMOID, 4, 2, 2, true, 2.5f},
    {TOKENS, EXPERTS, TOP_K, SPW_SCORE_SIGMOID, 2, 1, 1, false, 0.5f},
};
enum { ROUTERS = sizeof routers / sizeof routers[0] };

/* Scores 1/2 each: ties go to the lowest ids; the bias moves the choice and not the weight. */
static void pencil(void) {
    const spw_router r = {1, 4, 2, SPW_SCORE_SIGMOID, 1, 1, 1, true, 2.5f};
    const float zero[4] = {0}, bias[] = {0, 0.25f, 0, 0.5f};
    float score[4], weight[2];
    int32_t expert[2];
    CHECK_OK(spw_ref_router(&r, zero, NULL, score, expert, weight));
    CHECK(expert[0] == 0 && expert[1] == 1 && score[3] == 0.5f && weight[0] == 1.25f && weight[1] == 1.25f);
    CHECK_OK(spw_ref_router(&r, zero, bias, score, expert, weight));
    CHECK(expert[0] == 3 && expert[1] == 1 && weight[0] == 1.25f);

    /* Groups {0, 1} and {2, 3}: the best expert is 0, but the two best of the second group weigh more. */
    const spw_router grouped = {1, 4, 1, SPW_SCORE_SIGMOID, 2, 1, 2, false, 1.0f};
    const float pull[] = {0.5f, 0, 0.375f, 0.25f};
    CHECK_OK(spw_ref_router(&grouped, zero, pull, score, expert, weight));
    CHECK(expert[0] == 2 && weight[0] == 0.5f);

    const spw_router soft = {1, 4, 2, SPW_SCORE_SOFTMAX, 1, 1, 1, false, 1.0f};
    const float logits[] = {0, logf(2), logf(4), 0};
    CHECK_OK(spw_ref_router(&soft, logits, NULL, score, expert, weight));
    CHECK(expert[0] == 2 && expert[1] == 1 && fabsf(weight[0] - 0.5f) < 1e-7f &&
          fabsf(score[0] - 0.125f) < 1e-7f);

    const size_t count[] = {3, 1, 2, 2};
    float moved[] = {0, 0, 0, 1};
    spw_ref_router_bias_update(4, count, 0.5f, moved);
    CHECK(moved[0] == -0.5f && moved[1] == 0.5f && moved[2] == 0.0f && moved[3] == 1.0f);

    double loss = 0;
    const int32_t both[] = {0, 1, 2, 3};
    const spw_router two = {2, 4, 2, SPW_SCORE_SOFTMAX, 1, 1, 1, false, 1.0f};
    const float even[] = {0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f};
    CHECK_OK(spw_ref_router_auxiliary_loss(&two, 0.01, even, both, &loss, NULL));
    CHECK(fabs(loss - 0.01) < 1e-15); /* balanced: the coefficient itself */
    CHECK_OK(spw_ref_router_z_loss(&two, 2.0, (const float[8]){0}, &loss, NULL));
    CHECK(fabs(loss - 2.0 * log(4.0) * log(4.0)) < 1e-14);
}

/* The rule of selection once more, by sorting whole lists: what the loops of the reference must agree with. */
static int chosen_before(const float *choice, size_t a, size_t b) {
    return choice[a] > choice[b] || (choice[a] == choice[b] && a < b);
}
static void oracle_choice(const spw_router *r, const float *choice, int32_t *expert) {
    float judge[EXPERTS] = {0};
    size_t group[EXPERTS] = {0};
    const size_t size = r->experts / r->groups;
    for (size_t g = 0; g < r->groups; g++) {
        size_t id[EXPERTS] = {0};
        for (size_t i = 0; i < size; i++) id[i] = g * size + i, group[id[i]] = g;
        for (size_t i = 0; i < size; i++) {
            for (size_t j = i + 1; j < size; j++) {
                if (!chosen_before(choice, id[j], id[i])) continue;
                const size_t swap = id[i];
                id[i] = id[j], id[j] = swap;
            }
        }
        judge[g] = 0;
        for (size_t n = 0; n < r->group_terms; n++) judge[g] += choice[id[n]];
    }
    for (size_t x = 0; x < r->experts; x++) { /* an expert's place = how many stand before it */
        size_t better_groups = 0, place = 0;
        for (size_t g = 0; g < r->groups; g++) better_groups += (size_t)chosen_before(judge, g, group[x]);
        if (better_groups >= r->groups_kept) continue;
        for (size_t y = 0; y < r->experts; y++) {
            size_t better = 0;
            for (size_t g = 0; g < r->groups; g++) better += (size_t)chosen_before(judge, g, group[y]);
            place += better < r->groups_kept && chosen_before(choice, y, x);
        }
        if (place < r->top_k) expert[place] = (int32_t)x;
    }
}

static void selection(const spw_router *r, uint64_t seed, bool ties) {
    float logits[TOKENS * EXPERTS], bias[EXPERTS], score[TOKENS * EXPERTS], weight[TOKENS * TOP_K];
    int32_t expert[TOKENS * TOP_K], want[TOP_K];
    random_fill(&seed, ties ? random_integer : random_uniform, logits, TOKENS * EXPERTS);
    random_fill(&seed, ties ? random_integer : random_uniform, bias, EXPERTS);
    CHECK_OK(spw_ref_router(r, logits, bias, score, expert, weight));
    for (size_t t = 0; t < TOKENS; t++) {
        float choice[EXPERTS], sum = 0;
        for (size_t x = 0; x < EXPERTS; x++) choice[x] = score[t * EXPERTS + x] + bias[x];
        oracle_choice(r, choice, want);
        CHECK(memcmp(want, expert + t * TOP_K, sizeof want) == 0);
        for (size_t k = 0; k < TOP_K; k++) sum += weight[t * TOP_K + k];
        if (r->renormalize) CHECK(fabsf(sum - r->scaling) <= 6 * 0x1p-24f * r->scaling);
    }
    float again[TOKENS * TOP_K];
    CHECK_OK(spw_ref_router_weights(r, score, expert, again));
    CHECK_OK(compare_exact(again, weight, TOKENS * TOP_K));
}

/* A loss in fp64: sum of d_weight * weight + auxiliary loss + z-loss, with the choice fixed. */
static double loss_of(const spw_router *r, const double *logits, const int32_t *expert, const float *d_weight,
                      double auxiliary, double z) {
    double loss = 0, count[EXPERTS] = {0}, mean[EXPERTS] = {0};
    for (size_t i = 0; i < TOKENS * TOP_K; i++) count[expert[i]] += 1;
    for (size_t t = 0; t < TOKENS; t++) {
        double s[EXPERTS], sum = 0, exps = 0, chosen = 0;
        for (size_t x = 0; x < EXPERTS; x++) exps += exp(logits[t * EXPERTS + x]);
        for (size_t x = 0; x < EXPERTS; x++) {
            const double e = exp(logits[t * EXPERTS + x]);
            s[x] = r->score == SPW_SCORE_SOFTMAX ? e / exps : e / (1 + e);
            sum += s[x];
        }
        for (size_t x = 0; x < EXPERTS; x++) mean[x] += s[x] / sum / TOKENS;
        for (size_t k = 0; k < TOP_K; k++) chosen += s[expert[t * TOP_K + k]];
        for (size_t k = 0; k < TOP_K; k++) {
            const double share = s[expert[t * TOP_K + k]] / (r->renormalize ? chosen : 1.0);
            loss += (double)d_weight[t * TOP_K + k] * (double)r->scaling * share;
        }
        loss += z * log(exps) * log(exps) / TOKENS;
    }
    for (size_t x = 0; x < EXPERTS; x++) loss += auxiliary * EXPERTS * count[x] / (TOP_K * TOKENS) * mean[x];
    return loss;
}

/* Central differences with step h err by h^2 / 6 of the third derivative and 2^-53 / h of the loss: with h =
 * 1e-4 and losses of order 10 that is below 1e-8 and 1e-11; the gradient itself is rounded to fp32. */
static void gradient(const spw_router *r, uint64_t seed) {
    float logits[TOKENS * EXPERTS], score[TOKENS * EXPERTS], weight[TOKENS * TOP_K], d_weight[TOKENS * TOP_K];
    float d_score[TOKENS * EXPERTS];
    int32_t expert[TOKENS * TOP_K];
    double exact[TOKENS * EXPERTS], loss = 0, part = 0;
    const double auxiliary = 0.7, z = 0.3, h = 1e-4;
    random_fill(&seed, random_uniform, logits, TOKENS * EXPERTS);
    random_fill(&seed, random_uniform, d_weight, TOKENS * TOP_K);
    CHECK_OK(spw_ref_router(r, logits, NULL, score, expert, weight));
    float *first = NULL, *d_logits = fenced_create(TOKENS * EXPERTS),
          *scale = fenced_create(TOKENS * EXPERTS);
    CHECK_OK(SPW_ALLOC(TOKENS * EXPERTS, &first));
    const int threads[] = {1, 2, 7};
    for (size_t n = 0; n < 3; n++) {
        omp_set_num_threads(threads[n]);
        poison(d_logits, TOKENS * EXPERTS);
        CHECK_OK(spw_ref_router_auxiliary_loss(r, auxiliary, score, expert, &loss, d_score));
        CHECK_OK(spw_ref_router_gradient(r, logits, expert, d_weight, d_score, d_logits, scale));
        CHECK_OK(spw_ref_router_z_loss(r, z, logits, &part, d_logits));
        if (n == 0) memcpy(first, d_logits, sizeof d_score);
        CHECK_OK(compare_exact(d_logits, first, TOKENS * EXPERTS));
    }
    CHECK_OK(fenced_check(d_logits, TOKENS * EXPERTS));
    CHECK_OK(fenced_check(scale, TOKENS * EXPERTS));
    for (size_t i = 0; i < TOKENS * EXPERTS; i++) exact[i] = (double)logits[i];
    for (size_t i = 0; i < TOKENS * TOP_K; i++) loss += (double)d_weight[i] * (double)weight[i];
    CHECK(fabs(loss + part - loss_of(r, exact, expert, d_weight, auxiliary, z)) < 1e-5);
    for (size_t i = 0; i < TOKENS * EXPERTS; i++) {
        exact[i] += h;
        const double above = loss_of(r, exact, expert, d_weight, auxiliary, z);
        exact[i] -= 2 * h;
        const double below = loss_of(r, exact, expert, d_weight, auxiliary, z);
        exact[i] += h;
        CHECK(fabs((above - below) / (2 * h) - (double)d_logits[i]) <= 1e-7 + 0x1p-23 * (double)scale[i]);
    }
    spw_free(first), fenced_destroy(scale), fenced_destroy(d_logits);
}

/* Rolling the expert ids rolls everything else; weights stay the same. */
static void rolled(uint64_t seed) {
    const spw_router *r = &routers[1];
    float logits[TOKENS * EXPERTS], turned[TOKENS * EXPERTS], score[TOKENS * EXPERTS], w[TOKENS * TOP_K],
        v[TOKENS * TOP_K];
    int32_t a[TOKENS * TOP_K], b[TOKENS * TOP_K];
    random_fill(&seed, random_uniform, logits, TOKENS * EXPERTS);
    for (size_t i = 0; i < TOKENS * EXPERTS; i++)
        turned[i / EXPERTS * EXPERTS + (i + 5) % EXPERTS] = logits[i];
    CHECK_OK(spw_ref_router(r, logits, NULL, score, a, w));
    CHECK_OK(spw_ref_router(r, turned, NULL, score, b, v));
    for (size_t i = 0; i < TOKENS * TOP_K; i++) {
        CHECK((a[i] + 5) % EXPERTS == b[i]);
        CHECK(fabsf(w[i] - v[i]) <= 8 * 0x1p-24f * w[i]); /* the softmax's sum has another order */
    }
}

static void damage(void) {
    spw_router bad[6];
    for (size_t i = 0; i < 6; i++) bad[i] = routers[2];
    bad[0].top_k = 17, bad[1].groups = 3, bad[2].groups_kept = 5, bad[3].group_terms = 5,
    bad[4].scaling = INFINITY;
    bad[5].groups_kept = 1, bad[5].groups = 8, bad[5].group_terms = 1; /* 2 experts for top_k 4 */
    float logits[TOKENS * EXPERTS] = {0}, score[TOKENS * EXPERTS], weight[TOKENS * TOP_K] = {0};
    int32_t expert[TOKENS * TOP_K] = {0};
    double loss = 0;
    for (size_t i = 0; i < 6; i++) {
        CHECK_STATUS(spw_ref_router(&bad[i], logits, NULL, score, expert, weight), SPW_EARG);
        CHECK_STATUS(spw_ref_router_gradient(&bad[i], logits, expert, weight, NULL, score, NULL), SPW_EARG);
    }
    for (int n = 0; n < 2; n++) {
        spw_alloc_fail_after(n);
        CHECK_STATUS(spw_ref_router(&routers[0], logits, NULL, score, expert, weight), SPW_ENOMEM);
        spw_alloc_fail_after(n);
        CHECK_STATUS(spw_ref_router_gradient(&routers[0], logits, expert, weight, NULL, score, NULL),
                     SPW_ENOMEM);
    }
    spw_alloc_fail_after(0);
    CHECK_STATUS(spw_ref_router_auxiliary_loss(&routers[0], 1, score, expert, &loss, NULL), SPW_ENOMEM);
    spw_alloc_fail_after(-1);
    expert[3] = EXPERTS;
    CHECK_STATUS(spw_ref_router_weights(&routers[0], score, expert, weight), SPW_EARG);
    CHECK_STATUS(spw_ref_router_gradient(&routers[0], logits, expert, weight, NULL, score, NULL), SPW_EARG);
    CHECK_STATUS(spw_ref_router_auxiliary_loss(&routers[0], 1, score, expert, &loss, NULL), SPW_EARG);
    logits[7] = NAN;
    CHECK_STATUS(spw_ref_router(&routers[0], logits, NULL, score, expert, weight), SPW_EARG);
    CHECK_STATUS(spw_ref_router_z_loss(&routers[0], 1, logits, &loss, NULL), SPW_EARG);
    logits[7] = -200, logits[8] = 200; /* neither score overflows */
    CHECK_OK(spw_ref_router(&routers[0], logits, NULL, score, expert, weight));
    CHECK(score[8] == 1.0f && score[7] == 0.0f);
    CHECK_OK(spw_ref_router(&routers[2], logits, NULL, score, expert, weight));
    CHECK(score[8] == 1.0f && score[7] >= 0.0f && isfinite(weight[0]));
}

int main(void) {
    pencil();
    for (uint64_t seed = 1; seed <= 10; seed++) {
        for (size_t i = 0; i < ROUTERS; i++) {
            selection(&routers[i], seed, false), selection(&routers[i], seed, true);
            gradient(&routers[i], seed);
        }
        rolled(seed);
    }
    damage();
    return check_done();
}
