/* The GPU of this process: whether there is one, its memory. Host side; implemented for CUDA and HIP in device.c and, on a
 * machine without a GPU compiler, by device_none.c. */
#ifndef SPW_KERNELS_DEVICE_H
#define SPW_KERNELS_DEVICE_H

#include "base/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number of GPUs that this build can use; 0 without a GPU compiler or without a GPU. */
int spw_device_count(void);

#ifdef __cplusplus
}
#endif
#endif
