/* Routing counts of long segments by sets: the experts of a token are bits of a few words, 8 tokens to a vector, and what is
 * counted is how often each bit is set. A histogram in memory takes a store for every choice, of which a processor completes
 * one a cycle; sets take 0.7 cycles or less. Needs AVX-512 with BITALG, GFNI and VBMI (Ice Lake or Zen 4 on). */
#ifndef SPW_SIM_ROUTING_EXPERT_SETS_H
#define SPW_SIM_ROUTING_EXPERT_SETS_H

#include "sim/routing/counts.h"

typedef struct spw_expert_sets spw_expert_sets;

/* For one thread. *out is NULL, and the status SPW_OK, where segments cannot be counted so: other processors, more than
 * 256 experts, or a number of experts on a rank that is no power of two. */
SPW_MUST_CHECK spw_status spw_expert_sets_create(const spw_counts *counts, const spw_trace_record *record,
                                                 spw_expert_sets **out);
void spw_expert_sets_destroy(spw_expert_sets *sets); /* NULL is fine */

/* The ranks counted next are of `group`. */
void spw_expert_sets_set_group(spw_expert_sets *sets, size_t group);

/* Adds the first tokens of ids [tokens][top_k] to row [experts] and destination [group_ranks + group_nodes], and says how
 * many they were: all but a few, or 0 and nothing is added, where there are too few tokens or where a choice is missing or
 * stands twice in its token. */
size_t spw_expert_sets_add(spw_expert_sets *sets, const void *ids, size_t tokens, uint32_t *row,
                           uint32_t *destination);

#endif
