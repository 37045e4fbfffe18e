/* How many choices an expert has of one rank in one micro-batch of a layer, tallied over the steps of a replay: what any capacity drops
 * follows. */
#ifndef SPW_SIM_ROUTING_LOAD_TALLY_H
#define SPW_SIM_ROUTING_LOAD_TALLY_H

#include "base/status.h"
#include "base/walk.h"

#include <stddef.h>
#include <stdint.h>

typedef struct spw_counts spw_counts;

typedef struct spw_load_tally {
    size_t most;      /* tokens of a rank in a micro-batch: no expert has more choices of it */
    uint64_t *load;   /* [most + 1] experts of a rank that have so many */
    size_t steps;     /* 0: nothing is tallied yet */
    size_t *heaviest; /* [steps] the largest load of each */
} spw_load_tally;

/* What is dropped where an expert keeps at most `capacity` choices of a rank. */
typedef struct spw_capacity_drops {
    uint64_t assignments, dropped;
    size_t dropping_steps; /* steps in which anything is dropped */
} spw_capacity_drops;

SPW_MUST_CHECK spw_status spw_load_tally_create(size_t most, size_t steps, spw_load_tally *out);
void spw_load_tally_destroy(spw_load_tally *tally); /* a zeroed one is fine */

/* Adds the loads of one micro-batch of a layer to the record; always as many bytes. */
SPW_MUST_CHECK spw_status spw_load_tally_note(const spw_load_tally *tally, const spw_counts *counts,
                                              spw_note *out);
/* Takes what was noted, of step number `step`. */
SPW_MUST_CHECK spw_status spw_load_tally_take(spw_load_tally *tally, size_t step, spw_note_reader *record);
/* All that was taken. */
SPW_MUST_CHECK spw_status spw_load_tally_state(spw_load_tally *tally, const spw_state *state);

spw_capacity_drops spw_load_tally_drops(const spw_load_tally *tally, size_t capacity);

#endif
