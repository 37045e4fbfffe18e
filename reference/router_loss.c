#include "reference/router_loss.h"

#include "base/memory.h"

#include <math.h>

/* 1 / (what a token's scores are divided by to become shares). */
static double share(const spw_router *r, const float *score) {
    double sum = 0.0;
    if (r->score == SPW_SCORE_SOFTMAX) return 1.0;
    for (size_t x = 0; x < r->experts; x++) sum += (double)score[x];
    return sum > 0.0 ? 1.0 / sum : 0.0;
}

/* d loss / d p[t][x] = factor * count[x]; through p = score * share when the scores are sigmoids. */
static void score_gradient(const spw_router *r, double factor, const double *count, const float *score,
                           float *d_score) {
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < r->tokens; t++) {
        const float *s = score + t * r->experts;
        const double one = share(r, s);
        double mean = 0.0;
        for (size_t x = 0; x < r->experts && r->score == SPW_SCORE_SIGMOID; x++) {
            mean += count[x] * (double)s[x] * one;
        }
        for (size_t x = 0; x < r->experts; x++) {
            d_score[t * r->experts + x] = (float)(factor * one * (count[x] - mean));
        }
    }
}

spw_status spw_ref_router_auxiliary_loss(const spw_router *r, double coefficient, const float *score,
                                         const int32_t *expert, double *loss, float *d_score) {
    double *count = NULL;
    spw_status status = SPW_OK;
    *loss = 0.0;
    if (r->tokens == 0) return SPW_OK;
    SPW_TRY(SPW_ALLOC(r->experts, &count));
    for (size_t i = 0; i < r->tokens * r->top_k; i++) {
        if (expert[i] >= 0 && (size_t)expert[i] >= r->experts) {
            status =
                spw_fail(SPW_EARG, "assignment %zu names expert %d of %zu", i, (int)expert[i], r->experts);
            goto cleanup;
        }
        if (expert[i] >= 0) count[expert[i]] += 1.0;
    }
    const double tokens = (double)r->tokens;
    const double factor = coefficient * (double)r->experts / ((double)r->top_k * tokens * tokens);
    for (size_t t = 0; t < r->tokens; t++) {
        const float *s = score + t * r->experts;
        const double one = share(r, s);
        for (size_t x = 0; x < r->experts; x++) *loss += factor * count[x] * (double)s[x] * one;
    }
    if (d_score != NULL) score_gradient(r, factor, count, score, d_score);
cleanup:
    spw_free(count);
    return status;
}

spw_status spw_ref_router_z_loss(const spw_router *r, double coefficient, const float *logits, double *loss,
                                 float *d_logits) {
    *loss = 0.0;
    for (size_t t = 0; t < r->tokens; t++) {
        const float *z = logits + t * r->experts;
        double largest = -INFINITY, sum = 0.0;
        for (size_t x = 0; x < r->experts; x++) {
            if (!isfinite(z[x])) return spw_fail(SPW_EARG, "logits[%zu][%zu] is %g", t, x, (double)z[x]);
            largest = fmax(largest, (double)z[x]);
        }
        for (size_t x = 0; x < r->experts; x++) sum += exp((double)z[x] - largest);
        const double log_sum = largest + log(sum), per_token = coefficient / (double)r->tokens;
        *loss += per_token * log_sum * log_sum;
        for (size_t x = 0; x < r->experts && d_logits != NULL; x++) {
            float *d = d_logits + t * r->experts + x;
            *d = (float)((double)*d + per_token * 2.0 * log_sum * exp((double)z[x] - largest) / sum);
        }
    }
    return SPW_OK;
}

void spw_ref_router_bias_update(size_t experts, const size_t *count, float rate, float *bias) {
    size_t total = 0;
    for (size_t x = 0; x < experts; x++) total += count[x];
    for (size_t x = 0; x < experts; x++) {
        const size_t scaled = count[x] * experts; /* count < mean, in integers */
        if (scaled != total) bias[x] += scaled < total ? rate : -rate;
    }
}
