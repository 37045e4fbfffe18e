/* The inside of an open trace, shared by the files trace*.c only. */
#ifndef SPW_TRACES_TRACE_INTERNAL_H
#define SPW_TRACES_TRACE_INTERNAL_H

#include "traces/chunk_store.h"
#include "traces/hdf5_read.h"
#include "traces/trace.h"

enum { SPW_TRACE_TEXTS = 11, SPW_TRACE_MAX_STEPS = 1 << 22 };

/* A buffer that only grows. */
typedef struct spw_trace_buffer {
    void *data;
    size_t bytes;
} spw_trace_buffer;

/* A dataset of the trace; `id` is invalid when the file lacks it. */
typedef struct spw_trace_dataset {
    const char *path;
    hid_t id, memory_type; /* memory_type: of what is read from it; borrowed */
    spw_hdf5_shape shape;
    bool fast;               /* read chunk by chunk, not by HDF5 */
    spw_chunk_store *chunks; /* NULL until used */
    spw_trace_buffer buffer;
} spw_trace_dataset;

struct spw_trace {
    char *path;
    hid_t file, half_type;
    spw_trace_info info;
    spw_trace_dataset expert_id, weight, source_rank, sequence, position, routed, by_rank;
    char *text[SPW_TRACE_TEXTS]; /* what the texts of `info` point to */
    int32_t *layer_id;
    uint32_t *layer_experts, *layer_top_k;
    int64_t *step_id;
    uint64_t *step_tokens, *step_offset;
    uint8_t *step_phase;
};

/* Fills trace->info and opens the datasets; trace->path and trace->file are set. */
SPW_MUST_CHECK spw_status spw_trace_read_header(spw_trace *trace);

#endif
