#include "traces/trace_memory.h"

#include "base/memory.h"
#include "base/saturate.h"
#include "base/walk.h"
#include "traces/disk/chunk_decode.h"
#include "traces/trace_internal.h"
#include "traces/trace_shards.h"

#include <omp.h>

enum {
    LEAST_WINDOW = 64 << 10,
    OF_A_THREAD = 256 << 10, /* of its stack and of its share of the heap: measured, with room to spare */
    OF_LIBRARIES = 6 << 20,  /* what HDF5, OpenMP and the heap take while the trace is read: measured too */
    COLUMN_BYTES = 11,       /* of a token: source rank, sequence, position, flags */
    RUN_BYTES = 16,          /* of a token: runs of tokens, most of which are longer than five */
    TABLES_SPARE = 8         /* one part in so many: the heap's gaps */
};
static const uint64_t MEGABYTE = 1000000;

static uint64_t sum(uint64_t a, uint64_t b) { return spw_saturated_sum(a, b); }
static uint64_t times(uint64_t a, uint64_t b) { return spw_saturated_product(a, b); }

static uint64_t chunk_bytes(const spw_hdf5_shape *shape) {
    uint64_t bytes = shape->element_bytes;
    for (int i = 0; i < shape->rank && shape->chunk[0] > 0; i++) bytes = times(bytes, shape->chunk[i]);
    return shape->chunk[0] > 0 ? bytes : 0;
}

/* The chunk that a block reader keeps, as it is stored, without its filters, and on the way. */
static uint64_t block_bytes(const spw_trace_dataset *dataset) {
    return dataset->id < 0 ? 0 : times(3, chunk_bytes(&dataset->shape));
}

static uint64_t choice_bytes(const spw_trace *trace, const spw_trace_dataset *dataset, uint64_t tokens,
                             size_t window, size_t threads) {
    const uint64_t record = times(times(tokens, trace->info.top_k), dataset->shape.element_bytes);
    if (dataset->id < 0) return 0;
    return dataset->fast ? sum(record, spw_chunk_store_bytes(&dataset->shape, threads, window))
                         : sum(times(2, record), block_bytes(dataset));
}

/* Of one file. */
static uint64_t file_bytes(const spw_trace *trace, const spw_memory_work *work, size_t window,
                           size_t threads) {
    const spw_trace_dataset *columns[] = {&trace->source_rank, &trace->sequence, &trace->position,
                                          &trace->flags,       &trace->routed,   &trace->by_rank};
    uint64_t bytes = choice_bytes(trace, &trace->expert_id, work->tokens, window, threads);
    if (work->weights) bytes = sum(bytes, choice_bytes(trace, &trace->weight, work->tokens, window, threads));
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) bytes = sum(bytes, block_bytes(columns[i]));
    return sum(bytes, times(work->tokens, COLUMN_BYTES + RUN_BYTES));
}

static uint64_t reading_bytes(const spw_trace *trace, const spw_memory_work *work, size_t window,
                              size_t threads) {
    size_t files = 1;
    const spw_trace *file = trace->shards != NULL ? spw_trace_shards_first(trace, &files) : trace;
    const uint64_t of_files = times(files, file_bytes(file, work, window / files, threads));
    return trace->shards != NULL ? sum(of_files, file_bytes(file, work, 0, threads)) : of_files;
}

static void say(const spw_memory_bound *bound, uint64_t need, uint64_t reading, const spw_memory_work *work) {
    fprintf(bound->notes,
            "spillway: memory: at most %zu MB of the %zu MB allowed: %zu MB program and libraries, %zu MB to "
            "read the trace, %zu MB tables and results\n",
            (size_t)(need / MEGABYTE), (size_t)(bound->limit / MEGABYTE), (size_t)(bound->program / MEGABYTE),
            (size_t)(reading / MEGABYTE), (size_t)((work->tables + work->records) / MEGABYTE));
}

spw_status spw_trace_fit_memory(spw_trace *trace, const spw_memory_work *work, spw_memory_bound *bound) {
    const size_t threads = (size_t)omp_get_max_threads();
    size_t window = SPW_CHUNK_WINDOW;
    if (bound->program == 0) bound->program = spw_memory_resident(), bound->held = spw_memory_held();
    const uint64_t system = sum(times(2 * threads, OF_A_THREAD), OF_LIBRARIES),
                   tables = sum(work->tables, work->tables / TABLES_SPARE),
                   fixed = sum(
                       sum(bound->program, system),
                       sum(tables, spw_walk_record_bytes(work->records, work->shared ? bound->limit : 0)));
    uint64_t reading = reading_bytes(trace, work, window, threads);
    while (sum(fixed, reading) > bound->limit && window > LEAST_WINDOW) {
        window /= 2;
        reading = reading_bytes(trace, work, window, threads);
    }
    const uint64_t need = sum(fixed, reading);
    if (need > bound->limit)
        return spw_fail(
            SPW_EARG,
            "--memory: %zu bytes are too few; the smallest that works is --memory %zuMB: %zu MB program and "
            "libraries, %zu MB to read the trace, %zu MB tables and results; fewer schemes, batches or "
            "threads "
            "(OMP_NUM_THREADS) need less",
            bound->limit, (size_t)(need / MEGABYTE + 1), (size_t)((bound->program + system) / MEGABYTE),
            (size_t)(reading / MEGABYTE), (size_t)((fixed - bound->program - system) / MEGABYTE));
    if (!bound->said) say(bound, need, reading, work);
    bound->said = true;
    spw_trace_set_window(trace, window);
    spw_memory_limit(bound->limit, bound->limit - bound->program - (size_t)system + bound->held);
    return SPW_OK;
}
