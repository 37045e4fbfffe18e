/* The one way in which exchanges between GPUs are timed. */
#ifndef SPW_KERNELS_BENCH_BENCH_RANKS_H
#define SPW_KERNELS_BENCH_BENCH_RANKS_H

#include "kernels/gpu/world.h"

enum { SPW_BENCH_SETS = 4, SPW_BENCH_RANKS_RUNS = 24, SPW_BENCH_RANKS_WARM = 4 };

/* Launches on the streams of all ranks, with input number `set` of SPW_BENCH_SETS. */
typedef spw_status spw_bench_ranks_step(void *data, int set);

/* `first` (or NULL), then a meeting of the GPUs, then, between events on each, `run`: SPW_BENCH_RANKS_RUNS times
 * after a few that do not count, all launched ahead behind a pause. *ms = the median of the slowest rank's times. The
 * world's kernels wait for each other, in one process. */
SPW_MUST_CHECK spw_status spw_bench_ranks(spw_world *world, spw_bench_ranks_step *first,
                                          spw_bench_ranks_step *run, void *data, double *ms);
/* Where ranks share a GPU: what a name ends with, and behind a row the GPUs and 10^6 bytes that left each. Else
 * nothing. */
const char *spw_bench_folded(const spw_world *world);
void spw_bench_end_row(const spw_world *world, double off_gpu_bytes);

/* The meeting: the GPUs go on together. Counts nothing but SPW_COUNT_OTHER. */
SPW_MUST_CHECK spw_status spw_bench_meet(spw_world *world);

#endif
