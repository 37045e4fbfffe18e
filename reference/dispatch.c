#include "reference/dispatch.h"

#include "base/memory.h"

#include <math.h>

/* Places, counts and choices of one source rank. */
static spw_status place_tokens(spw_dispatch_plan *p, size_t s, const int32_t *expert) {
    const size_t local = p->experts / p->ranks;
    for (size_t i = 0; i < p->tokens * p->ranks; i++) p->place[s * p->tokens * p->ranks + i] = -1;
    for (size_t t = 0; t < p->tokens; t++) {
        for (size_t k = 0; k < p->top_k; k++) {
            const int32_t x = expert[(s * p->tokens + t) * p->top_k + k];
            if (x < 0) continue;
            if ((size_t)x >= p->experts)
                return spw_fail(SPW_EARG, "token %zu of rank %zu names expert %d of %zu", t, s, (int)x,
                                p->experts);
            const size_t d = (size_t)x / local;
            int32_t *place = &p->place[(s * p->tokens + t) * p->ranks + d];
            p->choices[x]++;
            if (*place < 0) *place = (int32_t)p->sent[s * p->ranks + d]++;
        }
    }
    return SPW_OK;
}

spw_status spw_ref_dispatch_create(size_t ranks, size_t tokens, size_t top_k, size_t experts,
                                   const int32_t *expert, spw_dispatch_plan *out) {
    spw_status status = SPW_OK;
    size_t rows = 0, pairs = 0;
    *out = (spw_dispatch_plan){.ranks = ranks, .tokens = tokens, .top_k = top_k, .experts = experts};
    if (ranks == 0 || experts == 0 || experts % ranks != 0)
        SPW_TRY(spw_fail(SPW_EARG, "%zu experts on %zu ranks; experts must be a multiple of ranks", experts,
                         ranks));
    if (!spw_mul_size(ranks, tokens, &rows) || !spw_mul_size(rows, ranks, &pairs) || rows > INT32_MAX)
        SPW_TRY(spw_fail(SPW_EARG, "%zu ranks x %zu tokens exceed 2^31 - 1 rows", ranks, tokens));
    SPW_TRY(SPW_ALLOC(ranks * ranks, &out->sent));
    SPW_TRY(SPW_ALLOC(ranks * (ranks + 1), &out->first));
    SPW_TRY(SPW_ALLOC(experts, &out->choices));
    SPW_TRY(SPW_ALLOC(pairs, &out->place));
    SPW_TRY(SPW_ALLOC(pairs, &out->item));
    for (size_t s = 0; s < ranks; s++) SPW_TRY(place_tokens(out, s, expert));
    for (size_t i = 0; i < pairs; i++) out->item[i] = -1;
    for (size_t d = 0; d < ranks; d++) {
        size_t *first = out->first + d * (ranks + 1);
        for (size_t s = 0; s < ranks; s++) {
            first[s + 1] = first[s] + out->sent[s * ranks + d];
            for (size_t t = 0; t < tokens; t++) {
                const int32_t place = out->place[(s * tokens + t) * ranks + d];
                if (place >= 0) out->item[d * rows + first[s] + (size_t)place] = (int32_t)(s * tokens + t);
            }
        }
    }
cleanup:
    if (status != SPW_OK) spw_ref_dispatch_destroy(out);
    return status;
}

void spw_ref_dispatch_destroy(spw_dispatch_plan *plan) {
    spw_free(plan->item), spw_free(plan->place), spw_free(plan->choices), spw_free(plan->first),
        spw_free(plan->sent);
    *plan = (spw_dispatch_plan){0};
}

void spw_ref_dispatch_combine(const spw_dispatch_plan *p, size_t s, size_t width, const float *const *rows,
                              float *y, float *scale) {
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < p->tokens; t++) {
        const int32_t *place = p->place + (s * p->tokens + t) * p->ranks;
        for (size_t h = 0; h < width; h++) {
            double sum = 0.0, magnitude = 0.0;
            for (size_t d = 0; d < p->ranks; d++) {
                if (place[d] < 0) continue;
                const double value =
                    (double)rows[d][(p->first[d * (p->ranks + 1) + s] + (size_t)place[d]) * width + h];
                sum += value;
                magnitude += fabs(value);
            }
            y[t * width + h] = (float)sum;
            if (scale != NULL) scale[t * width + h] = (float)magnitude;
        }
    }
}
