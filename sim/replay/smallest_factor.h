/* The smallest capacity or buffer factor whose drops stay within a limit, found by replaying the trace. */
#ifndef SPW_SIM_REPLAY_SMALLEST_FACTOR_H
#define SPW_SIM_REPLAY_SMALLEST_FACTOR_H

#include "base/status.h"
#include "sim/replay/replay.h"

#include <stdbool.h>

/* What a factor must keep to. */
typedef struct spw_factor_limit {
    double dropped;  /* the most of the assignments that are dropped, a share; INFINITY: any */
    size_t overflow; /* the most steps in which anything is dropped; SIZE_MAX: any */
} spw_factor_limit;

/* A factor of a scheme: the one that limits its rows, or that of its page pool, whose overflow is counted in its stead. */
typedef enum spw_factor_kind { SPW_FACTOR_ROWS, SPW_FACTOR_PAGES, SPW_FACTOR_KINDS } spw_factor_kind;

/* The smallest multiple of 0.001 of the scheme's factor that keeps to `limit`, with the first batch and split of the request;
 * *factor 0: none does. drops: what it drops. More of a factor never drops more, so three or four replays of some 30 factors
 * each find it; the one reported was replayed itself. The scheme has a factor. */
SPW_MUST_CHECK spw_status spw_smallest_factor(const spw_replay_request *request, const spw_scheme *scheme,
                                              spw_factor_kind kind, spw_factor_limit limit, double *factor,
                                              spw_result_drops *drops);
/* The request with one of its batches alone, in `job`, which must live as long. */
spw_replay_request spw_replay_of_batch(const spw_replay_request *request, size_t batch, spw_job *job);
/* The name of the scheme's factor; NULL: it has none, or no pool under its options. */
const char *spw_scheme_factor_name(const spw_scheme *scheme, spw_factor_kind kind);

/* For every batch and every scheme with a factor (capacity_factor, buffer_factor, budget), in the order of the request: the
 * smallest with which at most `most` (a share) of the assignments are dropped. Appends to result->factor. */
SPW_MUST_CHECK spw_status spw_smallest_factors(const spw_replay_request *request, double most,
                                               spw_result *result);

/* The scheme with its factor set; false when it has none. SPW_ECONFIG when the value is outside the option's range. */
SPW_MUST_CHECK spw_status spw_scheme_with_factor(const spw_scheme *scheme, spw_factor_kind kind,
                                                 double factor, spw_scheme *out, bool *has);

#endif
