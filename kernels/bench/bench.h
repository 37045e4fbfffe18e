/* The parts of spillway-bench-kernels, and the one way they time. */
#ifndef SPW_KERNELS_BENCH_BENCH_H
#define SPW_KERNELS_BENCH_BENCH_H

#include "kernels/gpu/device.h"

enum { SPW_BENCH_RUNS = 7 };

/* Runs prepare(data, run) and then, between device events, work(data, run); SPW_BENCH_RUNS times after one
 * that does not count. *milliseconds = the median. */
typedef spw_status spw_bench_step(void *data, int run);
SPW_MUST_CHECK spw_status spw_bench_time(spw_bench_step *prepare, spw_bench_step *work, void *data,
                                         double *milliseconds);

/* Sorts the values; of an even number of them the mean of the middle two. */
double spw_bench_median(double *value, size_t count);

/* A large dense bf16 product by the vendor's library, and a device copy. */
SPW_MUST_CHECK spw_status spw_bench_ceilings(void);
SPW_MUST_CHECK spw_status spw_bench_gemm(void);
SPW_MUST_CHECK spw_status spw_bench_local(void);

#endif
