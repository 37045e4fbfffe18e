/* What the replays of a search found, one after the other, in a checkpoint: a search that goes on takes it from there in place of a
 * replay. All else of a search follows from it and from the question. */
#ifndef SPW_SIM_PLAN_SEARCH_LOG_H
#define SPW_SIM_PLAN_SEARCH_LOG_H

#include "base/checkpoint.h"
#include "sim/plan/search_front.h"
#include "sim/replay/outside_fit.h"
#include "sim/replay/replay_request.h"

#include <stdbool.h>
#include <stddef.h>

/* One call of a replay's judge: a prospect, or a point and what is outside its fit. */
typedef struct spw_search_record {
    size_t row;
    bool taken; /* a point */
    spw_replay_prospect prospect;
    spw_search_point point;
    spw_outside_fit outside;
} spw_search_record;

typedef struct spw_search_log {
    spw_checkpoint *checkpoint; /* borrowed; NULL: nothing is kept */
    spw_search_record *record;
    size_t records, room;
} spw_search_log;

void spw_search_log_destroy(spw_search_log *log);
/* Begins the replay that begins with job `job` of the space, on so many GPUs: *known, and its records are there, if an earlier run has left
 * them. SPW_EFORMAT for those of another replay. */
SPW_MUST_CHECK spw_status spw_search_log_begin(spw_search_log *log, size_t job, size_t gpus, bool *known);
/* Notes a call; nothing where nothing is kept. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_search_log_note(spw_search_log *log, const spw_search_record *record);
/* The replay has ended: it is on the disk when this returns. */
SPW_MUST_CHECK spw_status spw_search_log_end(spw_search_log *log, size_t job, size_t gpus);

#endif
