/* Routing counts of layouts that hold the same pieces of a record many times (drawn batches, batches of several sizes): every
 * piece is counted once, ranks are sums. */
#ifndef SPW_SIM_ROUTING_SEGMENT_COUNTS_H
#define SPW_SIM_ROUTING_SEGMENT_COUNTS_H

#include "sim/routing/counts.h"

typedef struct spw_expert_blocks spw_expert_blocks;
typedef struct spw_segment_counts spw_segment_counts;

SPW_MUST_CHECK spw_status spw_segment_counts_create(spw_placement placement, spw_segment_counts **out);
void spw_segment_counts_destroy(spw_segment_counts *cache); /* NULL is fine */
/* Pieces stay counted for calls to come, also where none of this one is there twice. */
void spw_segment_counts_keep(spw_segment_counts *cache);
/* Are all pieces of the layout counted? Then it is filled without looking at the record. */
bool spw_segment_counts_know(const spw_segment_counts *cache, const spw_layout *layout);
/* Bytes that it holds. */
size_t spw_segment_counts_bytes(const spw_segment_counts *cache);
/* And those that counting the layout adds at most; SIZE_MAX: pieces of its placement are not counted. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_segment_counts_need(spw_segment_counts *cache, const spw_layout *layout,
                                                  size_t *bytes);
/* What was counted belongs to a record that is gone. */
void spw_segment_counts_forget(spw_segment_counts *cache);

/* Blocks of experts by whose law (traces/generate/made_trace.h) counts of pieces can be drawn; false: groups differ, or sharers of an expert are
 * on several nodes. */
bool spw_segment_counts_law(const spw_placement *placement, spw_expert_blocks *out);

/* The same as spw_counts_fill(), to the last count; by a record with a law as likely. `counts` has the placement of the cache, whatever its ranks; the record is the one of the
 * calls since the last spw_segment_counts_forget(). */
SPW_MUST_CHECK spw_status spw_segment_counts_fill(spw_segment_counts *cache, spw_counts *counts,
                                                  const spw_trace_record *record, const spw_layout *layout);

#endif
