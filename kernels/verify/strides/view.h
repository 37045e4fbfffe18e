/* Arrays of a check whose rows, and whose matrices, lie apart in memory: poison is between them, and must stay there. */
#ifndef SPW_KERNELS_VERIFY_STRIDES_VIEW_H
#define SPW_KERNELS_VERIFY_STRIDES_VIEW_H

#include "kernels/gpu/device_pool.h"

#include <stdbool.h>

/* In elements: from one row to the next, and from one matrix to the next. */
typedef struct spw_view {
    size_t matrices, rows, width, row, expert;
} spw_view;

/* `apart` elements between rows, as many rows and a few elements between matrices; or rows of one number of all matrices side by side. */
spw_view spw_view_of(size_t matrices, size_t rows, size_t width, size_t apart, bool beside);

/* Elements of the array without gaps. */
static inline size_t spw_view_count(spw_view v) { return v.matrices * v.rows * v.width; }
/* Where element i of that array is. */
static inline size_t spw_view_at(spw_view v, size_t i) {
    const size_t row = i / v.width;
    return row / v.rows * v.expert + row % v.rows * v.row + i % v.width;
}

/* To the device; `size`: of an element. packed NULL: poison, every byte 0xff. NULL after a failure. */
void *spw_view_upload(spw_device_pool *pool, spw_view v, size_t size, const void *packed);
/* *packed: a copy without gaps, which the pool frees. SPW_EMISMATCH: something lies between rows that is no poison. */
SPW_MUST_CHECK spw_status spw_view_fetch(spw_device_pool *pool, spw_view v, size_t size, const void *device,
                                         void **packed);

#endif
