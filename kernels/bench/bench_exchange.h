/* Speed of dispatch and combine between the GPUs of this machine, beside its links and NCCL. */
#ifndef SPW_KERNELS_BENCH_BENCH_EXCHANGE_H
#define SPW_KERNELS_BENCH_BENCH_EXCHANGE_H

#include "kernels/gpu/link_curve.h"

#include <stdbool.h>

typedef struct spw_bench_exchange_request {
    size_t ranks; /* 0: one a GPU */
    size_t gpus;  /* 0: as many as there are, at most `ranks` */
    bool quick;   /* only the first shape and the small one */
} spw_bench_exchange_request;

/* Prints comma-separated lines with one header. More ranks than GPUs are folded onto them side by side; such rows are
 * called so, off_rank_megabytes are then of a rank, off_gpu_megabytes and the rates of a GPU. curve: NULL, or where
 * the links' curve goes. SPW_EDEVICE: fewer than two GPUs, or none in this build. */
SPW_MUST_CHECK spw_status spw_bench_exchange(const spw_bench_exchange_request *request,
                                             spw_link_curve *curve);

#endif
