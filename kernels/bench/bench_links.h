/* The links between GPUs, measured. */
#ifndef SPW_KERNELS_BENCH_BENCH_LINKS_H
#define SPW_KERNELS_BENCH_BENCH_LINKS_H

#include "kernels/gpu/link_curve.h"
#include "kernels/gpu/world.h"

/* By message size: see link_curve.h. The world has a rank a GPU, at least two. */
SPW_MUST_CHECK spw_status spw_bench_link_curve(spw_world *world, spw_link_curve *out);
/* 10^9 bytes/s that leave a GPU while all copy to all, by the runtime's copies of `bytes` for every pair. */
SPW_MUST_CHECK spw_status spw_bench_all_pairs(spw_world *world, size_t bytes, double *gb_per_s);
/* Microseconds of a round trip of 16 bytes between the first two GPUs. */
SPW_MUST_CHECK spw_status spw_bench_round_trip(spw_world *world, double *microseconds);

#endif
