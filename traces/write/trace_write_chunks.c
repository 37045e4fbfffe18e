/* Chunks are shuffled and compressed here, by several threads, and handed to HDF5 as they go into the file. */
#include "traces/write/trace_write_internal.h"

#include "base/memory.h"

#include <libdeflate.h>
#include <omp.h>
#include <string.h>

enum { QUEUE_BYTES = 8 << 20 };

typedef struct spw_chunk_job {
    size_t layer;
    uint64_t first_row;
    unsigned char *plain, *shuffled, *packed;
    size_t packed_bytes; /* 0: libdeflate had no memory */
} spw_chunk_job;

static size_t packed_bound(const spw_chunk_writer *chunks) {
    return libdeflate_zlib_compress_bound(NULL, chunks->chunk_bytes);
}

spw_status spw_chunk_writer_create(const spw_chunk_writer *set, spw_chunk_writer **out) {
    const size_t layers = set->layers;
    spw_status status = SPW_OK;
    spw_chunk_writer *chunks = NULL;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &chunks));
    *chunks = *set;
    chunks->chunk_bytes = set->chunk_rows * set->top_k * set->element_bytes;
    chunks->capacity = QUEUE_BYTES / chunks->chunk_bytes;
    if (chunks->capacity < 4) chunks->capacity = 4;
    if (chunks->capacity > 256) chunks->capacity = 256;
    SPW_TRY(SPW_ALLOC(layers, &chunks->rows));
    SPW_TRY(SPW_ALLOC(layers, &chunks->filling));
    SPW_TRY(SPW_ALLOC(chunks->capacity, &chunks->queue));
    *out = chunks;
    chunks = NULL;

cleanup:
    spw_chunk_writer_destroy(chunks);
    return status;
}

void spw_chunk_writer_destroy(spw_chunk_writer *chunks) {
    if (chunks == NULL) return;
    for (size_t i = 0; chunks->queue != NULL && i < chunks->capacity; i++) {
        spw_free(chunks->queue[i].plain);
        spw_free(chunks->queue[i].shuffled);
        spw_free(chunks->queue[i].packed);
    }
    for (size_t i = 0; chunks->filling != NULL && i < chunks->layers; i++) spw_free(chunks->filling[i]);
    for (size_t i = 0; chunks->marked != NULL && i < chunks->layers; i++) spw_free(chunks->marked[i]);
    spw_free(chunks->marked);
    spw_free(chunks->marked_rows);
    spw_free(chunks->left);
    spw_free(chunks->queue);
    spw_free(chunks->filling);
    spw_free(chunks->rows);
    spw_free(chunks);
}

static void pack(const spw_chunk_writer *chunks, spw_chunk_job *job,
                 struct libdeflate_compressor *compressor) {
    const unsigned char *from = job->plain;
    if (chunks->element_bytes == 2) {
        size_t count = chunks->chunk_bytes / 2;
        for (size_t i = 0; i < count; i++) {
            job->shuffled[i] = from[2 * i];
            job->shuffled[count + i] = from[2 * i + 1];
        }
        from = job->shuffled;
    }
    job->packed_bytes = compressor == NULL ? 0
                                           : libdeflate_zlib_compress(compressor, from, chunks->chunk_bytes,
                                                                      job->packed, packed_bound(chunks));
}

static spw_status drain(spw_chunk_writer *chunks) {
    spw_status status = SPW_OK;
    size_t count = chunks->queued;
    chunks->queued = 0;
#pragma omp parallel if (count > 1)
    {
        struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(chunks->level);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < count; i++) pack(chunks, &chunks->queue[i], compressor);
        libdeflate_free_compressor(compressor);
    }
    for (size_t i = 0; i < count; i++) {
        const spw_chunk_job *job = &chunks->queue[i];
        const hsize_t offset[] = {job->first_row, job->layer, 0};
        if (job->packed_bytes == 0)
            return spw_fail(SPW_ENOMEM, "libdeflate has no memory to compress a chunk");
        if (H5Dwrite_chunk(chunks->dataset, H5P_DEFAULT, 0, offset, job->packed_bytes, job->packed) < 0) {
            return spw_fail(SPW_EIO, "a chunk cannot be written (disk full, or out of memory?)");
        }
        SPW_TRY(spw_hdf5_ledger_note(chunks->ledger, chunks->path, SPW_HDF5_CHUNKS, H5I_INVALID_HID,
                                     (const uint64_t[2]){offset[0], offset[1]}, job->packed,
                                     job->packed_bytes));
    }

cleanup:
    return status;
}

/* Rows of the chunk that a layer was filling at the mark. */
static size_t rows_before_mark(const spw_chunk_writer *chunks, size_t layer) {
    return (size_t)(chunks->marked_rows[layer] % chunks->chunk_rows);
}

