/* Token-aware dispatch between ranks: a token travels once to every rank that has one of its experts. Source:
 * deepseek-ai/DeepEP csrc/kernels/legacy/layout.cu and intranode.cu: rows arrive by source rank, inside a source by
 * token. */
#ifndef SPW_REFERENCE_DISPATCH_H
#define SPW_REFERENCE_DISPATCH_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spw_dispatch_plan {
    size_t ranks, tokens, top_k,
        experts;  /* tokens: of every rank; expert x lives on rank x / (experts / ranks) */
    size_t *sent; /* [ranks][ranks] U: tokens of s that go to d */
    size_t *
        first; /* [ranks][ranks + 1] of d: the row where the tokens of s begin; the last one: rows received */
    size_t *choices; /* [experts] */
    int32_t *
        place; /* [ranks][tokens][ranks] of s: earlier tokens of s that go to d too, or -1: t does not go to d */
    int32_t *item; /* [ranks][ranks * tokens] of d: s * tokens + t of every row; -1 behind */
} spw_dispatch_plan;

/* expert [ranks][tokens][top_k]: ids in [0, experts), or < 0. experts is a multiple of ranks. *out owns its arrays.
 * SPW_EARG, SPW_ENOMEM; on failure *out is zeroed. */
SPW_MUST_CHECK spw_status spw_ref_dispatch_create(size_t ranks, size_t tokens, size_t top_k, size_t experts,
                                                  const int32_t *expert, spw_dispatch_plan *out);
void spw_ref_dispatch_destroy(spw_dispatch_plan *plan); /* a zeroed one is fine */

/* The way back: y[t] = sum over d of rows[d][first[d][s] + place[s][t][d]], d ascending, fp64, rounded once; 0 where
 * t went nowhere.
 *   rows   [ranks] of [ranks * tokens][width]
 *   y      [tokens][width]           of rank s, overwritten
 *   scale  [tokens][width] or NULL   sum of magnitudes; `ranks` terms */
void spw_ref_dispatch_combine(const spw_dispatch_plan *plan, size_t s, size_t width, const float *const *rows,
                              float *y, float *scale);

#ifdef __cplusplus
}
#endif
#endif
