/* A stranger's file is first read by a child process. HDF5 1.10 can be made to crash or to loop for ever by forged
 * metadata, above all by texts of variable length (its global heap); a child that does not come back means that the file
 * is refused. The texts come through a pipe, so that this process never reads that heap at all. */
#include "traces/trace_internal.h"

#include "base/child.h"
#include "base/memory.h"

#include <string.h>

enum { CPU_SECONDS = 5, REPLY_BYTES = (SPW_TRACE_TEXTS + 2) * (SPW_HDF5_MAX_TEXT + 64) };

/* The child: reads everything that spw_trace_open() will read, and more. Every text ends with a zero byte. */
static spw_status read_header(void *context, FILE *out) {
    spw_trace *trace = context;
    spw_status status = spw_hdf5_open_file(trace->path, &trace->file);
    const bool opened = status == SPW_OK;
    if (status == SPW_OK) status = spw_trace_read_texts(trace);
    if (status == SPW_OK) status = spw_trace_read_header(trace);
    if (opened && status == SPW_EFORMAT) status = spw_fail_within(status, "%s", trace->path);
    for (size_t i = 0; status == SPW_OK && i < SPW_TRACE_TEXTS; i++)
        (void)fwrite(trace->text[i], 1, strlen(trace->text[i]) + 1, out);
    return status;
}

spw_status spw_trace_probe(spw_trace *trace) {
    spw_status status = SPW_OK;
    char *reply = NULL;
    size_t bytes = 0, at = 0;
    SPW_TRY(spw_child_run(trace->path, CPU_SECONDS, REPLY_BYTES, read_header, trace, &reply, &bytes));
    for (size_t i = 0; i < SPW_TRACE_TEXTS; i++) {
        const size_t length = strnlen(reply + at, bytes - at); /* at <= bytes; the reply ends with a zero */
        SPW_TRY(SPW_ALLOC(length + 1, &trace->text[i]));
        memcpy(trace->text[i], reply + at, length);
        at += length < bytes - at ? length + 1 : length;
    }

cleanup:
    spw_free(reply);
    return status;
}
