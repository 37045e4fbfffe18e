/* From a trace to the micro-batches of a job: which rows of which step every rank of the job holds. The rules
 * are those of docs/schemes.md, "From a trace to a job of another size": exact where the trace is the job's,
 * else folded, else resampled; the result says which, and why. */
#ifndef SPW_SIM_ROUTING_COMPOSE_H
#define SPW_SIM_ROUTING_COMPOSE_H

#include "base/status.h"
#include "base/walk.h"
#include "sim/job/job_words.h"
#include "sim/routing/assumptions.h"
#include "sim/routing/token_store.h"

#include <stdint.h>

typedef struct spw_layout spw_layout;
typedef struct spw_placement spw_placement;
typedef struct spw_trace spw_trace;
typedef struct spw_trace_record spw_trace_record;

/* A trace read as the steps of a job. */
typedef struct spw_composer spw_composer;

/* Replays steps [step_begin, step_end) and layers [layer_begin, layer_end) of `trace` (borrowed) as
 * micro-batches of `sequences` [batches] sequences a rank. SPW_ECONFIG when experts or top_k are not the
 * model's. */
typedef struct spw_composer_request {
    spw_trace *trace;
    const spw_job *job; /* borrowed */
    const size_t *sequences;
    size_t batches;
    size_t step_begin, step_end, layer_begin, layer_end; /* positions in the trace; end 0 = to the last */
    uint64_t seed;
    size_t
        drawn_sequences; /* of a rank, from a trace of counts; a larger batch repeats them. 0: all are drawn */
    /* kinds: of micro-batches of a batch that is drawn; those behind the first `kinds` are as these in turn. 0: all are drawn */
    size_t micro_batches, kinds;
    bool weights;           /* read router weights too, where the trace has them */
    bool counts;            /* of generated routing alone: spw_composer_law() gives the law of its counts */
    spw_token_store *store; /* of the trace, borrowed; NULL: none */
} spw_composer_request;
SPW_MUST_CHECK spw_status spw_composer_create(const spw_composer_request *request, spw_composer **out);
void spw_composer_destroy(spw_composer *composer); /* NULL is fine */

size_t spw_composer_steps(const spw_composer *composer);  /* steps of the replay */
size_t spw_composer_layers(const spw_composer *composer); /* layers of the replay */
int64_t spw_composer_step_id(const spw_composer *composer, size_t step);
int32_t spw_composer_layer_id(const spw_composer *composer, size_t layer);

/* How many of the job's MoE layers the replayed layer stands for, when `layers` of them are taken in turn. */
size_t spw_layers_stood_for(size_t moe_layers, size_t layers, size_t layer);

/* Begins any step: builds the layout of every batch. */
SPW_MUST_CHECK spw_status spw_composer_begin(spw_composer *composer, size_t step);
/* Adds to the record what the step begun was found to rest on. */
SPW_MUST_CHECK spw_status spw_composer_note(const spw_composer *composer, spw_note *out);
/* Takes what was noted of a step, by this composer or that of another process. Steps are taken in order. */
SPW_MUST_CHECK spw_status spw_composer_take(spw_composer *composer, size_t step, spw_note_reader *record);
/* All that the steps taken have left. */
SPW_MUST_CHECK spw_status spw_composer_state(spw_composer *composer, const spw_state *state);
/* The choices of one layer of the step begun, and the layout of `batch` over them. Both are valid until the
 * next call. */
SPW_MUST_CHECK spw_status spw_composer_layer(spw_composer *composer, size_t layer, size_t batch,
                                             spw_trace_record *record, const spw_layout **layout);

/* In place of choices the law of their counts (traces/generate/made_trace.h), where there is one for the placement: else record->law is NULL. */
SPW_MUST_CHECK spw_status spw_composer_law(const spw_composer *composer, size_t layer,
                                           const spw_placement *placement, spw_trace_record *record);

/* The layout alone. */
const spw_layout *spw_composer_layout(const spw_composer *composer, size_t batch);
/* Is the step begun drawn from counts, every batch from choices of its own? */
bool spw_composer_draws(const spw_composer *composer);
/* Where the store counts pieces of a layer of the step begun, by their law or as tokens; NULL where it does not, as in a step without tokens. */
SPW_MUST_CHECK spw_status spw_composer_store(const spw_composer *composer, size_t layer,
                                             const spw_placement *placement, const spw_layout *layout,
                                             bool law, spw_segment_counts **out);

/* The worst match over the steps taken so far, and what was assumed. */
spw_match spw_composer_match(const spw_composer *composer, size_t batch);
const spw_assumptions *spw_composer_assumptions(const spw_composer *composer, size_t batch);

#endif
