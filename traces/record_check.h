/* Quick questions about many choices at once: asked of every chunk while it is in the cache of the processor. */
#ifndef SPW_TRACES_RECORD_CHECK_H
#define SPW_TRACES_RECORD_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True when one of `count` ids, elements of `id_bytes` 1 or 2, is neither < limit, which an element can hold, nor `missing`. */
bool spw_any_beyond(const void *ids, size_t id_bytes, size_t count, uint32_t limit, uint16_t missing);

/* True when a row of ids [rows][top_k], elements of `id_bytes` 1 or 2, holds one value twice that is not `missing`. */
bool spw_any_twice(const void *ids, size_t id_bytes, size_t rows, size_t top_k, uint16_t missing);

/* Sum of `count` ids: with the histogram known, a sum that cannot differ while the ids are those that were counted. */
uint64_t spw_id_sum(const void *ids, size_t id_bytes, size_t count);

#endif
