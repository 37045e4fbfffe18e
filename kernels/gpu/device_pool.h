/* Device arrays and host copies of one check, freed together; the first failure sticks, and what follows it does
 * nothing. */
#ifndef SPW_KERNELS_GPU_DEVICE_POOL_H
#define SPW_KERNELS_GPU_DEVICE_POOL_H

#include "kernels/gpu/device.h"

enum { SPW_POOL_ARRAYS = 48 };

typedef struct spw_device_pool {
    spw_status status;
    size_t arrays, copies;
    spw_device_array array[SPW_POOL_ARRAYS];
    void *copy[SPW_POOL_ARRAYS];
} spw_device_pool; /* zeroed is empty */

/* A device array of `bytes`, a copy of `host` or poison when NULL; NULL after a failure. */
void *spw_pool_device(spw_device_pool *pool, size_t bytes, const void *host);
/* Zeroed host memory that the pool frees; NULL after a failure. */
void *spw_pool_host(spw_device_pool *pool, size_t bytes);
/* Host copy of a device array of this pool, once the device is done; NULL after a failure. */
void *spw_pool_fetch(spw_device_pool *pool, const void *device);
/* Guard bands of all arrays. */
SPW_MUST_CHECK spw_status spw_pool_guards(spw_device_pool *pool);
void spw_pool_destroy(spw_device_pool *pool);

#endif
