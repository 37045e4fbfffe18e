/* How many of a replay's choices the trace has: the ids of others are missing. */
#ifndef SPW_SIM_ROUTING_CHOICE_TALLY_H
#define SPW_SIM_ROUTING_CHOICE_TALLY_H

#include "base/status.h"
#include "sim/routing/assumptions.h"

#include <stddef.h>
#include <stdint.h>

typedef struct spw_counts spw_counts;

typedef struct spw_choice_tally {
    uint64_t slots, chosen; /* tokens x top_k; those with an expert */
} spw_choice_tally;

void spw_choice_tally_add(spw_choice_tally *tally, const spw_counts *counts, size_t top_k);
/* Adds a sentence when some are missing; SPW_EFORMAT when all are. */
SPW_MUST_CHECK spw_status spw_choice_tally_assume(const spw_choice_tally *tally, spw_assumptions *list);

#endif
