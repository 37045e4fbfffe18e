/* Speed of the exchanges without deduplication beside the library's. */
#ifndef SPW_KERNELS_BENCH_BENCH_PLAIN_H
#define SPW_KERNELS_BENCH_BENCH_PLAIN_H

#include "kernels/bench/nccl_library.h"
#include "kernels/exchange/plain_exchange.h"

/* 4096 tokens of 7168 a rank, top-8 of 256, uniform routing; lines as those of spw_bench_exchange. nccl may be
 * NULL. */
SPW_MUST_CHECK spw_status spw_bench_plain(spw_world *world, spw_nccl *nccl,
                                          const spw_exchange_variant *variant, double all_pairs_gb_per_s);

#endif
