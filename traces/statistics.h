/* How balanced the routing of a trace is, layer by layer: what `spillway trace info` prints. */
#ifndef SPW_TRACES_STATISTICS_H
#define SPW_TRACES_STATISTICS_H

#include "base/walk.h"

typedef struct spw_trace spw_trace;

/* Expert-parallel sizes for which ranks and nodes are looked at; a node has 8 ranks, expert x is on rank
 * x / (experts / size). A size that does not divide the experts gives NaN. */
enum { SPW_STATISTICS_SIZES = 5, SPW_STATISTICS_NODE_RANKS = 8 };
extern const size_t spw_statistics_size[SPW_STATISTICS_SIZES]; /* 4 8 16 32 64 */

/* Of one histogram over the experts of a layer, or the mean of many. NaN: cannot be had. */
typedef struct spw_statistics {
    double max_over_mean;
    double variation;    /* standard deviation over experts / mean */
    double gini;         /* 0: all alike; towards 1: one expert has all */
    double entropy_bits; /* log2(experts): all alike */
    double dead_experts; /* chosen by nobody */
    double rank_max_over_mean[SPW_STATISTICS_SIZES];
    double
        ranks_touched[SPW_STATISTICS_SIZES]; /* distinct ranks that a token's choices are on; needs tokens */
    double nodes_touched[SPW_STATISTICS_SIZES];
} spw_statistics;

typedef struct spw_layer_statistics {
    spw_statistics mean;  /* over the steps that routed anything */
    spw_statistics worst; /* of the step with the largest max_over_mean */
    size_t worst_step;    /* its position */
    size_t steps;         /* that routed anything */
} spw_layer_statistics;

/* Of a histogram alone; the touched counts are NaN. */
void spw_statistics_of(const uint32_t *routed, size_t experts, spw_statistics *out);

/* out [layers]. Tokens are read where the trace has them, counts/routed elsewhere. A unit is a layer of a step; `beside` computes
 * and takes of each what it wants in the same pass over the trace, NULL: nobody does. */
SPW_MUST_CHECK spw_status spw_trace_statistics(spw_trace *trace, const spw_walk *beside,
                                               spw_layer_statistics *out);

#endif
