#include "traces/disk/chunk_store.h"

#include "base/memory.h"
#include "traces/disk/chunk_decode.h"
#include "traces/record_check.h"

#include <libdeflate.h>
#include <string.h>

enum {
    BATCH_BYTES = 16 << 20, /* decoded at once */
    AHEAD_BYTES = 1 << 20,  /* read ahead at least so much, so that every thread has something to do */
    AHEAD_CHUNKS = 8,
    MAX_SLOTS = 2048,
    MAX_CHUNK_BYTES = 16 << 20
};
#define NOBODY UINT64_MAX

/* Place of a decoded chunk: slot i is bytes [i * chunk_bytes, ...) of the arena. */
typedef struct slot {
    uint64_t used; /* when last; the clock of the store */
    bool suspect;  /* holds a value out of range, or one twice in a row */
} slot;

typedef struct job {
    size_t slot;
    hsize_t offset[3];
    size_t raw_at, raw_bytes; /* in the raw buffer; 0 bytes: never written, all fill value */
    uint32_t filter_mask;
    spw_decode_result result;
    bool unreadable;
} job;

struct spw_chunk_store {
    hid_t dataset;
    spw_hdf5_shape shape;
    const uint32_t *limit;
    uint16_t missing;
    spw_worker_pool *pool;
    size_t row_bytes, chunk_bytes, chunk_rows, chunk_layers; /* row: top_k elements */
    uint64_t row_chunks, layer_chunks;
    uint64_t *key; /* [slots] chunk in the slot: row chunk * layer_chunks + layer chunk */
    slot *slots;
    unsigned char *arena;
    size_t capacity, next;   /* slots are given out in a circle, beginning with `next` */
    unsigned char *gathered; /* a record whose chunks do not stand side by side */
    size_t gathered_bytes;
    job *jobs;
    size_t job_count, job_capacity;
    unsigned char *raw;
    size_t raw_capacity;
    unsigned char *fill; /* a chunk that was never written */
    uint64_t clock;
    size_t threads;
    struct libdeflate_decompressor **inflater; /* [threads] */
    unsigned char **scratch;                   /* [threads] */
    /* what the caller did before: a pass is a run of requests for the same rows */
    uint64_t pass_first, pass_rows, pass_begin_layer, pass_last_layer; /* layers in chunks */
    uint64_t expect_begin_layer, expect_last_layer;                    /* of the pass before */
    bool passes, onwards; /* rows follow those of the pass before */
};

bool spw_chunk_store_fits(const spw_hdf5_shape *shape) {
    size_t bytes = shape->element_bytes;
    if (shape->chunk[0] == 0 || shape->rank != 3 || shape->chunk[2] != shape->extent[2]) return false;
    for (int i = 0; i < 3; i++) bytes *= (size_t)shape->chunk[i]; /* checked when the dataset was opened */
    return bytes <= MAX_CHUNK_BYTES && (shape->element_bytes == 1 || shape->element_bytes == 2);
}

/* What follows from the shape. */
static void measure_chunks(spw_chunk_store *store, const spw_hdf5_shape *shape) {
    store->shape = *shape;
    store->row_bytes = (size_t)shape->extent[2] * shape->element_bytes;
    store->chunk_rows = (size_t)shape->chunk[0];
    store->chunk_layers = (size_t)shape->chunk[1];
    store->chunk_bytes = store->row_bytes * store->chunk_rows * store->chunk_layers;
    store->row_chunks = (shape->extent[0] + store->chunk_rows - 1) / store->chunk_rows;
    store->layer_chunks = (shape->extent[1] + store->chunk_layers - 1) / store->chunk_layers;
}

static void count_slots(spw_chunk_store *store, size_t window) {
    const uint64_t chunks = store->row_chunks * store->layer_chunks; /* a short file needs less */
    store->capacity = window / store->chunk_bytes;
    if (store->capacity < 2) store->capacity = 2;
    if (store->capacity > MAX_SLOTS) store->capacity = MAX_SLOTS;
    if (chunks < store->capacity / 2) store->capacity = 2 * (size_t)chunks;
    if (store->capacity < 2) store->capacity = 2;
    store->job_capacity = BATCH_BYTES / store->chunk_bytes;
    if (store->job_capacity < 1) store->job_capacity = 1;
    if (store->job_capacity > store->capacity / 2) store->job_capacity = store->capacity / 2;
}

