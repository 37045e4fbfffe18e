/* From a chunk as it lies in an HDF5 file to its elements. Safe to call from several threads. */
#ifndef SPW_TRACES_DISK_CHUNK_DECODE_H
#define SPW_TRACES_DISK_CHUNK_DECODE_H

#include "traces/disk/hdf5_read.h"

struct libdeflate_decompressor;

typedef enum spw_decode_result {
    SPW_DECODE_GOOD,
    SPW_DECODE_CHECKSUM, /* fletcher32 differs */
    SPW_DECODE_DEFLATE,  /* not a zlib stream of exactly the size of a chunk */
    SPW_DECODE_SIZE      /* stored bytes do not make a chunk */
} spw_decode_result;

const char *spw_decode_text(spw_decode_result result);

/* A stored chunk of more bytes than this is damaged. */
size_t spw_chunk_most_bytes(size_t chunk_bytes);
size_t spw_chunk_scratch_bytes(size_t chunk_bytes);

/* data [chunk_bytes] = the chunk raw [raw_bytes], undoing the filters of `shape` from the last to the first, but for
 * those whose bit in `filter_mask` is 1. scratch [spw_chunk_scratch_bytes(chunk_bytes)]. Every filter must give exactly
 * the bytes that the one before it took. */
typedef struct spw_stored_chunk {
    const unsigned char *raw;
    size_t raw_bytes;
    unsigned filter_mask;
} spw_stored_chunk;
spw_decode_result spw_chunk_decode(const spw_hdf5_shape *shape, spw_stored_chunk stored,
                                   struct libdeflate_decompressor *inflater, unsigned char *scratch,
                                   unsigned char *data, size_t chunk_bytes);

/* data [chunk_bytes] = the fill value of the dataset: what a chunk holds that was never written. */
void spw_chunk_fill(hid_t dataset, size_t element_bytes, unsigned char *data, size_t chunk_bytes);

/* HDF5's Fletcher-32 of `bytes` bytes (H5checksum.c, H5_checksum_fletcher32). */
uint32_t spw_fletcher32(const unsigned char *data, size_t bytes);

#endif
