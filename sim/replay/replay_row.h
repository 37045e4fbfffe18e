/* One row of a result under way: what one scheme does with one batch of one parallel split, summed over the micro-batches,
 * layers and steps of a replay. */
#ifndef SPW_SIM_REPLAY_REPLAY_ROW_H
#define SPW_SIM_REPLAY_REPLAY_ROW_H

#include "base/status.h"
#include "base/walk.h"
#include "sim/replay/overload.h"
#include "sim/replay/page_use.h"
#include "sim/replay/replay_request.h"
#include "sim/replay/replay_time.h"
#include "sim/replay/result.h"
#include "sim/replay/row_sums.h"
#include "sim/replay/stage_memory.h"
#include "sim/routing/compose.h"
#include "sim/schemes/selection.h"
#include "sim/time/routing_load.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What all rows of a replay share. */
typedef struct spw_replay_frame {
    const spw_replay_request *request;
    spw_composer *composer;
    bool parts;           /* there are pipeline stages or micro-batches */
    size_t micro_batches; /* of one step */
    size_t kinds;         /* of them: those behind the first `kinds` are as these in turn */
    size_t stages;
    size_t ranks, layers, steps; /* ranks: of one stage; layers and steps of the replay */
    bool drops_alone; /* of a row nothing else is made: no traffic, and no memory that follows the routing */
} spw_replay_frame;

typedef struct spw_replay_row {
    const spw_replay_frame *frame;
    spw_point point;
    size_t batch;
    bool refused; /* the point cannot be; nothing but the reason is there then */
    char refusal[SPW_REFUSAL_TEXT];
    spw_row_sums sums;
    spw_result_drops drops;
    uint64_t dropped_before, assignments_before; /* the step under way */
    uint64_t *rows_received, *bytes_sent, *bytes_received,
        *dropped; /* of the step under way [layers][ranks], micro-batches together */
    spw_level_bytes levels;
    double *link_bytes;                      /* as in spw_replay_step; NULL: nobody listens, or too many */
    size_t most_step, most_layer, most_rank; /* positions: where the most rows arrive */
    spw_stage_memory memory;
    spw_reserved_memory *reserved;  /* NULL: no allocator is replayed */
    bool exact;                     /* it is, tensor by tensor */
    bool compiled;                  /* the memory is that of a stack's compiled program */
    char outside[SPW_OUTSIDE_TEXT]; /* why the stack's fit does not cover it */
    bool timed;
    spw_replay_time time;
    double imbalance;       /* the stated one at this expert-parallel size; 0: none */
    spw_stated_rows stated; /* its rows */
    spw_overload overload;  /* where the request asks for it */
    spw_overload_run overload_run;
    spw_page_use pages;           /* of a scheme that has a pool of them */
    double factor[SPW_OVERLOADS]; /* of the step that ended last */
} spw_replay_row;

/* Where in the replay a record is: positions. */
typedef struct spw_replay_place {
    size_t step, layer, micro_batch;
} spw_replay_place;

/* SPW_ECONFIG for a point of the request that cannot be. */
SPW_MUST_CHECK spw_status spw_replay_point_check(const spw_replay_request *request, const spw_point *point);

/* job: one split of the request's. SPW_ECONFIG when the scheme cannot run on it, or not as unevenly as stated, unless
 * there are others. */
SPW_MUST_CHECK spw_status spw_replay_row_create(const spw_replay_frame *frame, const spw_job *job,
                                                const spw_scheme *scheme, size_t batch, spw_replay_row *out);
void spw_replay_row_destroy(spw_replay_row *row); /* a zeroed one is fine */

void spw_replay_row_begin(spw_replay_row *row); /* a step */
/* What the scheme did with one micro-batch of one layer, in every group. counts: of all choices. Nothing of the row changes. */
SPW_MUST_CHECK spw_status spw_replay_row_note(const spw_replay_row *row, const spw_counts *counts,
                                              spw_selection *selection, spw_note *out);
/* Is PyTorch's allocator replayed for such a point, if it is asked for? */
bool spw_replay_row_replays(bool allocator, const spw_point *point);
/* Would a row note the same as another of its scheme, counts and selection? */
bool spw_replay_row_notes_as(const spw_replay_row *row, const spw_replay_row *other);
/* Adds what was noted, by this process or another, in the order of steps, layers and micro-batches. */
SPW_MUST_CHECK spw_status spw_replay_row_add(spw_replay_row *row, spw_replay_place place,
                                             spw_note_reader *record);
SPW_MUST_CHECK spw_status spw_replay_row_end(spw_replay_row *row, size_t step);
/* What is left of the last step where a judge decides who is timed. */
spw_replay_prospect spw_replay_row_prospect(const spw_replay_row *row, size_t index);
SPW_MUST_CHECK spw_status spw_replay_row_end_time(spw_replay_row *row);
/* The allocator through the step, position `step`; nothing where none is replayed. */
SPW_MUST_CHECK spw_status spw_replay_row_end_reserved(spw_replay_row *row, size_t step);
/* All that ended steps have left, of a row without an allocator. */
SPW_MUST_CHECK spw_status spw_replay_row_state(spw_replay_row *row, const spw_state *state);
/* The same, and what the allocator found: for a process that took no record. */
SPW_MUST_CHECK spw_status spw_replay_row_found(spw_replay_row *row, const spw_state *state);
/* The step ended last, for a sink. */
spw_replay_step spw_replay_row_step(const spw_replay_row *row, size_t index, size_t step);

/* Together, when all steps are taken: the allocators of rows that were left for later (replay_later.c). */
SPW_MUST_CHECK spw_status spw_replay_later_run(spw_replay_row *row, size_t rows);

#endif
