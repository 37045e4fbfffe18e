#include "traces/trace.h"

#include "base/memory.h"
#include "traces/disk/hdf5_error.h"
#include "traces/record_check.h"
#include "traces/trace_internal.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { MAX_THREADS = 16, DATASETS = 8 };
static const spw_trace_source file_alone = {.close = NULL};

spw_status spw_trace_create_blank(const char *path, spw_trace **out) {
    spw_status status = SPW_OK;
    spw_trace *trace = NULL;
    size_t length = strlen(path) + 1;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &trace));
    spw_trace_dataset *datasets[DATASETS] = {&trace->expert_id, &trace->weight,   &trace->source_rank,
                                             &trace->sequence,  &trace->position, &trace->flags,
                                             &trace->routed,    &trace->by_rank};
    for (size_t i = 0; i < DATASETS; i++) datasets[i]->id = H5I_INVALID_HID;
    trace->file = trace->half_type = H5I_INVALID_HID;
    trace->source = &file_alone;
    trace->window = SPW_CHUNK_WINDOW;
    SPW_TRY(SPW_ALLOC(length, &trace->path));
    memcpy(trace->path, path, length);
    *out = trace;
    trace = NULL; /* ownership moved to the caller */

cleanup:
    spw_trace_close(trace);
    return status;
}

spw_status spw_trace_open_file(const char *path, const spw_trace *like, spw_trace **out) {
    spw_status status = SPW_OK;
    spw_trace *trace = NULL;
    *out = NULL;
    SPW_TRY(spw_hdf5_listen());
    SPW_TRY(spw_trace_create_blank(path, &trace));
    trace->half_type = spw_hdf5_half_type();
    if (trace->half_type < 0) SPW_TRY(spw_fail(SPW_ENOMEM, "%s: HDF5 cannot make a half type", path));
    if (like == NULL) SPW_TRY(spw_trace_probe(trace));
    for (size_t i = 0; i < SPW_TRACE_TEXTS && like != NULL; i++) {
        SPW_TRY(SPW_ALLOC(strlen(like->text[i]) + 1, &trace->text[i]));
        memcpy(trace->text[i], like->text[i], strlen(like->text[i]) + 1);
    }
    status = spw_hdf5_open_file(path, &trace->file);
    if (status == SPW_OK) status = spw_trace_read_header(trace);
    if (status == SPW_EFORMAT) /* the probe has read the same */
        status = spw_fail(SPW_ENOMEM,
                          "%s: could be read once and not again: out of memory, or it is being changed (%s)",
                          path, spw_last_error());
    if (status != SPW_OK) goto cleanup;
    *out = trace;
    trace = NULL; /* ownership moved to the caller */

cleanup:
    spw_trace_close(trace);
    return status;
}

void spw_trace_close(spw_trace *trace) {
    if (trace == NULL) return;
    if (trace->source->close != NULL) {
        trace->source->close(trace);
        return;
    }
    spw_trace_dataset *datasets[DATASETS] = {&trace->expert_id, &trace->weight,   &trace->source_rank,
                                             &trace->sequence,  &trace->position, &trace->flags,
                                             &trace->routed,    &trace->by_rank};
    for (size_t i = 0; i < DATASETS; i++) {
        spw_chunk_store_destroy(datasets[i]->chunks);
        spw_block_reader_destroy(datasets[i]->blocks);
        spw_hdf5_close_dataset(&datasets[i]->id);
        spw_free(datasets[i]->buffer.data);
    }
    spw_worker_pool_destroy(trace->pool);
    H5E_BEGIN_TRY { /* nothing is lost by a file that was only read */
        if (trace->half_type >= 0) (void)H5Tclose(trace->half_type);
        if (trace->file >= 0) (void)H5Fclose(trace->file);
    }
    H5E_END_TRY
    void *owned[] = {trace->path,      trace->layer_id,    trace->layer_experts, trace->layer_top_k,
                     trace->step_id,   trace->step_tokens, trace->step_offset,   trace->step_phase,
                     trace->histogram, trace->rank_id};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
    for (size_t i = 0; i < SPW_TRACE_TEXTS; i++) spw_free(trace->text[i]);
    spw_free(trace);
}

void spw_trace_keep_contradictions(spw_trace *trace) {
    trace->keep_contradictions = true;
    if (trace->source->keep_contradictions != NULL) trace->source->keep_contradictions(trace);
}