size_t spw_chunk_store_bytes(const spw_hdf5_shape *shape, size_t threads, size_t window) {
    enum { OF_A_SLOT = 2 * sizeof(slot) + sizeof(job), INFLATER = 64 << 10 };
    spw_chunk_store store = {.row_chunks = 0};
    measure_chunks(&store, shape);
    if (store.chunk_bytes == 0) return 0;
    count_slots(&store, window);
    return (store.capacity + 1) * store.chunk_bytes + store.capacity * OF_A_SLOT +
           store.job_capacity * spw_chunk_most_bytes(store.chunk_bytes) +
           threads * (spw_chunk_scratch_bytes(store.chunk_bytes) + INFLATER);
}

spw_status spw_chunk_store_create(hid_t dataset, const spw_hdf5_shape *shape, const uint32_t *limit,
                                  uint16_t missing, spw_worker_pool *pool, size_t window,
                                  spw_chunk_store **out) {
    spw_status status = SPW_OK;
    spw_chunk_store *store = NULL;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &store));
    store->dataset = dataset;
    measure_chunks(store, shape);
    store->limit = limit;
    store->missing = missing;
    store->pool = pool;
    store->expect_last_layer = store->layer_chunks - 1;
    count_slots(store, window);
    SPW_TRY(SPW_ALLOC(store->capacity, &store->key));
    SPW_TRY(SPW_ALLOC(store->capacity, &store->slots));
    SPW_TRY(SPW_ALLOC(store->capacity * store->chunk_bytes, &store->arena));
    SPW_TRY(SPW_ALLOC(store->job_capacity, &store->jobs));
    for (size_t i = 0; i < store->capacity; i++) store->key[i] = NOBODY;
    SPW_TRY(SPW_ALLOC(store->chunk_bytes, &store->fill));
    spw_chunk_fill(dataset, shape->element_bytes, store->fill, store->chunk_bytes);
    *out = store;
    store = NULL;

cleanup:
    spw_chunk_store_destroy(store);
    return status;
}

static void free_threads(spw_chunk_store *store) {
    for (size_t i = 0; i < store->threads; i++) {
        if (store->inflater != NULL) libdeflate_free_decompressor(store->inflater[i]);
        if (store->scratch != NULL) spw_free(store->scratch[i]);
    }
    spw_free(store->inflater);
    spw_free(store->scratch);
    store->inflater = NULL;
    store->scratch = NULL;
    store->threads = 0;
}

void spw_chunk_store_destroy(spw_chunk_store *store) {
    if (store == NULL) return;
    free_threads(store);
    spw_free(store->key);
    spw_free(store->slots);
    spw_free(store->arena);
    spw_free(store->gathered);
    spw_free(store->jobs);
    spw_free(store->raw);
    spw_free(store->fill);
    spw_free(store);
}

/* An inflater and scratch memory for every thread there may be. */
static spw_status prepare_threads(spw_chunk_store *store) {
    spw_status status = SPW_OK;
    size_t threads = spw_worker_pool_threads(store->pool);
    if (threads == store->threads) return SPW_OK;
    SPW_TRY(SPW_ALLOC(threads, &store->inflater));
    SPW_TRY(SPW_ALLOC(threads, &store->scratch));
    store->threads = threads;
    for (size_t i = 0; i < threads; i++) {
        store->inflater[i] = libdeflate_alloc_decompressor();
        if (store->inflater[i] == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "libdeflate has no memory to inflate"));
        SPW_TRY(SPW_ALLOC(spw_chunk_scratch_bytes(store->chunk_bytes), &store->scratch[i]));
    }

cleanup:
    if (status != SPW_OK) free_threads(store);
    return status;
}

static size_t find_slot(const spw_chunk_store *store, uint64_t key) {
    for (size_t i = 0; i < store->capacity; i++) {
        if (store->key[i] == key) return i;
    }
    return SIZE_MAX;
}

static unsigned char *data_of(const spw_chunk_store *store, size_t at) {
    return store->arena + at * store->chunk_bytes;
}

