/* What a job's processes take from their GPUs over a trace: the steps of every rank of every pipeline stage, one after the other,
 * through PyTorch's caching allocator. Every rank is a process of its own; it keeps what it has reserved from step to step. The
 * optimizer allocates its moments at the end of the first step, from what that step left in the cache. A
 * process that runs out of memory ends: that step failed, and a new process, whose moments are read from a
 * checkpoint, begins with the next one. The first step's routing may come again, when the moments are there: behind the
 * last step it does, and counts with the first. Ranks run in
 * parallel; the result does not depend on the number of threads.
 *
 * A job of many GPUs has too many processes to follow them all. Unless all are asked for, those are followed that have most live bytes
 * in the first step, SPW_RESERVED_FOLLOWED of them, of ranks with the same rows on the same stage one; and in a later step that which
 * has most then, from there on, as long as there is room for SPW_RESERVED_MOST. Missed is a rank that never had most live bytes and
 * reserves more all the same, because of what earlier steps left in its cache; and what the steps before would have left in the cache
 * of a rank that is followed later. */
#ifndef SPW_SIM_MEMORY_STEP_RESERVED_MEMORY_H
#define SPW_SIM_MEMORY_STEP_RESERVED_MEMORY_H

#include "base/status.h"
#include "base/walk.h"
#include "sim/job/job_words.h"
#include "sim/memory/step/reserved_summary.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */

typedef struct spw_point spw_point; /* sim/schemes/point.h */

enum { SPW_RESERVED_FOLLOWED = 16, SPW_RESERVED_MOST = 24 };

typedef struct spw_reserved_memory spw_reserved_memory;

typedef struct spw_reserved_request {
    const spw_point *point;
    const spw_footprint *footprint; /* [stages] */
    size_t ranks;                   /* of one stage */
    size_t layers;                  /* replayed ones, which stand for the job's MoE layers in turn */
    size_t steps;
    bool every; /* follow every process */
    /* What expandable segments would change is asked for only where a step fails as set; else `expandable` is as set. Of one step of
     * generated or read routing; of several, of a recorded job and of every process it is replayed all the same. */
    bool as_set_alone;
    /* Of micro-batches: what is noted of those behind the first `kinds` is not theirs, and they get rows that spread as these do; 0: all
     * are their own. */
    size_t kinds;
    /* Several steps, not of a recorded job: a step that ends is only remembered; processes are run when all steps have ended, each by
     * itself, by spw_reserved_memory_run(). */
    bool later;
} spw_reserved_request;

/* The device is the footprints' budget. The point, what it names and the footprints are borrowed. */
SPW_MUST_CHECK spw_status spw_reserved_memory_create(const spw_reserved_request *request,
                                                     spw_reserved_memory **out);
void spw_reserved_memory_destroy(spw_reserved_memory *memory); /* NULL is fine */

/* What a rank of each stage does in a micro-batch of a replayed layer of the step under way. */
void spw_reserved_memory_note(spw_reserved_memory *memory, size_t layer, size_t micro_batch, size_t rank,
                              spw_rank_rows rows);
/* Runs the step under way, position `step`. live [stages][ranks]: peaks of what must be live in it; NULL: all
 * ranks of a stage are alike. */
SPW_MUST_CHECK spw_status spw_reserved_memory_end_step(spw_reserved_memory *memory, size_t step,
                                                       const uint64_t *live);
/* What spw_reserved_memory_finish() asks for: of steps that have ended, or that they have in another process. */
SPW_MUST_CHECK spw_status spw_reserved_memory_found(spw_reserved_memory *memory, const spw_state *state);
/* Bytes that it remembers then, at most. */
uint64_t spw_reserved_memory_later_bytes(const spw_reserved_request *request);
/* How many processes of the job are to be run: 0 before the last step has ended here, or was told by spw_reserved_memory_found(). */
size_t spw_reserved_memory_runs(const spw_reserved_memory *memory);
/* Of a process: under both settings of the allocator, or under one alone. */
typedef enum spw_reserved_part {
    SPW_RESERVED_BOTH,
    SPW_RESERVED_AS_SET,
    SPW_RESERVED_OTHER
} spw_reserved_part;
/* Is there another setting than the job's? */
bool spw_reserved_memory_has_parts(const spw_reserved_memory *memory);
/* All steps of one of them, here or in another process. What comes of it is taken run by run, from 0 on, and of each the job's setting
 * first; the last run completes the summary. */
SPW_MUST_CHECK spw_status spw_reserved_memory_run(spw_reserved_memory *memory, size_t run,
                                                  spw_reserved_part part, spw_note *out);
SPW_MUST_CHECK spw_status spw_reserved_memory_take(spw_reserved_memory *memory, size_t run,
                                                   spw_reserved_part part, spw_note_reader *record);
/* Peaks of a step that has ended, of the rank that has most. */
uint64_t spw_reserved_memory_reserved(const spw_reserved_memory *memory, size_t step);
uint64_t spw_reserved_memory_allocated(const spw_reserved_memory *memory, size_t step);

SPW_MUST_CHECK spw_status spw_reserved_memory_finish(const spw_reserved_memory *memory,
                                                     spw_reserved_summary *out);

#endif
