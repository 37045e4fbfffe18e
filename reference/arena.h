/* The counting allocator: every buffer of an executed scheme lives here under a name, so that what a rank
 * holds, and when it holds most, is counted and not computed. */
#ifndef SPW_REFERENCE_ARENA_H
#define SPW_REFERENCE_ARENA_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spw_arena spw_arena; /* opaque */

/* The passes over a layer in training. The recomputation belongs to the backward pass's peak. */
typedef enum spw_pass { SPW_PASS_FORWARD, SPW_PASS_RECOMPUTE, SPW_PASS_BACKWARD } spw_pass;

enum { SPW_ARENA_TENSORS = 48 };

/* The fullest moment of a rank; the first one if there are several. */
typedef struct spw_arena_peak {
    uint64_t bytes;
    spw_pass pass;
    const char *step; /* "" when nothing was ever held */
    size_t tensors;   /* live then, in order of birth */
    const char *name[SPW_ARENA_TENSORS];
    uint64_t tensor_bytes[SPW_ARENA_TENSORS];
} spw_arena_peak;

SPW_MUST_CHECK spw_status spw_arena_create(size_t ranks, spw_arena **out);
void spw_arena_destroy(spw_arena *arena); /* with all tensors that still live; NULL is fine */

/* What happens from now on happens in this step. `step` must outlive the arena. */
void spw_arena_moment(spw_arena *arena, spw_pass pass, const char *step);

/* A tensor is born on `rank`: *out is zeroed memory of `elements` fp32 and counts as `bytes` (an element of
 * another type is emulated in fp32; a sparse tensor is counted whole). `name` must outlive the arena. *out
 * lives until spw_arena_give(). SPW_ENOMEM; SPW_EARG when the rank holds SPW_ARENA_TENSORS already. */
SPW_MUST_CHECK spw_status spw_arena_take(spw_arena *arena, size_t rank, const char *name, size_t elements,
                                         uint64_t bytes, float **out);
void spw_arena_give(spw_arena *arena, size_t rank, float *memory); /* it dies */
/* Dies under one name and is born under another, in place. */
void spw_arena_rename(spw_arena *arena, size_t rank, const float *memory, const char *name);

uint64_t spw_arena_live(const spw_arena *arena, size_t rank);
/* Live when the last backward pass began: what the forward pass would have to save without recomputation. */
uint64_t spw_arena_saved(const spw_arena *arena, size_t rank);
spw_arena_peak spw_arena_forward_peak(const spw_arena *arena, size_t rank);
spw_arena_peak spw_arena_backward_peak(const spw_arena *arena, size_t rank); /* recompute and backward */

#ifdef __cplusplus
}
#endif
#endif