/* The next `count` slots in a row of which none is in use for this request; SIZE_MAX if there are none. */
static size_t free_run(const spw_chunk_store *store, size_t count) {
    size_t start = store->next, run = 0;
    for (size_t looked = 0; looked < 2 * store->capacity; looked++) {
        if (start + count > store->capacity) start = run = 0;
        if (store->slots[start + run].used == store->clock) {
            start += run + 1;
            run = 0;
        } else if (++run == count) {
            return start;
        }
    }
    return SIZE_MAX;
}

static void book(spw_chunk_store *store, size_t at, uint64_t row_chunk, uint64_t layer_chunk) {
    store->slots[at].used = store->clock;
    store->key[at] = row_chunk * store->layer_chunks + layer_chunk;
    store->next = at + 1;
    store->jobs[store->job_count++] =
        (job){.slot = at, .offset = {row_chunk * store->chunk_rows, layer_chunk * store->chunk_layers, 0}};
}

/* Sees to it that row chunks [first, last] of a layer are in memory or booked: side by side if none was there
 * before. False when the batch has no room for them. */
static bool want(spw_chunk_store *store, uint64_t first, uint64_t last, uint64_t layer_chunk) {
    size_t count = (size_t)(last - first + 1), there = 0;
    for (uint64_t i = first; i <= last; i++) {
        size_t at = find_slot(store, i * store->layer_chunks + layer_chunk);
        if (at == SIZE_MAX) continue;
        store->slots[at].used = store->clock;
        there++;
    }
    if (store->job_count + count - there > store->job_capacity) return false;
    size_t run = there == 0 ? free_run(store, count) : SIZE_MAX;
    for (uint64_t i = first; there < count && i <= last; i++) {
        if (run == SIZE_MAX && find_slot(store, i * store->layer_chunks + layer_chunk) != SIZE_MAX) continue;
        size_t at = run == SIZE_MAX ? free_run(store, 1) : run + (size_t)(i - first);
        if (at == SIZE_MAX) return false;
        book(store, at, i, layer_chunk);
    }
    return true;
}

/* Adds chunks that will be wanted soon: the next layers of these rows, then the rows that follow. */
static void read_ahead(spw_chunk_store *store, uint64_t first, uint64_t last, uint64_t layer_chunk) {
    for (uint64_t j = layer_chunk + 1; j <= store->expect_last_layer; j++) {
        if (!want(store, first, last, j)) return;
    }
    for (uint64_t i = last + 1; store->onwards && i < store->row_chunks; i++) {
        if (store->job_count >= AHEAD_CHUNKS && store->job_count * store->chunk_bytes >= AHEAD_BYTES) return;
        for (uint64_t j = store->expect_begin_layer; j <= store->expect_last_layer; j++) {
            if (!want(store, i, i, j)) return;
        }
    }
}

/* Asks HDF5 for the size of every chunk and makes room for them. */
static spw_status measure(spw_chunk_store *store) {
    size_t total = 0, most = spw_chunk_most_bytes(store->chunk_bytes);
    for (size_t i = 0; i < store->job_count; i++) {
        job *one = &store->jobs[i];
        hsize_t bytes = 0;
        if (H5Dget_chunk_storage_size(store->dataset, one->offset, &bytes) < 0) bytes = 0; /* never written */
        if (bytes > most) {
            return spw_fail(SPW_EFORMAT, "chunk at row %llu, layer position %llu: %llu bytes stored for %zu",
                            (unsigned long long)one->offset[0], (unsigned long long)one->offset[1],
                            (unsigned long long)bytes, store->chunk_bytes);
        }
        one->raw_at = total;
        one->raw_bytes = (size_t)bytes;
        total += (size_t)bytes;
    }
    if (total <= store->raw_capacity) return SPW_OK;
    spw_free(store->raw);
    store->raw = NULL;
    store->raw_capacity = 0;
    spw_status status = SPW_ALLOC(total, &store->raw);
    if (status == SPW_OK) store->raw_capacity = total;
    return status;
}

