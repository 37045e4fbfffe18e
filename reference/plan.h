/* The routing plan: where each assignment goes when rows are sorted by expert. Source: MaxText moe.py
 * permute() (stable argsort of the flattened choices), Megatron-LM moe_utils.py permute(). */
#ifndef SPW_REFERENCE_PLAN_H
#define SPW_REFERENCE_PLAN_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An assignment is t * top_k + k. Rows stand by expert, inside an expert by assignment (stable). */
typedef struct spw_plan {
    size_t tokens, top_k, experts;
    size_t rows;         /* assignments that name an expert = offset[experts] */
    size_t *count;       /* [experts] */
    size_t *offset;      /* [experts + 1] sums of count; expert x owns rows [offset[x], offset[x + 1]) */
    int32_t *row;        /* [tokens][top_k] row of the assignment, or -1 when it names no expert */
    int32_t *assignment; /* [rows] the inverse: row[assignment[r]] = r */
} spw_plan;

/* expert [tokens][top_k]: ids in [0, experts), or < 0: no choice (unused, dropped, or not of this rank).
 * *out owns its arrays until spw_ref_plan_destroy(). SPW_EARG: an id of experts or more, or more than 2^31 -
 * 1 assignments. SPW_ENOMEM. On failure *out is zeroed. */
SPW_MUST_CHECK spw_status spw_ref_plan_create(size_t tokens, size_t top_k, size_t experts,
                                              const int32_t *expert, spw_plan *out);
void spw_ref_plan_destroy(spw_plan *plan); /* a zeroed plan is fine */

/* rows[r] = x[t(r)], with t(r) = assignment[r] / top_k.
 *   x     [tokens][width]
 *   rows  [plan->rows][width]   overwritten; pure data movement */
void spw_ref_permute(const spw_plan *plan, size_t width, const float *x, float *rows);

/* Its gradient: dx[t] = sum over k of d_rows[row[t][k]], k ascending, fp64, rounded once; dropped slots give 0.
 *   d_rows  [plan->rows][width]
 *   dx      [tokens][width]           overwritten
 *   scale   [tokens][width] or NULL   sum of magnitudes; top_k terms
 * One thread owns one token. */
void spw_ref_permute_gradient(const spw_plan *plan, size_t width, const float *d_rows, float *dx,
                              float *scale);

#ifdef __cplusplus
}
#endif
#endif
