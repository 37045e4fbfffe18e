/* The memory of one rank, component by component (docs/schemes.md, section 7). Bytes. */
#ifndef SPW_SIM_MEMORY_LIVE_FOOTPRINT_H
#define SPW_SIM_MEMORY_LIVE_FOOTPRINT_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/memory/kept/component.h"
#include "sim/memory/kept/stage_walk.h"
#include "sim/print/formula.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */

const char *spw_moment_name(spw_moment moment);

/* What the routing does to one rank's memory: its rows in the layer where they hold most, and what all MoE layers save
 * together (used without remat alone). */
typedef struct spw_routed_memory {
    spw_rank_rows rows;
    spw_saved_rows saved;
    bool
        walked; /* where layers are freed one by one: the moments of the stage, `rows` being of its MoE layer at work; else all
                    layers have `rows` and keep saved.last */
    spw_stage_peaks peaks;
} spw_routed_memory;

/* Of the pipeline stage that needs most. routed NULL: balanced routing. A scheme whose buffers are fixed does not depend on it.
 * SPW_ENOMEM; SPW_EARG for a layer with more tensors at its peak than there is room for. */
SPW_MUST_CHECK spw_status spw_footprint_compute(const spw_point *point, const spw_routed_memory *routed,
                                                spw_footprint *out);
/* The same of stage `index`. `saved` of `routed`: of all that the stage keeps at its greatest. */
SPW_MUST_CHECK spw_status spw_footprint_of_stage(const spw_point *point, size_t index,
                                                 const spw_routed_memory *routed, spw_footprint *out);
/* The same of all stages with balanced routing: out [stages], whatever stands there. */
SPW_MUST_CHECK spw_status spw_footprint_of_stages(const spw_point *point, size_t stages, spw_footprint *out);
/* Of it budget_bytes, and argument_bytes as far as weights, gradients and moments go, in a small part of the time: no scheme's list is
 * made. peak_bytes: the same. Of a job whose steps are known tensor by tensor nothing is said: 0 bytes. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_footprint_state_of_stage(const spw_point *point, size_t index,
                                                       spw_footprint *out);

/* The peak that the same rank would have with other routing: the footprint's components at every moment, its MoE layers'
 * tensors replaced. live: of the layer where the rank holds most. */
uint64_t spw_footprint_peak(const spw_footprint *footprint, bool saves, const spw_live_set *live,
                            spw_saved_rows kept);
/* The same where layers are freed one by one. stays: as of spw_saved_rows. */
uint64_t spw_footprint_walked_peak(const spw_footprint *footprint, const spw_stage_peaks *peaks,
                                   uint64_t stays);
/* Does the scheme's framework free what a layer kept when its backward pass ends? Programs of MaxText keep the stack of all layers. */
bool spw_footprint_frees(const spw_scheme *scheme);

#endif
