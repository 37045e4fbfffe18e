/* Output that is never half written: work on a temporary file beside the target, then rename. */
#ifndef SPW_BASE_FILE_H
#define SPW_BASE_FILE_H

#include "base/run_files.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A file under way. `temporary` is the path to write to; it is in the folder of `path`. */
typedef struct spw_file {
    char *path, *temporary;
} spw_file;

/* Creates an empty temporary file beside `path`; a program that ends by exit() or by a signal it can see removes it. Follows
 * links. What is replaced keeps its mode. SPW_EARG when `path` is empty, and as spw_file_check_output(): an output never
 * replaces what it is made of. SPW_EIO when the folder cannot be written, or when what stands at `path` is
 * no regular file, may not be written or is a link to nothing. */
SPW_MUST_CHECK spw_status spw_file_begin(const char *path, spw_file *out);

/* Brings the temporary file to the disk, renames it to `path` and brings the name to the disk; frees `file`. On failure nothing
 * is left behind and what stood at `path` before still stands; only when the last of the three fails does the
 * new file stand there, whole, and the message says so. SPW_EARG as for spw_file_begin(). */
SPW_MUST_CHECK spw_status spw_file_commit(spw_file *file);

/* Removes the temporary file and frees `file`. Does nothing after a commit, or on a zeroed struct. */
void spw_file_discard(spw_file *file);

/* The whole of it: begins, lets `print` write `what` to the temporary file, commits. SPW_EIO when it cannot be written; what
 * `print` fails with. */
SPW_MUST_CHECK spw_status spw_file_print(const char *path, spw_status (*print)(FILE *out, const void *what),
                                         const void *what);

/* Opens a file that the user named for reading. SPW_EIO for a FIFO that nobody writes to. */
SPW_MUST_CHECK spw_status spw_file_open(const char *path, FILE **out);

/* *text = the whole file at `path`, ended by a zero byte; the caller frees it with spw_free(). A file of more
 * than `limit` bytes is refused with SPW_EIO. "-" is not special. */
SPW_MUST_CHECK spw_status spw_file_read(const char *path, size_t limit, char **text, size_t *length);

#endif
