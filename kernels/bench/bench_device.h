/* The kernels' speed on this process's GPU. */
#ifndef SPW_KERNELS_BENCH_BENCH_DEVICE_H
#define SPW_KERNELS_BENCH_BENCH_DEVICE_H

#include "base/status.h"

/* Prints comma-separated lines with one header: `only` is gemm, local, or "" for both, ceilings before and behind.
 * SPW_EDEVICE: no GPU, or none in this build; SPW_EARG: `only`. */
SPW_MUST_CHECK spw_status spw_bench_device(const char *only);

#endif