/* While the chunk is still in the cache of the processor. */
static bool is_suspect(const spw_chunk_store *store, const job *one) {
    size_t count = store->chunk_bytes / store->shape.element_bytes, top_k = (size_t)store->shape.extent[2];
    uint32_t limit = UINT32_MAX;
    for (size_t i = 0; i < store->chunk_layers && one->offset[1] + i < store->shape.extent[1]; i++) {
        uint32_t of_layer = store->limit[one->offset[1] + i];
        if (of_layer < limit) limit = of_layer;
    }
    const void *ids = data_of(store, one->slot);
    return spw_any_beyond(ids, store->shape.element_bytes, count, limit, store->missing) ||
           spw_any_twice(ids, store->shape.element_bytes, count / top_k, top_k, store->missing);
}

/* Runs on the calling thread, which alone talks to HDF5. */
static void fetch(void *context, size_t item) {
    spw_chunk_store *store = context;
    job *one = &store->jobs[item];
    if (one->raw_bytes == 0) return;
    one->unreadable = H5Dread_chunk(store->dataset, H5P_DEFAULT, one->offset, &one->filter_mask,
                                    store->raw + one->raw_at) < 0;
}

static void decode(void *context, size_t item, size_t thread) {
    spw_chunk_store *store = context;
    job *one = &store->jobs[item];
    slot *into = &store->slots[one->slot];
    unsigned char *data = data_of(store, one->slot);
    if (one->unreadable) return;
    if (one->raw_bytes == 0) {
        memcpy(data, store->fill, store->chunk_bytes);
    } else {
        one->result = spw_chunk_decode(
            &store->shape, (spw_stored_chunk){store->raw + one->raw_at, one->raw_bytes, one->filter_mask},
            store->inflater[thread], store->scratch[thread], data, store->chunk_bytes);
    }
    into->suspect = store->limit != NULL && one->result == SPW_DECODE_GOOD && is_suspect(store, one);
}

static spw_status check_jobs(spw_chunk_store *store) {
    for (size_t i = 0; i < store->job_count; i++) {
        const job *one = &store->jobs[i];
        if (!one->unreadable && one->result == SPW_DECODE_GOOD) continue;
        return spw_fail(SPW_EFORMAT, "chunk at row %llu, layer position %llu: %s",
                        (unsigned long long)one->offset[0], (unsigned long long)one->offset[1],
                        one->unreadable ? "unreadable (file cut short?)" : spw_decode_text(one->result));
    }
    return SPW_OK;
}

static spw_status run_jobs(spw_chunk_store *store) {
    spw_status status = SPW_OK;
    if (store->job_count == 0) return SPW_OK;
    SPW_TRY(prepare_threads(store));
    SPW_TRY(measure(store));
    spw_worker_pool_run(store->pool, &(spw_work){store->job_count, fetch, decode, store});
    SPW_TRY(check_jobs(store));

cleanup:
    return status;
}

/* Forgets chunks that were booked and may not have been decoded. */
static void forget_jobs(spw_chunk_store *store) {
    for (size_t i = 0; i < store->job_count; i++) {
        store->key[store->jobs[i].slot] = NOBODY;
        store->slots[store->jobs[i].slot].used = 0;
    }
    store->job_count = 0;
}

/* Learns from the request which layers and rows come next. */
static void follow(spw_chunk_store *store, uint64_t first, uint64_t rows, uint64_t layer_chunk) {
    if (!store->passes || first != store->pass_first || rows != store->pass_rows) {
        if (store->passes) {
            uint64_t before = store->pass_first / store->chunk_rows;
            uint64_t after = (store->pass_first + store->pass_rows) / store->chunk_rows + 1;
            uint64_t now = first / store->chunk_rows;
            store->expect_begin_layer = store->pass_begin_layer;
            store->expect_last_layer = store->pass_last_layer;
            store->onwards = now >= before && now <= after;
        }
        store->passes = true;
        store->pass_first = first;
        store->pass_rows = rows;
        store->pass_begin_layer = store->pass_last_layer = layer_chunk;
    }
    if (layer_chunk < store->pass_begin_layer) store->pass_begin_layer = layer_chunk;
    if (layer_chunk > store->pass_last_layer) store->pass_last_layer = layer_chunk;
    if (layer_chunk > store->expect_last_layer) store->expect_last_layer = store->layer_chunks - 1;
}

static size_t slot_of(const spw_chunk_store *store, uint64_t row_chunk, size_t layer) {
    return find_slot(store, row_chunk * store->layer_chunks + layer / store->chunk_layers);
}

