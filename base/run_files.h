/* The files that a run reads and writes, so that it loses none: no output replaces an input, and no two outputs are one file. A
 * program is one run. In a library every call is one, and what stays open between calls keeps a run of its own. */
#ifndef SPW_BASE_RUN_FILES_H
#define SPW_BASE_RUN_FILES_H

#include "base/status.h"

#include <stddef.h>

/* Notes that the current run reads the file at `path`. To be called by whatever opens a file that the user named; then no output
 * can replace it. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_file_reads(const char *path);

/* Notes that the current run writes the file at `path`, which `option` names. To be called for every output before the work
 * begins. SPW_EARG as spw_file_check_output(), and when the path, by any name or link, is that of another output of the run; a file
 * that is not there yet is known by its folder. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_file_writes(const char *path, const char *option);

/* SPW_EARG when `path` is, by any name or link, a file that a run of this process has read, or the file into which standard output
 * or standard error goes. */
SPW_MUST_CHECK spw_status spw_file_check_output(const char *path);

/* Begins a run and returns its number: what is noted from now on is its own. The program's is 0. */
size_t spw_run_begin(void);
/* Forgets what the run has noted. */
void spw_run_end(size_t run);

/* Forgets what every run has noted: another one begins, as in a test. */
void spw_file_forget_reads(void);

#endif
