#include "kernels/gpu/device_pool.h"

#include "base/memory.h"

void *spw_pool_device(spw_device_pool *pool, size_t bytes, const void *host) {
    if (pool->status == SPW_OK && pool->arrays == SPW_POOL_ARRAYS)
        pool->status = spw_fail(SPW_EARG, "more than %d arrays in a pool", SPW_POOL_ARRAYS);
    if (pool->status != SPW_OK) return NULL;
    spw_device_array *array = &pool->array[pool->arrays];
    pool->status = spw_device_array_create(bytes, array);
    if (pool->status != SPW_OK) return NULL;
    pool->arrays++;
    if (host != NULL) pool->status = spw_device_upload(array, host);
    return pool->status == SPW_OK ? array->data : NULL;
}

void *spw_pool_host(spw_device_pool *pool, size_t bytes) {
    void *memory = NULL;
    if (pool->status == SPW_OK && pool->copies == SPW_POOL_ARRAYS)
        pool->status = spw_fail(SPW_EARG, "more than %d copies in a pool", SPW_POOL_ARRAYS);
    if (pool->status == SPW_OK) pool->status = spw_alloc(bytes, 1, &memory);
    if (pool->status != SPW_OK) return NULL;
    return pool->copy[pool->copies++] = memory;
}

void *spw_pool_fetch(spw_device_pool *pool, const void *device) {
    if (pool->status == SPW_OK) pool->status = spw_device_finish(SPW_KERNEL_SECONDS);
    for (size_t i = 0; i < pool->arrays && pool->status == SPW_OK; i++) {
        if (pool->array[i].data != device) continue;
        void *memory = spw_pool_host(pool, pool->array[i].bytes);
        if (memory != NULL) pool->status = spw_device_download(&pool->array[i], memory);
        return pool->status == SPW_OK ? memory : NULL;
    }
    if (pool->status == SPW_OK) pool->status = spw_fail(SPW_EARG, "an array that is not of this pool");
    return NULL;
}

spw_status spw_pool_guards(spw_device_pool *pool) {
    for (size_t i = 0; i < pool->arrays && pool->status == SPW_OK; i++)
        pool->status = spw_device_array_guards(&pool->array[i]);
    return pool->status;
}

void spw_pool_destroy(spw_device_pool *pool) {
    for (size_t i = 0; i < pool->arrays; i++) spw_device_array_destroy(&pool->array[i]);
    for (size_t i = 0; i < pool->copies; i++) spw_free(pool->copy[i]);
    *pool = (spw_device_pool){0};
}