/* HDF5's own cache of where the chunks lie, which otherwise grows to 32 MiB. */
static void keep_cache_small(hid_t file) {
    enum { LEAST = 512 << 10, FIRST = 1 << 20, MOST = 2 << 20 };
    H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    H5E_BEGIN_TRY {
        if (H5Fget_mdc_config(file, &config) >= 0) {
            config.set_initial_size = 1;
            config.initial_size = FIRST;
            config.min_size = LEAST;
            config.max_size = MOST;
            config.flash_incr_mode = H5C_flash_incr__off;
            (void)H5Fset_mdc_config(file, &config);
        }
    }
    H5E_END_TRY
}

void spw_trace_set_window(spw_trace *trace, size_t bytes) {
    spw_trace_dataset *const kept[] = {&trace->expert_id, &trace->weight};
    if (trace->source->set_window != NULL) trace->source->set_window(trace, bytes);
    for (size_t i = 0; i < sizeof kept / sizeof *kept && trace->window != bytes; i++) {
        spw_chunk_store_destroy(kept[i]->chunks);
        kept[i]->chunks = NULL;
    }
    if (trace->file >= 0) keep_cache_small(trace->file);
    trace->window = bytes;
}

const spw_trace_info *spw_trace_get_info(const spw_trace *trace) { return &trace->info; }

static spw_status grow(spw_trace_buffer *buffer, size_t count, size_t size) {
    size_t bytes = 0;
    if (!spw_mul_size(count, size, &bytes))
        return spw_fail(SPW_ENOMEM, "record of %zu x %zu bytes", count, size);
    if (bytes <= buffer->bytes) return SPW_OK;
    spw_free(buffer->data);
    *buffer = (spw_trace_buffer){NULL, 0};
    spw_status status = spw_alloc(bytes, 1, &buffer->data);
    if (status == SPW_OK) buffer->bytes = bytes;
    return status;
}

static spw_status check_steps(const spw_trace *trace, size_t step, size_t steps) {
    const spw_trace_info *info = &trace->info;
    if (!info->has_tokens) return spw_fail(SPW_EARG, "%s: holds counts only, no tokens", trace->path);
    if (step > info->steps || steps > info->steps - step) {
        return spw_fail(SPW_EARG, "%s: steps %zu to %zu; the trace has %zu", trace->path, step, step + steps,
                        info->steps);
    }
    return SPW_OK;
}

/* A block of a dataset, with its name in front of what went wrong. */
static spw_status read_block(spw_trace *trace, spw_trace_dataset *dataset, const uint64_t *start,
                             const uint64_t *count, hid_t type, void *out) {
    spw_status status = SPW_OK;
    if (dataset->blocks == NULL)
        SPW_TRY(spw_block_reader_create(dataset->id, &dataset->shape, &dataset->blocks));
    status = spw_block_reader_read(dataset->blocks, start, count, type, out);
    if (status == SPW_EFORMAT) status = spw_fail_within(status, "%s: /%s", trace->path, dataset->path);

cleanup:
    return status;
}

/* *out = [tokens] of a column, or NULL when the file lacks it. */
static spw_status read_column(spw_trace *trace, spw_trace_dataset *dataset, uint64_t first, uint64_t tokens,
                              hid_t type, const void **out) {
    *out = NULL;
    if (dataset->id < 0) return SPW_OK;
    spw_status status = grow(&dataset->buffer, (size_t)tokens, H5Tget_size(type));
    if (status != SPW_OK) return status;
    *out = dataset->buffer.data;
    return read_block(trace, dataset, &first, &tokens, type, dataset->buffer.data);
}

spw_status spw_trace_count_flagged(spw_trace *trace, uint64_t *out) {
    const spw_trace_info *info = &trace->info;
    const bool kept = trace->keep_contradictions;
    spw_status status = SPW_OK;
    *out = 0;
    if (trace->source->count_flagged != NULL) return trace->source->count_flagged(trace, out);
    trace->keep_contradictions = true; /* a step of nothing else is counted too */
    for (size_t step = 0; trace->flags.id >= 0 && step < info->steps && status == SPW_OK; step++) {
        const void *flags = NULL;
        size_t flagged = 0;
        status = read_column(trace, &trace->flags, info->step_offset[step],
                             info->step_offset[step + 1] - info->step_offset[step], H5T_NATIVE_UINT8, &flags);
        if (status == SPW_OK) status = spw_trace_check_flags(trace, step, 1, flags, &flagged);
        *out += flagged;
    }
    trace->keep_contradictions = kept;
    return status;
}

