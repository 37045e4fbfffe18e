/* A file of what is done, for a run that is killed: it goes on with the next unit when it is started again. Either blocks of
 * records are appended, or one block is replaced again and again; a block that was cut short by the kill is dropped. A block is
 * on the disk when the call that writes it returns. */
#ifndef SPW_BASE_CHECKPOINT_H
#define SPW_BASE_CHECKPOINT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_checkpoint spw_checkpoint; /* opaque: an open file */

/* Opens the file at `path`, or begins one. `run` stands for the command and what it reads: SPW_EARG when the file is of another
 * run, SPW_EFORMAT when it is no checkpoint; it stays as it is then. Only one process may have it open. */
SPW_MUST_CHECK spw_status spw_checkpoint_open(const char *path, uint64_t run, spw_checkpoint **out);
void spw_checkpoint_close(spw_checkpoint *checkpoint); /* the file stays; NULL is fine */
/* All is done: removes the file and closes. NULL is fine. */
void spw_checkpoint_finish(spw_checkpoint *checkpoint);

/* True for the first walk that asks: a checkpoint is of one walk. */
bool spw_checkpoint_claim(spw_checkpoint *checkpoint);

/* The next block that an earlier run has left, in the order of spw_checkpoint_put(): its number of units and bytes, 0 units when
 * there is none. spw_checkpoint_get() reads it. */
SPW_MUST_CHECK spw_status spw_checkpoint_next(spw_checkpoint *checkpoint, size_t *units, size_t *bytes);
SPW_MUST_CHECK spw_status spw_checkpoint_get(spw_checkpoint *checkpoint, void *data);

/* Appends a block. */
SPW_MUST_CHECK spw_status spw_checkpoint_put(spw_checkpoint *checkpoint, size_t units, const void *data,
                                             size_t bytes);

/* Replaces the block, which always has as many bytes; the one before stays until this one is whole. */
SPW_MUST_CHECK spw_status spw_checkpoint_save(spw_checkpoint *checkpoint, uint64_t units, const void *data,
                                              size_t bytes);
/* The block that was saved last and is whole; *units is 0, and `data` as it was, where there is none. */
SPW_MUST_CHECK spw_status spw_checkpoint_load(spw_checkpoint *checkpoint, void *data, size_t bytes,
                                              uint64_t *units);

/* A number for a text or a file: continue with the number before, from 0 on. A file of up to 16 MiB is read whole; of a
 * larger one, and of every file of a folder, size and time of change count. */
uint64_t spw_checkpoint_hash(uint64_t before, const void *data, size_t bytes);
uint64_t spw_checkpoint_hash_file(uint64_t before, const char *path);

#endif
