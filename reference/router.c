#include "reference/router.h"

#include "base/memory.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static spw_status check(const spw_router *r) {
    if (r->experts == 0 || r->top_k == 0 || r->top_k > r->experts) {
        return spw_fail(SPW_EARG, "top_k %zu of %zu experts; 1 to experts would be right", r->top_k,
                        r->experts);
    }
    if (r->groups == 0 || r->experts % r->groups != 0) {
        return spw_fail(SPW_EARG, "%zu groups do not divide %zu experts", r->groups, r->experts);
    }
    const size_t size = r->experts / r->groups;
    if (r->groups_kept == 0 || r->groups_kept > r->groups || r->groups_kept * size < r->top_k) {
        return spw_fail(SPW_EARG, "%zu of %zu groups of %zu experts cannot give top_k %zu", r->groups_kept,
                        r->groups, size, r->top_k);
    }
    if (r->group_terms == 0 || r->group_terms > size) {
        return spw_fail(SPW_EARG, "group_terms %zu in groups of %zu experts", r->group_terms, size);
    }
    if (!isfinite(r->scaling)) return spw_fail(SPW_EARG, "scaling %g is not finite", (double)r->scaling);
    return SPW_OK;
}

static spw_status check_finite(const char *name, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) return spw_fail(SPW_EARG, "%s[%zu] is %g", name, i, (double)x[i]);
    }
    return SPW_OK;
}

static spw_status check_expert(const spw_router *r, const int32_t *expert) {
    for (size_t i = 0; i < r->tokens * r->top_k; i++) {
        if (expert[i] >= 0 && (size_t)expert[i] >= r->experts) {
            return spw_fail(SPW_EARG, "assignment %zu names expert %d of %zu", i, (int)expert[i], r->experts);
        }
    }
    return SPW_OK;
}

/* The scores of one token in fp64. */
static void scores(const spw_router *r, const float *logits, double *s) {
    double largest = -INFINITY, sum = 0.0;
    for (size_t x = 0; x < r->experts; x++) largest = fmax(largest, (double)logits[x]);
    for (size_t x = 0; x < r->experts; x++) {
        const double z = (double)logits[x];
        if (r->score == SPW_SCORE_SOFTMAX) {
            sum += s[x] = exp(z - largest);
        } else {
            s[x] = z >= 0 ? 1.0 / (1.0 + exp(-z)) : exp(z) / (1.0 + exp(z)); /* neither overflows */
        }
    }
    if (r->score == SPW_SCORE_SOFTMAX) {
        for (size_t x = 0; x < r->experts; x++) s[x] /= sum;
    }
}

/* Index of the largest value[i] with open[i / size] set, the lowest of equals. */
static size_t best(const float *value, const uint8_t *open, size_t count, size_t size) {
    size_t winner = count;
    for (size_t i = 0; i < count; i++) {
        if (open[i / size] && (winner == count || value[i] > value[winner])) winner = i;
    }
    return winner;
}

/* group_open[g] = 1 for the groups that stay. choice and judge are the token's scratch. */
static void keep_groups(const spw_router *r, const float *choice, float *judge, uint8_t *group_open,
                        uint8_t *expert_open) {
    const size_t size = r->experts / r->groups;
    for (size_t g = 0; g < r->groups; g++) {
        judge[g] = 0.0f;
        memset(expert_open, 1, size);
        for (size_t n = 0; n < r->group_terms; n++) {
            const size_t x = best(choice + g * size, expert_open, size, 1);
            expert_open[x] = 0;
            judge[g] += choice[g * size + x];
        }
    }
    uint8_t *left = expert_open; /* [groups] from here on */
    memset(left, 1, r->groups);
    memset(group_open, 0, r->groups);
    for (size_t n = 0; n < r->groups_kept; n++) {
        const size_t g = best(judge, left, r->groups, 1);
        left[g] = 0;
        group_open[g] = 1;
    }
}

static void choose(const spw_router *r, const float *score, const float *bias, float *choice, float *judge,
                   uint8_t *open, int32_t *expert) {
    for (size_t x = 0; x < r->experts; x++) choice[x] = bias == NULL ? score[x] : score[x] + bias[x];
    uint8_t *group_open = open, *expert_open = open + r->experts;
    keep_groups(r, choice, judge, group_open, expert_open);
    for (size_t x = 0; x < r->experts; x++) expert_open[x] = group_open[x / (r->experts / r->groups)];
    for (size_t k = 0; k < r->top_k; k++) {
        const size_t x = best(choice, expert_open, r->experts, 1);
        expert_open[x] = 0;
        expert[k] = (int32_t)x;
    }
}

static void weigh(const spw_router *r, const float *score, const int32_t *expert, float *weight) {
    double sum = 0.0;
    for (size_t k = 0; k < r->top_k; k++) sum += expert[k] < 0 ? 0.0 : (double)score[expert[k]];
    for (size_t k = 0; k < r->top_k; k++) {
        const double s = expert[k] < 0 ? 0.0 : (double)score[expert[k]];
        const double share = !r->renormalize ? s : sum > 0.0 ? s / sum : 0.0;
        weight[k] = (float)((double)r->scaling * share);
    }
}

/* Scratch of all threads: `doubles` and `bytes` per thread. */
typedef struct scratch {
    double *number;
    uint8_t *flag;
    size_t numbers, flags;
} scratch;

