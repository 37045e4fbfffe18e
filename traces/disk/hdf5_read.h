/* Reading HDF5 that somebody else wrote: every size is checked before anything is allocated for it, links
 * that leave the file are refused, and HDF5 prints nothing. None of this may be called by two threads at
 * once. */
#ifndef SPW_TRACES_DISK_HDF5_READ_H
#define SPW_TRACES_DISK_HDF5_READ_H

#include "base/status.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_HDF5_MAX_RANK = 4, SPW_HDF5_MAX_TEXT = 1 << 16, SPW_HDF5_MAX_CHUNK_BYTES = 64 << 20 };

/* What a dataset is, read from its header alone. */
typedef struct spw_hdf5_shape {
    int rank;
    uint64_t extent[SPW_HDF5_MAX_RANK];
    uint64_t chunk[SPW_HDF5_MAX_RANK]; /* of the chunks; 0 = not chunked */
    H5T_class_t type_class;
    size_t element_bytes;
    bool is_signed, plain_number; /* plain_number: an integer or IEEE float that fills its bytes */
    int shuffle_at, deflate_at, fletcher32_at; /* place in the pipeline; -1: not there */
    size_t shuffle_bytes;                      /* element size that shuffle was told */
} spw_hdf5_shape;

/* Opens the file for reading. SPW_EIO: missing or unreadable; SPW_EFORMAT: not HDF5. */
SPW_MUST_CHECK spw_status spw_hdf5_open_file(const char *path, hid_t *out);

/* H5Fopen() for reading, without asking the file system for a lock: it may be read-only, or of a network and have none. What HDF5's
 * environment says (HDF5_USE_FILE_LOCKING) goes before that. Negative: it failed. */
hid_t spw_hdf5_open_unlocked(const char *path);

/* True when the path (no leading slash, groups separated by '/') leads over hard links to an object. */
bool spw_hdf5_exists(hid_t file, const char *path);
/* True when a part of the path is a soft or external link, wherever that leads. */
bool spw_hdf5_is_linked(hid_t file, const char *path);

/* Opens a dataset of `rank` dimensions and checks its storage: inside this file, chunks of at most
 * SPW_HDF5_MAX_CHUNK_BYTES, no filters but shuffle, deflate and fletcher32, enough bytes stored for its
 * extent (deflate packs 1032 : 1 at most). `cache_bytes` is HDF5's chunk cache, at least one chunk is kept. */
SPW_MUST_CHECK spw_status spw_hdf5_open_dataset(hid_t file, const char *path, int rank, size_t cache_bytes,
                                                hid_t *out, spw_hdf5_shape *shape);
void spw_hdf5_close_dataset(hid_t *dataset); /* an invalid id is fine */

/* Reads the block [start, start + count) of an open dataset that is not chunked as `memory_type`. */
SPW_MUST_CHECK spw_status spw_hdf5_read_block(hid_t dataset, int rank, const uint64_t *start,
                                              const uint64_t *count, hid_t memory_type, void *out);

/* A new type: IEEE 754 binary16, which HDF5 1.10 does not predefine. Invalid on failure. */
hid_t spw_hdf5_half_type(void);

/* Attributes of an open object. A text of fixed or variable length, at most SPW_HDF5_MAX_TEXT bytes; *out is
 * freed by the caller and is "" when there is no such text. A number of any width and kind; *out is left
 * alone when there is none. */
SPW_MUST_CHECK spw_status spw_hdf5_read_text(hid_t object, const char *name, char **out);
SPW_MUST_CHECK spw_status spw_hdf5_read_number(hid_t object, const char *name, double *out);

#endif
