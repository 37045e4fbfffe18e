/* Any block of a dataset of numbers. Chunks are decoded here and not by HDF5 1.10, which believes a chunk that inflates to
 * fewer bytes than a chunk has and reads on behind them. The chunk used last is kept. */
#ifndef SPW_TRACES_DISK_BLOCK_READER_H
#define SPW_TRACES_DISK_BLOCK_READER_H

#include "traces/disk/hdf5_read.h"

typedef struct spw_block_reader spw_block_reader;

/* Borrows `dataset`, of plain numbers. */
SPW_MUST_CHECK spw_status spw_block_reader_create(hid_t dataset, const spw_hdf5_shape *shape,
                                                  spw_block_reader **out);
void spw_block_reader_destroy(spw_block_reader *reader); /* NULL is fine */

/* out = the block [start, start + count) as `memory_type`. */
SPW_MUST_CHECK spw_status spw_block_reader_read(spw_block_reader *reader, const uint64_t *start,
                                                const uint64_t *count, hid_t memory_type, void *out);

/* A whole 1-D dataset of integers of exactly `count` elements. */
SPW_MUST_CHECK spw_status spw_read_array(hid_t file, const char *path, hid_t memory_type, size_t count,
                                         void *out);

#endif