spw_status spw_trace_read_columns(spw_trace *trace, size_t step, size_t steps, spw_trace_columns *out) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = &trace->info;
    memset(out, 0, sizeof *out);
    SPW_TRY(check_steps(trace, step, steps));
    if (trace->source->read_columns != NULL) return trace->source->read_columns(trace, step, steps, out);
    uint64_t first = info->step_offset[step], tokens = info->step_offset[step + steps] - first;
    *out = (spw_trace_columns){.first = first, .tokens = (size_t)tokens};
    const void *ranks = NULL, *sequences = NULL, *positions = NULL, *flags = NULL;
    SPW_TRY(read_column(trace, &trace->source_rank, first, tokens, H5T_NATIVE_UINT16, &ranks));
    SPW_TRY(read_column(trace, &trace->sequence, first, tokens, H5T_NATIVE_INT32, &sequences));
    SPW_TRY(read_column(trace, &trace->position, first, tokens, H5T_NATIVE_INT32, &positions));
    SPW_TRY(read_column(trace, &trace->flags, first, tokens, H5T_NATIVE_UINT8, &flags));
    SPW_TRY(spw_trace_check_flags(trace, step, steps, flags, &out->flagged));
    out->source_rank = ranks;
    out->sequence = sequences;
    out->position = positions;
    for (size_t i = 0; out->source_rank != NULL && i < tokens; i++) {
        if (out->source_rank[i] < info->ranks) continue;
        size_t at = spw_trace_step_of_row(info, first + i);
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: /tokens/source_rank: %u at step %lld, token %llu; must be < %zu",
                         trace->path, out->source_rank[i], (long long)info->step_id[at],
                         (unsigned long long)(first + i - info->step_offset[at]), info->ranks));
    }

cleanup:
    return status;
}

/* The first element that is neither < experts nor `missing`; there is one. */
static size_t find_bad(const spw_trace_record *record) {
    const uint8_t *narrow = record->expert_id;
    const uint16_t *wide = record->expert_id;
    for (size_t i = 0;; i++) {
        unsigned id = record->id_bytes == 1 ? narrow[i] : wide[i];
        if (id >= record->experts && id != record->missing) return i;
    }
}

static spw_status check_record(const spw_trace *trace, uint64_t first, size_t layer,
                               const spw_trace_record *record) {
    const spw_trace_info *info = &trace->info;
    if (!spw_any_beyond(record->expert_id, record->id_bytes, record->tokens * record->top_k,
                        (uint32_t)record->experts, record->missing))
        return trace->keep_contradictions ? SPW_OK : spw_trace_check_twice(trace, first, layer, record);
    size_t bad = find_bad(record);
    uint64_t row = first + bad / record->top_k;
    size_t step = spw_trace_step_of_row(info, row);
    unsigned id = record->id_bytes == 1 ? ((const uint8_t *)record->expert_id)[bad]
                                        : ((const uint16_t *)record->expert_id)[bad];
    return spw_fail(
        SPW_EFORMAT,
        "%s: /tokens/expert_id: id %u at step %lld, layer %d, token %llu; must be < %zu, or %u for missing",
        trace->path, id, (long long)info->step_id[step], info->layer_id[layer],
        (unsigned long long)(row - info->step_offset[step]), record->experts, record->missing);
}

/* As many threads as OpenMP would take, within reason: chunks come from one thread. */
static spw_status create_pool(spw_worker_pool **out) {
    int threads = omp_get_max_threads();
    return spw_worker_pool_create(threads < MAX_THREADS ? (size_t)threads : MAX_THREADS, out);
}

/* *out = [tokens][top_k] of one layer. *suspect: an id of it may be out of range. */
static spw_status read_choices(spw_trace *trace, spw_trace_dataset *dataset, uint64_t first, uint64_t tokens,
                               size_t layer, const void **out, bool *suspect) {
    spw_status status = SPW_OK;
    const uint64_t start[] = {first, layer, 0}, count[] = {tokens, 1, trace->info.top_k};
    const uint32_t *limit = dataset == &trace->expert_id ? trace->layer_experts : NULL;
    *suspect = true;
    if (dataset->fast) {
        if (trace->pool == NULL) SPW_TRY(create_pool(&trace->pool));
        if (dataset->chunks == NULL) {
            SPW_TRY(spw_chunk_store_create(dataset->id, &dataset->shape, limit, trace->info.missing,
                                           trace->pool, trace->window, &dataset->chunks));
        }
        status = spw_chunk_store_read(dataset->chunks, first, tokens, layer, out, suspect);
    } else {
        SPW_TRY(
            grow(&dataset->buffer, (size_t)tokens, trace->info.top_k * H5Tget_size(dataset->memory_type)));
        *out = dataset->buffer.data;
        SPW_TRY(read_block(trace, dataset, start, count, dataset->memory_type, dataset->buffer.data));
    }
    if (status == SPW_EFORMAT) {
        status = spw_fail_within(status, "%s: /%s, layer %d", trace->path, dataset->path,
                                 trace->info.layer_id[layer]);
    }

cleanup:
    return status;
}

