#include "kernels/verify/strides/view.h"

#include <string.h>

enum { POISON = 0xff, ELEMENTS_BETWEEN = 8 };

spw_view spw_view_of(size_t matrices, size_t rows, size_t width, size_t apart, bool beside) {
    const size_t row = width + apart;
    if (beside) return (spw_view){matrices, rows, width, matrices * row + apart, row};
    return (spw_view){matrices, rows, width, row,
                      apart == 0 ? rows * row : rows * row + row + ELEMENTS_BETWEEN};
}

/* Up to the last element. */
static size_t extent(spw_view v) { return (v.matrices - 1) * v.expert + (v.rows - 1) * v.row + v.width; }

void *spw_view_upload(spw_device_pool *pool, spw_view v, size_t size, const void *packed) {
    const size_t bytes = spw_view_count(v) == 0 ? 0 : extent(v) * size;
    if (packed == NULL || bytes == 0) return spw_pool_device(pool, bytes, NULL);
    unsigned char *whole = spw_pool_host(pool, bytes);
    if (pool->status != SPW_OK) return NULL;
    memset(whole, POISON, bytes);
    for (size_t i = 0; i < spw_view_count(v); i += v.width)
        memcpy(whole + spw_view_at(v, i) * size, (const unsigned char *)packed + i * size, v.width * size);
    return spw_pool_device(pool, bytes, whole);
}

/* What is not of a row. The copy's rows become poison. */
static spw_status check_between(spw_view v, size_t size, unsigned char *whole) {
    size_t found = 0;
    for (size_t i = 0; i < spw_view_count(v); i += v.width)
        memset(whole + spw_view_at(v, i) * size, POISON, v.width * size);
    for (size_t i = 0; i < extent(v) * size; i++) found += whole[i] != POISON;
    if (found == 0) return SPW_OK;
    return spw_fail(SPW_EMISMATCH, "%zu bytes between rows were written", found);
}

spw_status spw_view_fetch(spw_device_pool *pool, spw_view v, size_t size, const void *device, void **packed) {
    unsigned char *whole = spw_pool_fetch(pool, device);
    unsigned char *copy = spw_pool_host(pool, spw_view_count(v) * size);
    *packed = copy;
    if (pool->status != SPW_OK || spw_view_count(v) == 0) return pool->status;
    for (size_t i = 0; i < spw_view_count(v); i += v.width)
        memcpy(copy + i * size, whole + spw_view_at(v, i) * size, v.width * size);
    return check_between(v, size, whole);
}