/* Where row `first` of a layer lies in the arena if the chunks [begin, end] stand side by side there, else NULL. */
static const unsigned char *find_whole(const spw_chunk_store *store, uint64_t first, size_t layer,
                                       uint64_t begin, uint64_t end) {
    size_t start = slot_of(store, begin, layer);
    if (store->chunk_layers != 1) return NULL;
    for (uint64_t i = begin + 1; i <= end; i++) {
        if (slot_of(store, i, layer) != start + (size_t)(i - begin)) return NULL;
    }
    return data_of(store, start) + (first - begin * store->chunk_rows) * store->row_bytes;
}

/* Copies what chunk `row_chunk` holds of the request. */
static void copy_out(spw_chunk_store *store, uint64_t first, uint64_t rows, size_t layer,
                     uint64_t row_chunk) {
    uint64_t start = row_chunk * store->chunk_rows, from = first > start ? first : start;
    uint64_t end = start + store->chunk_rows < first + rows ? start + store->chunk_rows : first + rows;
    size_t stride = store->chunk_layers * store->row_bytes, row_bytes = store->row_bytes;
    const unsigned char *source = data_of(store, slot_of(store, row_chunk, layer)) + (from - start) * stride +
                                  layer % store->chunk_layers * row_bytes;
    unsigned char *out = store->gathered + (from - first) * row_bytes;
    if (store->chunk_layers == 1) {
        memcpy(out, source, (size_t)(end - from) * row_bytes);
        return;
    }
    for (uint64_t row = from; row < end; row++, source += stride, out += row_bytes) {
        memcpy(out, source, row_bytes);
    }
}

/* Room for a record that has to be put together. */
static spw_status grow_gathered(spw_chunk_store *store, uint64_t rows) {
    size_t bytes = (size_t)rows * store->row_bytes; /* no more than the dataset, whose size was checked */
    if (bytes <= store->gathered_bytes) return SPW_OK;
    spw_free(store->gathered);
    store->gathered = NULL;
    store->gathered_bytes = 0;
    spw_status status = SPW_ALLOC(bytes, &store->gathered);
    if (status == SPW_OK) store->gathered_bytes = bytes;
    return status;
}

/* Has chunks [begin, end] of the rows in memory, which fit into one batch. */
static spw_status load(spw_chunk_store *store, size_t layer, uint64_t begin, uint64_t end, bool ahead,
                       bool *suspect) {
    spw_status status = SPW_OK;
    uint64_t layer_chunk = layer / store->chunk_layers;
    store->clock++;
    store->job_count = 0;
    if (!want(store, begin, end, layer_chunk)) SPW_TRY(spw_fail(SPW_ENOMEM, "no room for a batch of chunks"));
    if (store->job_count > 0 && ahead) read_ahead(store, begin, end, layer_chunk);
    SPW_TRY(run_jobs(store));
    for (uint64_t i = begin; i <= end; i++)
        *suspect = *suspect || store->slots[slot_of(store, i, layer)].suspect;

cleanup:
    if (status != SPW_OK) forget_jobs(store);
    return status;
}

spw_status spw_chunk_store_read(spw_chunk_store *store, uint64_t first, uint64_t rows, size_t layer,
                                const void **out, bool *suspect) {
    spw_status status = SPW_OK;
    *suspect = false;
    *out = store->arena;
    if (rows == 0) return SPW_OK;
    uint64_t begin = first / store->chunk_rows, end = (first + rows - 1) / store->chunk_rows;
    bool whole = end - begin < store->job_capacity;
    follow(store, first, rows, layer / store->chunk_layers);
    if (whole) {
        SPW_TRY(load(store, layer, begin, end, true, suspect));
        *out = find_whole(store, first, layer, begin, end);
        if (*out != NULL) goto cleanup;
    }
    SPW_TRY(grow_gathered(store, rows));
    for (uint64_t i = begin; i <= end; i += store->job_capacity) {
        uint64_t last = end - i < store->job_capacity ? end : i + store->job_capacity - 1;
        if (!whole) SPW_TRY(load(store, layer, i, last, false, suspect));
        for (uint64_t j = i; j <= last; j++) copy_out(store, first, rows, layer, j);
    }
    *out = store->gathered;

cleanup:
    return status;
}
