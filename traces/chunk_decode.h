/* From a chunk as it lies in an HDF5 file to its elements. Safe to call from several threads. */
#ifndef SPW_TRACES_CHUNK_DECODE_H
#define SPW_TRACES_CHUNK_DECODE_H

#include "traces/hdf5_read.h"

struct libdeflate_decompressor;

typedef enum spw_decode_result {
    SPW_DECODE_GOOD,
    SPW_DECODE_CHECKSUM, /* fletcher32 differs */
    SPW_DECODE_DEFLATE,  /* not a zlib stream of exactly the size of a chunk */
    SPW_DECODE_SIZE      /* stored bytes do not make a chunk */
} spw_decode_result;

/* data [chunk_bytes] = the chunk raw [raw_bytes], undoing the filters of `shape` whose bit in `filter_mask`
 * is 0. scratch [chunk_bytes]. */
spw_decode_result spw_chunk_decode(const spw_hdf5_shape *shape, unsigned filter_mask,
                                   const unsigned char *raw, size_t raw_bytes,
                                   struct libdeflate_decompressor *inflater, unsigned char *scratch,
                                   unsigned char *data, size_t chunk_bytes);

/* HDF5's Fletcher-32 of `bytes` bytes (H5checksum.c, H5_checksum_fletcher32). */
uint32_t spw_fletcher32(const unsigned char *data, size_t bytes);

#endif
