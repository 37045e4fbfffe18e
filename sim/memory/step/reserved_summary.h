/* What the allocator did over the steps of a job (sim/memory/step/reserved_memory.h), as results say it. */
#ifndef SPW_SIM_MEMORY_STEP_RESERVED_SUMMARY_H
#define SPW_SIM_MEMORY_STEP_RESERVED_SUMMARY_H

#include "sim/memory/tensors/snapshot_match.h"
#include "sim/statistics/oom_probability.h"
#include "sim/statistics/quantiles.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a process ran out of memory first. */
typedef struct spw_reserved_death {
    bool there;
    bool at_start;             /* before the first layer ran */
    bool optimizer;            /* in the optimizer's first step, which allocates the moments */
    size_t step, rank, stage;  /* positions */
    size_t micro_batch, layer; /* the layer among the job's MoE layers, SIZE_MAX: none was at work */
    bool backward;
} spw_reserved_death;

/* One setting of the allocator. */
typedef struct spw_reserved_outcome {
    /* Peaks of a step. requested: without rounding, and of failed steps too what they would have needed. The others of a
     * failed step are what it had reached: with failed_steps they are lower bounds. Over the steps, each with the rank
     * that has most. */
    spw_byte_quantiles requested, allocated, reserved;
    size_t worst_step, worst_rank, worst_stage; /* of reserved: position of the step */
    size_t live_step, live_layer, live_rank;    /* of requested; the layer among the job's MoE layers */
    size_t live_stage, live_micro_batch;
    size_t failed_steps, retried_steps; /* steps in which a rank ran out, or gave segments back to go on */
    uint64_t retries;
    uint64_t stranded_bytes; /* the largest free block at the end of a step that shares its segment */
    spw_reserved_death death;
} spw_reserved_outcome;

typedef struct spw_reserved_summary {
    bool recorded; /* the whole job by a snapshot (sim/memory/tensors/snapshot_steps.h); `match` is of it */
    spw_snapshot_match match;
    bool there;               /* false: nothing was replayed */
    uint64_t limit_bytes;     /* of the process (spw_allocator_limit_bytes) */
    bool expandable_segments; /* as set */
    size_t steps;
    size_t processes, followed;              /* of the job; those whose allocator was replayed */
    spw_reserved_outcome as_set, expandable; /* expandable: the same with expandable_segments */
    spw_probability oom;                     /* of a step, as set */
} spw_reserved_summary;

#endif
