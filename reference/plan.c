#include "reference/plan.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

spw_status spw_ref_plan_create(size_t tokens, size_t top_k, size_t experts, const int32_t *expert,
                               spw_plan *out) {
    spw_status status = SPW_OK;
    size_t assignments = 0, *next = NULL;
    *out = (spw_plan){.tokens = tokens, .top_k = top_k, .experts = experts};
    if (!spw_mul_size(tokens, top_k, &assignments) || assignments > INT32_MAX) {
        status = spw_fail(SPW_EARG, "%zu tokens x top_k %zu exceed 2^31 - 1 assignments", tokens, top_k);
        goto cleanup;
    }
    SPW_TRY(SPW_ALLOC(experts, &out->count));
    SPW_TRY(SPW_ALLOC(experts + 1, &out->offset));
    SPW_TRY(SPW_ALLOC(assignments, &out->row));
    SPW_TRY(SPW_ALLOC(experts, &next));
    for (size_t i = 0; i < assignments; i++) {
        if (expert[i] < 0) continue;
        if ((size_t)expert[i] >= experts) {
            status =
                spw_fail(SPW_EARG, "token %zu names expert %d of %zu", i / top_k, (int)expert[i], experts);
            goto cleanup;
        }
        out->count[expert[i]]++;
    }
    for (size_t x = 0; x < experts; x++) {
        next[x] = out->offset[x];
        out->offset[x + 1] = out->offset[x] + out->count[x];
    }
    out->rows = out->offset[experts];
    SPW_TRY(SPW_ALLOC(out->rows, &out->assignment));
    for (size_t i = 0; i < assignments; i++) {
        out->row[i] = expert[i] < 0 ? -1 : (int32_t)next[expert[i]]++;
        if (out->row[i] >= 0) out->assignment[out->row[i]] = (int32_t)i;
    }
cleanup:
    spw_free(next);
    if (status != SPW_OK) spw_ref_plan_destroy(out);
    return status;
}

void spw_ref_plan_destroy(spw_plan *plan) {
    spw_free(plan->assignment), spw_free(plan->row), spw_free(plan->offset), spw_free(plan->count);
    *plan = (spw_plan){0};
}

void spw_ref_permute(const spw_plan *plan, size_t width, const float *x, float *rows) {
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < plan->rows; r++) {
        const size_t token = (size_t)plan->assignment[r] / plan->top_k;
        memcpy(rows + r * width, x + token * width, width * sizeof *rows);
    }
}

void spw_ref_permute_gradient(const spw_plan *plan, size_t width, const float *d_rows, float *dx,
                              float *scale) {
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < plan->tokens; t++) {
        for (size_t h = 0; h < width; h++) {
            double sum = 0.0, magnitude = 0.0;
            for (size_t k = 0; k < plan->top_k; k++) {
                const int32_t row = plan->row[t * plan->top_k + k];
                if (row < 0) continue;
                sum += (double)d_rows[(size_t)row * width + h];
                magnitude += fabs((double)d_rows[(size_t)row * width + h]);
            }
            dx[t * width + h] = (float)sum;
            if (scale != NULL) scale[t * width + h] = (float)magnitude;
        }
    }
}
