/* What generated routing gives in the mean, and how far a step is from that by chance: traces/generate/expected_counts.h for the groups,
 * nodes and capacities of a point. */
#ifndef SPW_SIM_SCHEMES_EXPECTED_ROUTING_H
#define SPW_SIM_SCHEMES_EXPECTED_ROUTING_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */
typedef struct spw_trace spw_trace;

/* Means over the layers of the trace. Rows are choices, before any is dropped and without padding. */
typedef struct spw_expected_routing {
    bool there;
    /* of one micro-batch of one layer, in an expert-parallel group: rows of a rank, how far they are by chance from what its experts have
     * in the mean (standard deviation), and of the fullest rank */
    double rows_mean, rows_deviation, rows_fullest;
    double other_ranks,
        other_nodes; /* that a token reaches, each once: copies of it; NAN: not known, as groups straddle nodes */
    /* Share of the assignments of a whole step that is dropped, and its standard deviation; NAN: the scheme does not drop
     * what an expert has over a capacity. */
    double drop_fraction, drop_deviation;
} spw_expected_routing;

typedef struct spw_expected_request {
    spw_trace *trace;
    size_t step, layer_begin, layers; /* positions in it */
    const spw_point *point;
    size_t sources; /* in a step: ranks of a stage that have tokens, times micro-batches */
} spw_expected_request;

/* Not there where the trace is a file, and where its tokens follow another law (hash layers, experts in turn). SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_expected_routing_of(const spw_expected_request *request,
                                                  spw_expected_routing *out);

#endif
