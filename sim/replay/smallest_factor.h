/* The smallest capacity or buffer factor whose drops stay within a limit, found by replaying the trace. */
#ifndef SPW_SIM_REPLAY_SMALLEST_FACTOR_H
#define SPW_SIM_REPLAY_SMALLEST_FACTOR_H

#include "base/status.h"
#include "sim/replay/replay.h"

#include <stdbool.h>

/* For every batch and every scheme with an option capacity_factor or buffer_factor, in the order of the request: the
 * smallest multiple of 0.001 with which at most `most` (a share) of the assignments are dropped. More of a factor never
 * drops more, so three or four replays of some 30 factors each find it; the one reported was replayed itself. Appends to
 * result->factor. */
SPW_MUST_CHECK spw_status spw_smallest_factors(const spw_replay_request *request, double most,
                                               spw_result *result);

/* The scheme with its factor set; false when it has none. SPW_ECONFIG when the value is outside the option's range. */
SPW_MUST_CHECK spw_status spw_scheme_with_factor(const spw_scheme *scheme, double factor, spw_scheme *out,
                                                 bool *has);

#endif