/* Where the trace says that a token's slots fall by weight, they do; halves of 0 and above compare as their bits. */
static spw_status check_order(const spw_trace *trace, uint64_t first, size_t layer,
                              const spw_trace_record *record) {
    const uint8_t *narrow = record->expert_id;
    const uint16_t *wide = record->expert_id;
    if (strcmp(trace->info.order, "descending_weight") != 0) return SPW_OK;
    for (size_t i = 1; i < record->tokens * record->top_k; i++) {
        const bool chosen = (record->id_bytes == 1 ? narrow[i] : wide[i]) < record->experts &&
                            (record->id_bytes == 1 ? narrow[i - 1] : wide[i - 1]) < record->experts;
        if (i % record->top_k == 0 || !chosen || record->weight[i] <= record->weight[i - 1]) continue;
        const uint64_t row = first + i / record->top_k;
        return spw_fail(
            SPW_EFORMAT,
            "%s: /tokens/weight, step %" PRId64 ", layer %d, token row %" PRIu64
            ", slot %zu: above the slot before it; the order of /tokens/expert_id says descending_weight",
            trace->path, trace->info.step_id[spw_trace_step_of_row(&trace->info, row)],
            trace->info.layer_id[layer], row, i % record->top_k);
    }
    return SPW_OK;
}

/* Finite and not below 0, where a choice is; bits of IEEE halves. */
static spw_status check_weights(const spw_trace *trace, uint64_t first, size_t layer,
                                const spw_trace_record *record) {
    const uint8_t *narrow = record->expert_id;
    const uint16_t *wide = record->expert_id;
    for (size_t i = 0; i < record->tokens * record->top_k; i++) {
        const uint16_t bits = record->weight[i];
        const bool infinite = (bits & 0x7c00) == 0x7c00, below = bits > 0x8000;
        if ((!infinite && !below) || (record->id_bytes == 1 ? narrow[i] : wide[i]) >= record->experts)
            continue;
        const uint64_t row = first + i / record->top_k;
        return spw_fail(SPW_EFORMAT,
                        "%s: /tokens/weight, step %" PRId64 ", layer %d, token row %" PRIu64
                        ", slot %zu: a weight that is %s; finite numbers of at least 0 would be right",
                        trace->path, trace->info.step_id[spw_trace_step_of_row(&trace->info, row)],
                        trace->info.layer_id[layer], row, i % record->top_k,
                        infinite ? "infinite or no number" : "below 0");
    }
    return SPW_OK;
}

static spw_status read_counts(spw_trace *trace, spw_trace_dataset *dataset, size_t step, size_t layer,
                              uint32_t *out);

/* Where counts/routed is of the very tokens: each step of the record against it. */
static spw_status compare_counts(spw_trace *trace, size_t step, size_t steps, size_t layer,
                                 const spw_trace_record *record) {
    const uint64_t *offset = trace->info.step_offset;
    spw_status status = SPW_OK;
    if (!trace->info.has_routed || trace->keep_contradictions ||
        trace->text[SPW_TRACE_TOKEN_FILTER][0] != '\0')
        return SPW_OK;
    if (trace->histogram == NULL) SPW_TRY(SPW_ALLOC(trace->info.experts, &trace->histogram));
    for (size_t s = step; s < step + steps; s++) {
        spw_trace_record part = *record;
        part.tokens = (size_t)(offset[s + 1] - offset[s]);
        part.expert_id =
            (const char *)record->expert_id + (offset[s] - offset[step]) * record->top_k * record->id_bytes;
        if (part.tokens == 0) continue;
        SPW_TRY(read_counts(trace, &trace->routed, s, layer, trace->histogram));
        SPW_TRY(spw_trace_check_sum(trace, s, layer, &part, trace->histogram));
    }

cleanup:
    return status;
}

