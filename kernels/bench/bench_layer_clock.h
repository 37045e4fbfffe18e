/* The phases of a layer's passes, timed by events on the stream of every rank. */
#ifndef SPW_KERNELS_BENCH_BENCH_LAYER_CLOCK_H
#define SPW_KERNELS_BENCH_BENCH_LAYER_CLOCK_H

#include "kernels/bench/bench_ranks.h"
#include "kernels/layer/layer_gpu.h"

enum { SPW_LAYER_PASSES = 2 }; /* forward, backward */

typedef struct spw_layer_times {
    bool there[SPW_LAYER_PASSES][SPW_LAYER_PHASES];
    double ms[SPW_LAYER_PASSES][SPW_LAYER_PHASES];    /* median of the slowest rank's times */
    double bytes[SPW_LAYER_PASSES][SPW_LAYER_PHASES]; /* of a rank with others, mean; 0 inside a rank */
} spw_layer_times;

/* Runs the steps one after the other, each behind a meeting of the GPUs, again and again with the routings of
 * bench_ranks.h. The layer's watch is taken and given up. */
SPW_MUST_CHECK spw_status spw_layer_time_phases(spw_layer_gpu *layer,
                                                spw_bench_ranks_step *const steps[SPW_LAYER_PASSES],
                                                void *data, spw_layer_times *out);

#endif
