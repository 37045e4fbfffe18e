/* What slice.c tells slice_extra.c. */
#ifndef SPW_TRACES_WRITE_SLICE_INTERNAL_H
#define SPW_TRACES_WRITE_SLICE_INTERNAL_H

#include "traces/trace_internal.h"
#include "traces/write/slice.h"
#include "traces/write/trace_write_internal.h"

/* Rows [first, first + count) of the source are the next rows of the slice. */
typedef struct spw_slice_run {
    uint64_t first, count;
} spw_slice_run;

typedef struct spw_slice_runs {
    spw_slice_run *run;
    size_t used, capacity;
} spw_slice_runs;

/* Appends [first, first + count), joined to the last run where it continues it. */
SPW_MUST_CHECK spw_status spw_slice_add_run(spw_slice_runs *runs, uint64_t first, uint64_t count);

/* Copies the attributes and datasets that the reader and the writer do not know. `out` NULL: reads them only. */
SPW_MUST_CHECK spw_status spw_slice_copy_extra(const spw_trace *in, spw_trace_writer *out,
                                               const spw_slice_settings *settings, const spw_slice_runs *rows,
                                               const spw_slice_runs *steps);

/* Reads them in a child process and copies nothing: SPW_EFORMAT when HDF5 does not survive it. Before the file is opened
 * here, as HDF5 would share the open file with the child. */
SPW_MUST_CHECK spw_status spw_slice_rehearse_extra(const char *path);

#endif