static spw_status scratch_create(size_t numbers, size_t flags, scratch *out) {
    const size_t threads = (size_t)omp_get_max_threads();
    *out = (scratch){.numbers = numbers, .flags = flags};
    spw_status status = SPW_ALLOC(threads * numbers, &out->number);
    if (status == SPW_OK) status = SPW_ALLOC(threads * flags, &out->flag);
    if (status != SPW_OK) spw_free(out->number);
    return status;
}
static void scratch_destroy(scratch *s) { spw_free(s->flag), spw_free(s->number); }
static double *numbers_of(const scratch *s) { return s->number + (size_t)omp_get_thread_num() * s->numbers; }
static uint8_t *flags_of(const scratch *s) { return s->flag + (size_t)omp_get_thread_num() * s->flags; }

spw_status spw_ref_router(const spw_router *r, const float *logits, const float *bias, float *score,
                          int32_t *expert, float *weight) {
    const size_t experts = r->experts, top_k = r->top_k;
    scratch s = {0};
    spw_status status = check(r);
    if (status != SPW_OK) return status;
    SPW_TRY(check_finite("logits", logits, r->tokens * experts));
    if (bias != NULL) SPW_TRY(check_finite("bias", bias, experts));
    SPW_TRY(scratch_create(2 * experts, 2 * experts, &s));
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < r->tokens; t++) {
        double *exact = numbers_of(&s);
        float *choice = (float *)(exact + experts), *judge = choice + experts;
        scores(r, logits + t * experts, exact);
        for (size_t x = 0; x < experts; x++) score[t * experts + x] = (float)exact[x];
        choose(r, score + t * experts, bias, choice, judge, flags_of(&s), expert + t * top_k);
        weigh(r, score + t * experts, expert + t * top_k, weight + t * top_k);
    }
    scratch_destroy(&s);
cleanup:
    return status;
}

spw_status spw_ref_router_weights(const spw_router *r, const float *score, const int32_t *expert,
                                  float *weight) {
    spw_status status = check(r);
    if (status == SPW_OK) status = check_expert(r, expert);
    if (status != SPW_OK) return status;
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < r->tokens; t++) {
        weigh(r, score + t * r->experts, expert + t * r->top_k, weight + t * r->top_k);
    }
    return SPW_OK;
}

/* g[x] = gradient of the loss to the score, m[x] = the same with magnitudes. */
static void score_gradient(const spw_router *r, const double *s, const int32_t *expert, const float *d_weight,
                           const float *d_score, double *g, double *m) {
    double sum = 0.0, product = 0.0, magnitude = 0.0;
    for (size_t x = 0; x < r->experts; x++) {
        g[x] = d_score == NULL ? 0.0 : (double)d_score[x];
        m[x] = fabs(g[x]);
    }
    for (size_t k = 0; k < r->top_k; k++) {
        if (expert[k] < 0) continue;
        sum += s[expert[k]];
        product += (double)d_weight[k] * s[expert[k]];
        magnitude += fabs((double)d_weight[k]) * s[expert[k]];
    }
    const double scaling = (double)r->scaling;
    for (size_t k = 0; k < r->top_k; k++) {
        if (expert[k] < 0) continue;
        const double d = (double)d_weight[k];
        if (!r->renormalize) {
            g[expert[k]] += scaling * d;
            m[expert[k]] += fabs(scaling * d);
        } else if (sum > 0.0) {
            g[expert[k]] += scaling * (d - product / sum) / sum;
            m[expert[k]] += fabs(scaling) * (fabs(d) + magnitude / sum) / sum;
        }
    }
}

static void logit_gradient(const spw_router *r, const double *s, const double *g, const double *m,
                           float *d_logits, float *scale) {
    double mean = 0.0, magnitude = 0.0;
    if (r->score == SPW_SCORE_SOFTMAX) {
        for (size_t x = 0; x < r->experts; x++) mean += g[x] * s[x];
        for (size_t x = 0; x < r->experts; x++) magnitude += m[x] * s[x];
    }
    for (size_t x = 0; x < r->experts; x++) {
        const double slope = r->score == SPW_SCORE_SOFTMAX ? s[x] : s[x] * (1.0 - s[x]);
        d_logits[x] = (float)(slope * (g[x] - mean));
        if (scale != NULL) scale[x] = (float)(s[x] * (m[x] + magnitude));
    }
}

spw_status spw_ref_router_gradient(const spw_router *r, const float *logits, const int32_t *expert,
                                   const float *d_weight, const float *d_score, float *d_logits,
                                   float *scale) {
    const size_t experts = r->experts, top_k = r->top_k;
    scratch all = {0};
    spw_status status = check(r);
    if (status != SPW_OK) return status;
    SPW_TRY(check_finite("logits", logits, r->tokens * experts));
    SPW_TRY(check_expert(r, expert));
    SPW_TRY(scratch_create(3 * experts, 1, &all));
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < r->tokens; t++) {
        double *s = numbers_of(&all), *g = s + experts, *m = g + experts;
        const size_t at = t * experts;
        scores(r, logits + at, s);
        score_gradient(r, s, expert + t * top_k, d_weight + t * top_k, d_score == NULL ? NULL : d_score + at,
                       g, m);
        logit_gradient(r, s, g, m, d_logits + at, scale == NULL ? NULL : scale + at);
    }
    scratch_destroy(&all);
cleanup:
    return status;
}
