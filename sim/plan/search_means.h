/* What the ranks of a point do in the mean, and what some do exactly, by the very routing of its replay: in a small part of its time. Points
 * that differ in virtual stages and recomputation alone have the same. */
#ifndef SPW_SIM_PLAN_SEARCH_MEANS_H
#define SPW_SIM_PLAN_SEARCH_MEANS_H

#include "base/status.h"
#include "sim/replay/replay_request.h"
#include "sim/time/megatron/megatron_means.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */

/* Ranks whose memory is looked at: the one with the most rows at a time, and the one with the most in all. */
enum { SPW_SEARCH_FULL_RANKS = 2 };

typedef struct spw_search_means {
    bool there;
    spw_megatron_means loads;
    size_t layers, kinds; /* of the replay; kinds: of micro-batches, those behind them are as these in turn */
    spw_rank_rows *full;  /* [SPW_SEARCH_FULL_RANKS][layers][kinds] */
} spw_search_means;

/* request: of one split and scheme; point: of its job, with the batch at place `batch` of it. scaled: to its cluster. Not there for a stated
 * imbalance, more than one step, schemes that drop or pad, a trace of counts alone, and tables of more than 64 MiB. */
SPW_MUST_CHECK spw_status spw_search_means_create(const spw_replay_request *request, const spw_point *point,
                                                  size_t batch, const spw_megatron_coefficients *scaled,
                                                  spw_search_means *out);
void spw_search_means_destroy(spw_search_means *means); /* a zeroed one is fine */

/* What the GPU of a stage that needs most needs at least: the most of those ranks, on any stage. point: as above, or one that has
 * the same. */
SPW_MUST_CHECK spw_status spw_search_means_bytes(const spw_search_means *means, const spw_point *point,
                                                 uint64_t *out);

#endif
