/* The chunks of one dataset [rows][layers][top_k], decoded and kept while they are likely to be wanted again.
 * Raw chunks come through HDF5 on the calling thread; while the next one is fetched, other threads check,
 * inflate (libdeflate) and unshuffle those before. Reading ahead follows what the caller does: all layers of
 * a step, one layer over all steps, small steps that share a chunk. Decoded memory is bounded, whatever is
 * asked for. */
#ifndef SPW_TRACES_DISK_CHUNK_STORE_H
#define SPW_TRACES_DISK_CHUNK_STORE_H

#include "traces/disk/hdf5_read.h"
#include "traces/disk/worker_pool.h"

typedef struct spw_chunk_store spw_chunk_store;

/* True when a dataset of this shape can be read so: chunks that span top_k and are not huge. The element type must be of
 * this machine: the caller's to check. */
bool spw_chunk_store_fits(const spw_hdf5_shape *shape);

enum { SPW_CHUNK_WINDOW = 32 << 20 /* bytes of decoded chunks that are kept, where memory is plenty */ };

/* Borrows `dataset`, whose shape fits, and `pool`. Keeps `window` bytes of decoded chunks, two chunks at least. limit [layers] or NULL: values of a layer that are neither below its
 * limit nor `missing` make a chunk suspect, and so does a value twice in a row; borrowed too. */
SPW_MUST_CHECK spw_status spw_chunk_store_create(hid_t dataset, const spw_hdf5_shape *shape,
                                                 const uint32_t *limit, uint16_t missing,
                                                 spw_worker_pool *pool, size_t window, spw_chunk_store **out);
/* What such a store takes at most, beside a record that has to be put together. */
size_t spw_chunk_store_bytes(const spw_hdf5_shape *shape, size_t threads, size_t window);
void spw_chunk_store_destroy(spw_chunk_store *store); /* NULL is fine */

/* *out [rows][top_k] = rows [first, first + rows) of one layer, valid until the next read. *suspect: one of the chunks read is; the bad
 * value may lie outside the rows asked for. SPW_EFORMAT names the chunk that is damaged. */
SPW_MUST_CHECK spw_status spw_chunk_store_read(spw_chunk_store *store, uint64_t first, uint64_t rows,
                                               size_t layer, const void **out, bool *suspect);

#endif
