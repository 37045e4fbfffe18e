/* What several replays of one trace share, so that its tokens are read and counted once: runs of a step, and counts of pieces of a
 * layer, by the placement of experts. Holds at most 288 MiB, of a process with a limit 64 MiB; what finds no room is read and counted
 * again. */
#ifndef SPW_SIM_ROUTING_TOKEN_STORE_H
#define SPW_SIM_ROUTING_TOKEN_STORE_H

#include "base/status.h"
#include "sim/routing/segment_counts.h"
#include "sim/routing/token_runs.h"

typedef struct spw_token_store spw_token_store;

/* Trace steps [begin, end); `drawn`: counts are drawn by a law where there is one, not counted from tokens. */
typedef struct spw_stored_steps {
    size_t begin, end;
    bool drawn;
} spw_stored_steps;

SPW_MUST_CHECK spw_status spw_token_store_create(spw_token_store **out);
void spw_token_store_destroy(spw_token_store *store); /* NULL is fine */
/* Of another trace, or of none: everything goes. */
void spw_token_store_forget(spw_token_store *store);

/* As spw_token_runs_read(), from the store where it has them. */
SPW_MUST_CHECK spw_status spw_token_store_runs(spw_token_store *store, spw_trace *trace,
                                               spw_stored_steps steps, spw_token_runs *out);
/* Where pieces of a layer (a position in the trace) are counted, with room for those of `layout`; NULL where there is no room.
 * Nothing that it counts may be forgotten. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_token_store_counts(spw_token_store *store, spw_stored_steps steps, size_t layer,
                                                 const spw_placement *placement, const spw_layout *layout,
                                                 spw_segment_counts **out);

#endif