/* The chunk that begins at `first_row` leaves: if it was being filled at the mark it is kept. */
static spw_status keep_marked(spw_chunk_writer *chunks, size_t layer, uint64_t first_row) {
    spw_status status = SPW_OK;
    const size_t rows = chunks->left != NULL ? rows_before_mark(chunks, layer) : 0;
    if (rows == 0 || first_row != chunks->marked_rows[layer] - rows) return SPW_OK;
    if (chunks->marked[layer] == NULL) SPW_TRY(SPW_ALLOC(chunks->chunk_bytes, &chunks->marked[layer]));
    memcpy(chunks->marked[layer], chunks->filling[layer], rows * chunks->top_k * chunks->element_bytes);
    chunks->left[layer] = true;

cleanup:
    return status;
}

/* Moves the filled chunk of a layer into the queue; the queue's spare buffer takes its place. */
static spw_status enqueue(spw_chunk_writer *chunks, size_t layer, uint64_t first_row) {
    spw_status status = SPW_OK;
    spw_chunk_job *job = &chunks->queue[chunks->queued];
    if (job->plain == NULL) SPW_TRY(SPW_ALLOC(chunks->chunk_bytes, &job->plain));
    if (job->packed == NULL) SPW_TRY(SPW_ALLOC(packed_bound(chunks), &job->packed));
    if (job->shuffled == NULL && chunks->element_bytes > 1)
        SPW_TRY(SPW_ALLOC(chunks->chunk_bytes, &job->shuffled));
    SPW_TRY(keep_marked(chunks, layer, first_row));
    chunks->queued++;
    unsigned char *filled = chunks->filling[layer];
    chunks->filling[layer] = job->plain;
    job->plain = filled;
    job->layer = layer;
    job->first_row = first_row;
    if (chunks->queued == chunks->capacity) SPW_TRY(drain(chunks));

cleanup:
    return status;
}

spw_status spw_chunk_writer_append(spw_chunk_writer *chunks, size_t layer, const uint16_t *data,
                                   uint64_t rows) {
    spw_status status = SPW_OK;
    if (chunks->filling[layer] == NULL) SPW_TRY(SPW_ALLOC(chunks->chunk_bytes, &chunks->filling[layer]));
    while (rows > 0) {
        size_t filled = (size_t)(chunks->rows[layer] % chunks->chunk_rows);
        size_t take = chunks->chunk_rows - filled < rows ? chunks->chunk_rows - filled : (size_t)rows;
        size_t count = take * chunks->top_k;
        unsigned char *into = chunks->filling[layer] + filled * chunks->top_k * chunks->element_bytes;
        if (chunks->element_bytes == 2) {
            memcpy(into, data, 2 * count);
        } else {
            for (size_t i = 0; i < count; i++) into[i] = (unsigned char)data[i];
        }
        chunks->rows[layer] += take;
        data += count;
        rows -= take;
        if (filled + take == chunks->chunk_rows) {
            SPW_TRY(enqueue(chunks, layer, chunks->rows[layer] - chunks->chunk_rows));
        }
    }

cleanup:
    return status;
}

spw_status spw_chunk_writer_mark(spw_chunk_writer *chunks) {
    spw_status status = SPW_OK;
    if (chunks->marked_rows == NULL) SPW_TRY(SPW_ALLOC(chunks->layers, &chunks->marked_rows));
    if (chunks->marked == NULL) SPW_TRY(SPW_ALLOC(chunks->layers, &chunks->marked));
    if (chunks->left == NULL) SPW_TRY(SPW_ALLOC(chunks->layers, &chunks->left));
    SPW_TRY(drain(chunks));
    memset(chunks->left, 0, chunks->layers * sizeof *chunks->left);
    memcpy(chunks->marked_rows, chunks->rows, chunks->layers * sizeof *chunks->rows);

cleanup:
    return status;
}

/* Chunks written since are written again, or lie outside of the extent. */
void spw_chunk_writer_rewind(spw_chunk_writer *chunks) {
    chunks->queued = 0;
    for (size_t layer = 0; layer < chunks->layers; layer++) {
        if (chunks->left[layer])
            memcpy(chunks->filling[layer], chunks->marked[layer],
                   rows_before_mark(chunks, layer) * chunks->top_k * chunks->element_bytes);
        chunks->rows[layer] = chunks->marked_rows[layer];
    }
}

spw_status spw_chunk_writer_flush(spw_chunk_writer *chunks) {
    spw_status status = SPW_OK;
    for (size_t layer = 0; layer < chunks->layers; layer++) {
        size_t filled = (size_t)(chunks->rows[layer] % chunks->chunk_rows);
        if (filled == 0) continue;
        size_t used = filled * chunks->top_k * chunks->element_bytes;
        memset(chunks->filling[layer] + used, 0xff, chunks->chunk_bytes - used);
        SPW_TRY(enqueue(chunks, layer, chunks->rows[layer] - filled));
    }
    SPW_TRY(drain(chunks));

cleanup:
    return status;
}
