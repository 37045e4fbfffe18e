/* The time of one training step of the slowest GPU, by component (docs/validation_time.md).
 *
 * A component is work of one kind on one stream of the GPU. `seconds` is what its kernels take, `exposed_s` what of
 * it the step waits for: the rest hides behind another stream. step_s = sum of exposed_s. Stragglers: every
 * exchange is a barrier of its expert-parallel group, so a layer takes what its slowest rank takes, and the step is
 * the sum over layers of the maximum over ranks, never the maximum of sums.
 *
 * What a time model knows of the routing is spw_routing_layer, one a replayed MoE layer. It can be made without a
 * trace (balanced, or a stated max/mean) or from the flows of a replay; the functions are in sim/time/routing_load.h. */
#ifndef SPW_SIM_TIME_TIMELINE_H
#define SPW_SIM_TIME_TIMELINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPW_TIMELINE_COMPONENTS = 32, SPW_TIMELINE_NOTE = 1024, SPW_TIMELINE_DOUBTS = 12 };

#define SPW_STREAM_LIST(X) \
    X(COMPUTE, "compute", "kernels that compute or move rows inside a GPU") \
    X(COLLECTIVE, "collective", "kernels that wait for other GPUs") \
    X(HOST, "host", "the GPU waits for the host")
#define SPW_STREAM_ENUM(name, text, help) SPW_STREAM_##name,
typedef enum spw_stream { SPW_STREAM_LIST(SPW_STREAM_ENUM) SPW_STREAM_COUNT } spw_stream;
#undef SPW_STREAM_ENUM
const char *spw_stream_name(spw_stream stream);

typedef struct spw_time_component {
    const char *name, *help; /* static text */
    spw_stream stream;
    double seconds, exposed_s; /* 0 <= exposed_s <= seconds */
    /* Of exposed_s: rows to other GPUs and back, between nodes where a group spans them; these with what a dispatcher moves on a GPU. */
    double exchange_s, dispatcher_s;
} spw_time_component;

/* Exchanges of rows between nodes, where no measurement of ours stands behind them: what they cost, and one named cause of the interval. */
typedef struct spw_between_nodes {
    size_t nodes; /* that a group spans; 0: it stays in one */
    size_t rails; /* its GPUs in a node, each with a NIC */
    bool once;    /* a token goes once to a node */
    /* Of one dispatch, what the busiest NIC carries one way: mean over layers and micro-batches. */
    double nic_bytes;
    double seconds;    /* of all exchanges that the step waits for */
    double half_width; /* of these, as a logarithm */
} spw_between_nodes;

typedef struct spw_timeline {
    spw_time_component component[SPW_TIMELINE_COMPONENTS];
    size_t components;
    double step_s, tokens_per_s_per_gpu;
    double low_s, high_s; /* the interval of step_s */
    /* What is behind the interval, cause by cause: seconds times the half width (a logarithm) that concerns them. The first is
     * what a fit leaves of routings that it had not; the causes of the others are the same for every routing of a job. */
    double doubt_s[SPW_TIMELINE_DOUBTS];
    const char *const *doubt_name; /* static texts, [SPW_TIMELINE_DOUBTS]; NULL: causes have no names */
    spw_between_nodes between_nodes;
    double
        pair_width; /* how far two jobs' ratio was off where such pairs were measured, as a logarithm; 0: never was */
    char outside[SPW_TIMELINE_NOTE]; /* why this is not covered by the fit; "" when it is */
} spw_timeline;

/* Load of one MoE layer: maxima over the ranks of all groups. Rows are what a rank's experts compute, after drops;
 * a scheme with fixed slots has its slots. Wire rows are those of one dispatch that leave or enter one GPU, whichever
 * is more, by the port that they cross: `link` inside a node, `nic` between nodes; where a port higher up in the network
 * takes longer (sim/schemes/network.h), `nic` is what would take a NIC as long. */
typedef struct spw_routing_layer {
    double rows;       /* assignments */
    double tiled_rows; /* the same, every expert's rows rounded up to whole tiles of SPW_TILE_ROWS */
    double link_rows, nic_rows;
    double latency_s; /* of the network's levels, an exchange; 0 where it has one */
} spw_routing_layer;

enum { SPW_TILE_ROWS = 256 }; /* of a grouped GEMM: AMD-AGI/Primus-Turbo csrc/kernels/grouped_gemm, bf16 */

/* Empties the timeline; components are then added in the order in which they are printed. SPW_EARG when there
 * are more than SPW_TIMELINE_COMPONENTS. */
void spw_timeline_clear(spw_timeline *timeline);
SPW_MUST_CHECK spw_status spw_timeline_add(spw_timeline *timeline, const char *name, const char *help,
                                           spw_stream stream, double seconds, double exposed_s);
/* Sums exposed_s into step_s and divides: tokens of one GPU and step over step_s. */
void spw_timeline_finish(spw_timeline *timeline, double tokens_per_gpu);
/* A finished timeline may take so much less, and so much more, beside what its interval has: both ends are scaled by it. */
void spw_timeline_widen(spw_timeline *timeline, double less_s, double more_s);
/* How far the first over the second may be off, as a logarithm, of two routings of one job: the first's own doubt, and of each other
 * cause only the share of the step by which the two differ. What slows both alike cancels. */
double spw_timeline_ratio_width(const spw_timeline *of, const spw_timeline *over);
/* What of a timeline two jobs are compared by; fields as there. */
typedef struct spw_pace {
    double step_s, tokens_per_s_per_gpu, pair_width, doubt_s[SPW_TIMELINE_DOUBTS];
} spw_pace;
spw_pace spw_timeline_pace(const spw_timeline *timeline);
/* From this chance on a plan says of two points which is faster. */
static const double SPW_CALLED = 0.9;
/* The chance, 0 to 1, that the first has more tokens/s a GPU than the second, another job of the same model and GPUs. The doubt about
 * their ratio: pair_width, or where pairs were never measured the first cause of each, which the other has not; and of every other
 * cause the share of the step by which the two differ. Intervals hold 90 of 100; errors are taken as normal. NAN without times. */
double spw_timeline_faster(const spw_timeline *of, const spw_timeline *than);
double spw_pace_faster(const spw_pace *of, const spw_pace *than);
/* Half the width of the interval of their ratio, as a logarithm: that doubt. */
double spw_pace_ratio_width(const spw_pace *of, const spw_pace *than);
/* Of exposed_s, of all components: rows to other GPUs and back, those that recomputation repeats too. */
double spw_timeline_exchanges_s(const spw_timeline *timeline);
/* The component of that name; NULL when there is none. */
const spw_time_component *spw_timeline_find(const spw_timeline *timeline, const char *name);

#endif