spw_status spw_trace_read_record(spw_trace *trace, size_t step, size_t steps, size_t layer, bool weights,
                                 spw_trace_record *out) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = &trace->info;
    bool suspect = true;
    memset(out, 0, sizeof *out);
    SPW_TRY(check_steps(trace, step, steps));
    if (layer >= info->layers) {
        SPW_TRY(spw_fail(SPW_EARG, "%s: layer position %zu; the trace has %zu", trace->path, layer,
                         info->layers));
    }
    if (trace->source->read_record != NULL)
        return trace->source->read_record(trace, step, steps, layer, weights, out);
    uint64_t first = info->step_offset[step], tokens = info->step_offset[step + steps] - first;
    *out = (spw_trace_record){
        (size_t)tokens, info->top_k, info->layer_experts[layer], info->id_bytes, info->missing, NULL, NULL};
    SPW_TRY(read_choices(trace, &trace->expert_id, first, tokens, layer, &out->expert_id, &suspect));
    if (suspect) SPW_TRY(check_record(trace, first, layer, out));
    SPW_TRY(compare_counts(trace, step, steps, layer, out));
    if (weights && info->has_weights) {
        const void *weight = NULL;
        SPW_TRY(read_choices(trace, &trace->weight, first, tokens, layer, &weight, &suspect));
        out->weight = weight;
        SPW_TRY(check_weights(trace, first, layer, out));
        SPW_TRY(check_order(trace, first, layer, out));
    }

cleanup:
    return status;
}

/* Of one step and layer: [experts], or [ranks][experts] of counts/by_rank. */
static spw_status read_counts(spw_trace *trace, spw_trace_dataset *dataset, size_t step, size_t layer,
                              uint32_t *out) {
    const spw_trace_info *info = &trace->info;
    const bool ranks = dataset == &trace->by_rank;
    const uint64_t start[] = {step, ranks ? 0 : layer, ranks ? layer : 0, 0},
                   count[] = {1, ranks ? info->ranks : 1, ranks ? 1 : info->experts, info->experts};
    if (dataset->id < 0 && trace->source->read_counts == NULL)
        return spw_fail(SPW_EARG, "%s: has no /%s", trace->path, dataset->path);
    if (step >= info->steps || layer >= info->layers) {
        return spw_fail(SPW_EARG, "%s: step %zu, layer %zu; the trace has %zu and %zu", trace->path, step,
                        layer, info->steps, info->layers);
    }
    if (trace->source->read_counts != NULL) return trace->source->read_counts(trace, step, layer, ranks, out);
    return read_block(trace, dataset, start, count, H5T_NATIVE_UINT32, out);
}

spw_status spw_trace_read_routed(spw_trace *trace, size_t step, size_t layer, uint32_t *routed) {
    const spw_status status = read_counts(trace, &trace->routed, step, layer, routed);
    if (status != SPW_OK || trace->keep_contradictions) return status;
    return spw_trace_check_counts(trace, trace->routed.path, step, layer, routed);
}

/* The sum over ranks: possible, and counts/routed. */
static spw_status check_by_rank(spw_trace *trace, size_t step, size_t layer, const uint32_t *by_rank) {
    const spw_trace_info *info = &trace->info;
    uint32_t *sum = NULL;
    spw_status status = SPW_OK;
    if (trace->histogram == NULL) SPW_TRY(SPW_ALLOC(info->experts, &trace->histogram));
    SPW_TRY(SPW_ALLOC(info->experts, &sum));
    for (size_t i = 0; i < info->ranks * info->experts; i++) {
        if (__builtin_add_overflow(sum[i % info->experts], by_rank[i], &sum[i % info->experts]))
            sum[i % info->experts] = UINT32_MAX;
    }
    SPW_TRY(spw_trace_check_counts(trace, trace->by_rank.path, step, layer, sum));
    if (!info->has_routed || trace->text[SPW_TRACE_TOKEN_FILTER][0] != '\0') goto cleanup;
    SPW_TRY(read_counts(trace, &trace->routed, step, layer, trace->histogram));
    for (size_t x = 0; x < info->experts; x++) {
        if (sum[x] == trace->histogram[x]) continue;
        SPW_TRY(spw_fail(
            SPW_EFORMAT,
            "%s: step %" PRId64 ", layer %" PRId32 ", expert %zu: /counts/by_rank sums to %u, but "
            "/counts/routed says %u; they must agree",
            trace->path, info->step_id[step], info->layer_id[layer], x, sum[x], trace->histogram[x]));
    }

cleanup:
    spw_free(sum);
    return status;
}

spw_status spw_trace_read_by_rank(spw_trace *trace, size_t step, size_t layer, uint32_t *by_rank) {
    const spw_status status = read_counts(trace, &trace->by_rank, step, layer, by_rank);
    if (status != SPW_OK || trace->keep_contradictions || trace->shards != NULL) return status;
    return check_by_rank(trace, step, layer, by_rank);
}
