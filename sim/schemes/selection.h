/* What a scheme does with one layer of one step: its drop rule, the counts of what it keeps, its flow. The one way to run a
 * scheme, whatever its rule. */
#ifndef SPW_SIM_SCHEMES_SELECTION_H
#define SPW_SIM_SCHEMES_SELECTION_H

#include "base/status.h"
#include "sim/routing/counts.h"
#include "sim/schemes/scheme.h"

#include <stdint.h>

typedef struct spw_selection spw_selection;

/* For every group of a placement; `sequences` a rank. */
SPW_MUST_CHECK spw_status spw_selection_create(spw_placement placement, const spw_layer_shape *shape,
                                               spw_selection **out);
void spw_selection_destroy(spw_selection *selection); /* NULL is fine */

/* From now on only what flows say of `dropped` is asked for, so that no choice is looked at where a scheme's capacity
 * (routing.expert_capacity) says how many are dropped; rows and wire are then those of all choices. */
void spw_selection_drops_alone(spw_selection *selection);

/* Does the scheme have what its drop rule asks of the trace? SPW_ECONFIG when it drops by weight and there are none. */
SPW_MUST_CHECK spw_status spw_selection_check(const spw_scheme *scheme, bool weights);

/* Where it drops by weight because nobody said otherwise, there are none, and it can drop by position (option policy): `own`, which
 * is the scheme with that policy under the same name. Else the scheme. */
const spw_scheme *spw_selection_scheme(const spw_scheme *scheme, bool weights, spw_scheme *own);
enum { SPW_BY_POSITION_TEXT = SPW_SCHEME_TEXT + 192 };
/* That in a sentence; false where it is the scheme. */
bool spw_selection_note(const spw_scheme *scheme, bool weights, char out[SPW_BY_POSITION_TEXT]);

/* Does a scheme with keep() need no look at a choice, but where kept or lost ones are asked for? Its capacity says how many an expert
 * keeps of a rank, and its flow asks for no more; or nobody does, where only drops are asked for. Where tokens travel once a rank, the
 * kept choices say that too if a rank of the shape has one expert, and its group lies in one node of so many GPUs. Nothing is dropped
 * of a shape whose capacity nobody can exceed. */
bool spw_selection_by_counts(const spw_scheme *scheme, const spw_layer_shape *shape, size_t gpus_per_node,
                             bool drops_alone);

/* Runs `scheme`. counts: of all choices, from the same record and layout. SPW_ECONFIG when the scheme drops by weight and
 * the record has none. Record and layout are borrowed, and what the functions below return is valid, until the next run. */
SPW_MUST_CHECK spw_status spw_selection_run(spw_selection *selection, const spw_scheme *scheme,
                                            const spw_counts *counts, const spw_trace_record *record,
                                            const spw_layout *layout);

/* Flow of one group; dropped holds all that the scheme dropped. */
const spw_flow *spw_selection_flow(const spw_selection *selection, size_t group);
/* The counts that the flow was made from: those of the kept choices for a scheme with keep(), else those given. */
const spw_counts *spw_selection_counts(const spw_selection *selection);
/* [ranks][tokens][top_k] of all ranks: 1 where a choice is kept. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_selection_kept(spw_selection *selection, const uint8_t **kept);
/* Tokens of each rank [ranks] that had a choice and lost every one. */
SPW_MUST_CHECK spw_status spw_selection_lost_tokens(spw_selection *selection, const uint64_t **lost);

/* The choices of one group [ranks][tokens][top_k]: expert < 0 = none; weight may be NULL. */
void spw_group_choices(const spw_trace_record *record, const spw_layout *layout, size_t first_rank,
                       const spw_layer_shape *shape, int32_t *expert, float *weight);

#endif
