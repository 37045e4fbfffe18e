/* What a job's processes take from their GPUs over a trace: the steps of every rank, one after the other, through
 * PyTorch's caching allocator. Every rank is a process of its own; it keeps what it has reserved from step to step. A
 * process that runs out of memory ends: that step failed, and a new process begins with the next one. Ranks run in
 * parallel; the result does not depend on the number of threads. */
#ifndef SPW_SIM_MEMORY_RESERVED_MEMORY_H
#define SPW_SIM_MEMORY_RESERVED_MEMORY_H

#include "base/status.h"
#include "sim/input/job.h"
#include "sim/memory/allocator.h"
#include "sim/memory/footprint.h"
#include "sim/memory/snapshot_steps.h"
#include "sim/schemes/point.h"
#include "sim/statistics/oom_probability.h"
#include "sim/statistics/quantiles.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One setting of the allocator. */
typedef struct spw_reserved_outcome {
    /* Peaks of a step. requested: without rounding, and of failed steps too what they would have needed. The others of a
     * failed step are what it had reached: with failed_steps they are lower bounds. Over the steps, each with the rank
     * that has most. */
    spw_byte_quantiles requested, allocated, reserved;
    size_t worst_step, worst_rank;           /* of reserved: position of the step */
    size_t live_step, live_layer, live_rank; /* of requested; the layer among the job's MoE layers */
    size_t failed_steps, retried_steps; /* steps in which a rank ran out, or gave segments back to go on */
    uint64_t retries;
    uint64_t stranded_bytes; /* the largest free block at the end of a step that shares its segment */
} spw_reserved_outcome;

typedef struct spw_reserved_summary {
    bool recorded; /* the whole job by a snapshot (sim/memory/snapshot_steps.h); `match` is of it */
    spw_snapshot_match match;
    bool there; /* false: the scheme's memory does not follow the routing, nothing was replayed */
    spw_allocator_settings settings;
    size_t steps;
    spw_reserved_outcome as_set, expandable; /* expandable: the same with expandable_segments */
    spw_probability oom;                     /* of a step, as set */
} spw_reserved_summary;

typedef struct spw_reserved_memory spw_reserved_memory;

/* `layers` replayed layers stand for the job's MoE layers in turn. The device is the footprint's budget. What
 * the point names is borrowed, the footprint only now. */
SPW_MUST_CHECK spw_status spw_reserved_memory_create(const spw_point *point, const spw_footprint *footprint,
                                                     size_t layers, size_t steps, spw_reserved_memory **out);
void spw_reserved_memory_destroy(spw_reserved_memory *memory); /* NULL is fine */

/* What rank `rank` of the job does in replayed layer `layer` of the step under way. */
void spw_reserved_memory_note(spw_reserved_memory *memory, size_t layer, size_t rank, spw_rank_rows rows);
/* Runs the step under way, position `step`, on every rank. */
SPW_MUST_CHECK spw_status spw_reserved_memory_end_step(spw_reserved_memory *memory, size_t step);
/* Peaks of a step that has ended, of the rank that has most. */
uint64_t spw_reserved_memory_reserved(const spw_reserved_memory *memory, size_t step);
uint64_t spw_reserved_memory_allocated(const spw_reserved_memory *memory, size_t step);

SPW_MUST_CHECK spw_status spw_reserved_memory_finish(const spw_reserved_memory *memory,
                                                     spw_reserved_summary *out);

#endif
