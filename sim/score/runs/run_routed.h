/* A training run whose routing was not forced to balance, and that no one recorded: by the routing that `plan` takes without a trace. */
#ifndef SPW_SIM_SCORE_RUNS_RUN_ROUTED_H
#define SPW_SIM_SCORE_RUNS_RUN_ROUTED_H

#include "sim/job/software.h"
#include "sim/schemes/point.h"
#include "sim/time/timeline.h"

/* `routing`: as --routing of plan. peak_bytes: of the GPU that holds most. For a point that has a time (spw_replay_time_covers). */
SPW_MUST_CHECK spw_status spw_run_routed(const spw_point *point, const spw_software *software,
                                         const char *routing, spw_timeline *time, uint64_t *peak_bytes);

#endif
