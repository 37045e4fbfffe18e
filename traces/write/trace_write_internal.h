/* The inside of a writer, shared by the files trace_write*.c, slice.c and importers/assembly_write.c only. */
#ifndef SPW_TRACES_WRITE_TRACE_WRITE_INTERNAL_H
#define SPW_TRACES_WRITE_TRACE_WRITE_INTERNAL_H

#include "base/file.h"
#include "traces/disk/hdf5_disk.h"
#include "traces/disk/hdf5_ledger.h"
#include "traces/write/trace_write.h"

#include <hdf5.h>

/* Rows of one dataset [rows][layers][top_k] on their way to chunks (chunk_rows, 1, top_k). A full chunk waits
 * in a queue; a full queue is compressed in parallel and written. */
typedef struct spw_chunk_writer {
    hid_t dataset;
    const char *path;
    spw_hdf5_ledger *ledger; /* of the file */
    size_t layers, top_k, element_bytes, chunk_rows, chunk_bytes;
    int level;
    uint64_t *rows;          /* [layers] rows given so far */
    unsigned char **filling; /* [layers] the chunk that a layer is filling; NULL before the first row */
    struct spw_chunk_job *queue;
    size_t queued, capacity;
    /* from spw_chunk_writer_mark() on, NULL before: */
    uint64_t *marked_rows;  /* [layers] rows at the mark */
    unsigned char **marked; /* [layers] a chunk that was being filled at the mark and left `filling` since */
    bool *left;             /* [layers] it did */
} spw_chunk_writer;

/* As `set`, whose fields from dataset to chunk_rows, and level, are given, and all others 0. */
SPW_MUST_CHECK spw_status spw_chunk_writer_create(const spw_chunk_writer *set, spw_chunk_writer **out);
void spw_chunk_writer_destroy(spw_chunk_writer *chunks); /* NULL is fine */
/* Appends data [rows][top_k], narrowed to uint8_t where element_bytes is 1. */
SPW_MUST_CHECK spw_status spw_chunk_writer_append(spw_chunk_writer *chunks, size_t layer,
                                                  const uint16_t *data, uint64_t rows);
/* Writes what waits and notes where every layer stands; spw_chunk_writer_rewind() goes back there. */
SPW_MUST_CHECK spw_status spw_chunk_writer_mark(spw_chunk_writer *chunks);
void spw_chunk_writer_rewind(spw_chunk_writer *chunks);
/* Pads the last chunks with all bits set and writes everything. The extent must be final. */
SPW_MUST_CHECK spw_status spw_chunk_writer_flush(spw_chunk_writer *chunks);

struct spw_trace_writer {
    spw_file target;
    spw_hdf5_disk disk;
    spw_hdf5_ledger ledger;
    hid_t file, half_type;
    bool has_tokens, has_weights, has_sequences, has_by_rank, falls, ids_rise, droppable;
    size_t layers, experts, top_k, ranks, id_bytes;
    uint32_t *layer_experts, *layer_top_k;
    hid_t expert_id, weight, source_rank, sequence, position, routed, by_rank;
    spw_chunk_writer *ids, *weights;
    /* the step under way */
    bool in_step, torn; /* torn: half written by a call that failed */
    spw_trace_write_step step;
    spw_hdf5_ledger before;   /* of a droppable writer: the ledger when the step began */
    bool *layer_done;         /* [layers] */
    uint32_t *routed_counts;  /* [layers][experts] */
    uint32_t *by_rank_counts; /* [ranks][layers][experts] */
    /* the steps so far */
    size_t steps, steps_capacity;
    int64_t *step_id, *step_tokens, *step_offset; /* step_offset [steps + 1] */
    uint8_t *step_phase;
    uint64_t rows, rows_before; /* rows_before: without those of the step under way */
};

/* Before anything of a step is written, for a droppable writer: what spw_trace_writer_drop_step() goes back to. */
SPW_MUST_CHECK spw_status spw_trace_writer_mark(spw_trace_writer *writer);

/* Groups, scales, attributes and empty datasets of a new file. */
SPW_MUST_CHECK spw_status spw_trace_write_header(spw_trace_writer *writer,
                                                 const spw_trace_write_settings *settings);
/* Step arrays and dimension scales, at the end. */
SPW_MUST_CHECK spw_status spw_trace_write_steps(spw_trace_writer *writer);

/* Writes data [count] as a whole 1-D dataset. */
SPW_MUST_CHECK spw_status spw_trace_write_array(spw_trace_writer *writer, const char *path, hid_t file_type,
                                                hid_t memory_type, size_t count, const void *data);

#endif
