#include "traces/trace_write.h"

#include "base/memory.h"
#include "traces/hdf5_error.h"
#include "traces/hdf5_read.h"
#include "traces/trace_write_internal.h"

#include <string.h>

enum { MAX_EXPERTS_OF_BYTE = 255 };

static hid_t create_file(const char *path) {
    hid_t access_list = H5Pcreate(H5P_FILE_ACCESS);
    (void)H5Pset_libver_bounds(access_list, H5F_LIBVER_EARLIEST, H5F_LIBVER_V110);
    (void)H5Pset_fclose_degree(access_list, H5F_CLOSE_STRONG);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access_list);
    (void)H5Pclose(access_list);
    return file;
}

static spw_status check_settings(const spw_trace_info *info) {
    if (info->layers < 1 || info->layers > SPW_TRACE_MAX_LAYERS || info->experts < 1 ||
        info->experts > SPW_TRACE_MAX_EXPERTS || info->top_k < 1 || info->top_k > SPW_TRACE_MAX_TOP_K ||
        info->top_k > info->experts || info->ranks > SPW_TRACE_MAX_RANKS) {
        return spw_fail(SPW_EARG,
                        "a trace of %zu layers, %zu experts, top_k %zu, %zu ranks is outside the limits",
                        info->layers, info->experts, info->top_k, info->ranks);
    }
    if (info->has_by_rank && info->ranks == 0) return spw_fail(SPW_EARG, "counts by rank need source ranks");
    return SPW_OK;
}

spw_status spw_trace_writer_create(const char *path, const spw_trace_write_settings *settings,
                                   spw_trace_writer **out) {
    spw_status status = SPW_OK;
    spw_trace_writer *writer = NULL;
    const spw_trace_info *info = settings->info;
    *out = NULL;
    SPW_TRY(spw_hdf5_listen());
    SPW_TRY(check_settings(info));
    SPW_TRY(SPW_ALLOC(1, &writer));
    hid_t *handles[] = {&writer->file,     &writer->half_type,   &writer->expert_id,
                        &writer->weight,   &writer->source_rank, &writer->sequence,
                        &writer->position, &writer->routed,      &writer->by_rank};
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) *handles[i] = H5I_INVALID_HID;
    writer->has_tokens = info->has_tokens;
    writer->has_weights = info->has_tokens && info->has_weights;
    writer->has_sequences = info->has_tokens && info->has_sequences;
    writer->has_by_rank = info->has_by_rank;
    writer->layers = info->layers;
    writer->experts = info->experts;
    writer->top_k = info->top_k;
    writer->ranks = info->ranks;
    writer->id_bytes = info->experts <= MAX_EXPERTS_OF_BYTE ? 1 : 2;
    SPW_TRY(SPW_ALLOC(info->layers, &writer->layer_experts));
    memcpy(writer->layer_experts, info->layer_experts, info->layers * sizeof *writer->layer_experts);
    SPW_TRY(SPW_ALLOC(info->layers, &writer->layer_done));
    SPW_TRY(SPW_ALLOC(info->layers * info->experts, &writer->routed_counts));
    if (info->has_by_rank)
        SPW_TRY(SPW_ALLOC(info->ranks * info->layers * info->experts, &writer->by_rank_counts));
    SPW_TRY(spw_file_begin(path, &writer->target));
    writer->file = create_file(writer->target.temporary);
    writer->half_type = spw_hdf5_half_type();
    if (writer->file < 0 || writer->half_type < 0)
        SPW_TRY(spw_fail(SPW_EIO, "cannot be created (out of memory?)"));
    SPW_TRY(spw_trace_write_header(writer, settings));
    *out = writer;
    writer = NULL;

cleanup:
    if (status == SPW_EIO && writer != NULL && writer->target.path != NULL)
        status = spw_fail_within(status, "%s", path);
    spw_trace_writer_abandon(writer);
    return status;
}

static spw_status close_handles(spw_trace_writer *writer) {
    hid_t *datasets[] = {&writer->expert_id, &writer->weight, &writer->source_rank, &writer->sequence,
                         &writer->position,  &writer->routed, &writer->by_rank};
    herr_t bad = 0;
    for (size_t i = 0; i < sizeof datasets / sizeof *datasets; i++) {
        if (*datasets[i] >= 0 && H5Dclose(*datasets[i]) < 0) bad = -1;
        *datasets[i] = H5I_INVALID_HID;
    }
    if (writer->half_type >= 0) (void)H5Tclose(writer->half_type);
    if (writer->file >= 0 && H5Fclose(writer->file) < 0) bad = -1;
    writer->half_type = writer->file = H5I_INVALID_HID;
    return bad < 0 ? spw_fail(SPW_EIO, "cannot be written to its end (disk full, or out of memory?)")
                   : SPW_OK;
}

void spw_trace_writer_abandon(spw_trace_writer *writer) {
    if (writer == NULL) return;
    spw_chunk_writer_destroy(writer->ids);
    spw_chunk_writer_destroy(writer->weights);
    (void)close_handles(writer);
    spw_file_discard(&writer->target);
    spw_hdf5_ledger_clear(&writer->ledger);
    void *owned[] = {writer->layer_experts,  writer->layer_done, writer->routed_counts,
                     writer->by_rank_counts, writer->step_id,    writer->step_tokens,
                     writer->step_offset,    writer->step_phase};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
    spw_free(writer);
}

spw_status spw_trace_writer_finish(spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    if (writer->in_step) SPW_TRY(spw_fail(SPW_EARG, "a step is not ended"));
    if (writer->steps == 0) SPW_TRY(spw_fail(SPW_EARG, "a trace needs a step"));
    if (writer->ids != NULL) SPW_TRY(spw_chunk_writer_flush(writer->ids));
    if (writer->weights != NULL) SPW_TRY(spw_chunk_writer_flush(writer->weights));
    SPW_TRY(spw_trace_write_steps(writer));
    SPW_TRY(close_handles(writer));
    SPW_TRY(spw_hdf5_ledger_check(&writer->ledger, writer->target.temporary));
    SPW_TRY(spw_file_commit(&writer->target));

cleanup:
    if (status == SPW_EIO && writer->target.path != NULL)
        status = spw_fail_within(status, "%s", writer->target.path);
    spw_trace_writer_abandon(writer);
    return status;
}

/* Room for one more step, and for the end of the last one. */
static spw_status grow_steps(spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    int64_t *id = NULL, *tokens = NULL, *offset = NULL;
    uint8_t *phase = NULL;
    size_t used = writer->steps, capacity = writer->steps_capacity * 2 + 16;
    if (used < writer->steps_capacity) return SPW_OK;
    SPW_TRY(SPW_ALLOC(capacity, &id));
    SPW_TRY(SPW_ALLOC(capacity, &tokens));
    SPW_TRY(SPW_ALLOC(capacity + 1, &offset));
    SPW_TRY(SPW_ALLOC(capacity, &phase));
    if (used > 0) {
        memcpy(id, writer->step_id, used * sizeof *id);
        memcpy(tokens, writer->step_tokens, used * sizeof *tokens);
        memcpy(offset, writer->step_offset, (used + 1) * sizeof *offset);
        memcpy(phase, writer->step_phase, used);
    }
    spw_free(writer->step_id);
    spw_free(writer->step_tokens);
    spw_free(writer->step_offset);
    spw_free(writer->step_phase);
    writer->step_id = id;
    writer->step_tokens = tokens;
    writer->step_offset = offset;
    writer->step_phase = phase;
    writer->steps_capacity = capacity;
    id = tokens = offset = NULL;
    phase = NULL;

cleanup:
    spw_free(id);
    spw_free(tokens);
    spw_free(offset);
    spw_free(phase);
    return status;
}

/* Grows a dataset to `extent` and writes its last block [count] there. data NULL: only grows. */
static spw_status append(spw_trace_writer *writer, const char *path, hid_t dataset, int rank,
                         const hsize_t *extent, const hsize_t *count, hid_t type, const void *data) {
    hsize_t start[4] = {0};
    start[0] = extent[0] - count[0];
    bool good = H5Dset_extent(dataset, extent) >= 0;
    if (good && data != NULL && count[0] > 0) {
        hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(rank, count, NULL);
        good = space >= 0 && memory >= 0 &&
               H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
               H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, data) >= 0;
        if (space >= 0) (void)H5Sclose(space);
        if (memory >= 0) (void)H5Sclose(memory);
    }
    if (!good) return spw_fail(SPW_EIO, "cannot be written (disk full, or out of memory?)");
    size_t bytes = type >= 0 ? H5Tget_size(type) : 0;
    for (int i = 0; i < rank; i++) bytes *= (size_t)(i == 0 ? count[0] : extent[i]);
    if (data == NULL || bytes == 0) return SPW_OK;
    return spw_hdf5_ledger_note(&writer->ledger, path, SPW_HDF5_IN_ORDER, type, 0, 0, data, bytes);
}

spw_status spw_trace_writer_begin_step(spw_trace_writer *writer, const spw_trace_write_step *step) {
    spw_status status = SPW_OK;
    bool kept = writer->has_tokens && step->tokens_kept;
    if (writer->in_step) SPW_TRY(spw_fail(SPW_EARG, "the step before is not ended"));
    if (kept && ((writer->source_rank >= 0 && step->source_rank == NULL) ||
                 (writer->has_sequences && (step->sequence == NULL || step->position == NULL)))) {
        SPW_TRY(spw_fail(SPW_EARG, "step %lld lacks a column", (long long)step->id));
    }
    for (uint64_t i = 0; step->source_rank != NULL && i < step->tokens; i++) {
        if (step->source_rank[i] < writer->ranks) continue;
        SPW_TRY(spw_fail(SPW_EARG, "step %lld: source rank %u of %zu", (long long)step->id,
                         step->source_rank[i], writer->ranks));
    }
    SPW_TRY(grow_steps(writer));
    if (kept) {
        const hsize_t rows = writer->rows + step->tokens, count = step->tokens;
        const hsize_t extent[] = {rows, writer->layers, writer->top_k};
        SPW_TRY(
            append(writer, "tokens/expert_id", writer->expert_id, 3, extent, &count, H5I_INVALID_HID, NULL));
        if (writer->has_weights)
            SPW_TRY(
                append(writer, "tokens/weight", writer->weight, 3, extent, &count, H5I_INVALID_HID, NULL));
        if (writer->source_rank >= 0) {
            SPW_TRY(append(writer, "tokens/source_rank", writer->source_rank, 1, &rows, &count,
                           H5T_NATIVE_UINT16, step->source_rank));
        }
        if (writer->has_sequences) {
            SPW_TRY(append(writer, "tokens/sequence", writer->sequence, 1, &rows, &count, H5T_NATIVE_INT32,
                           step->sequence));
            SPW_TRY(append(writer, "tokens/position", writer->position, 1, &rows, &count, H5T_NATIVE_INT32,
                           step->position));
        }
        writer->rows = rows;
    }
    writer->step = *step;
    writer->step.tokens_kept = kept;
    writer->in_step = true;
    memset(writer->layer_done, 0, writer->layers * sizeof *writer->layer_done);

cleanup:
    return status;
}

static spw_status check_layer(spw_trace_writer *writer, size_t layer) {
    if (!writer->in_step || layer >= writer->layers) {
        return spw_fail(SPW_EARG, "layer position %zu of %zu outside a step", layer, writer->layers);
    }
    if (writer->layer_done[layer]) return spw_fail(SPW_EARG, "layer position %zu written twice", layer);
    writer->layer_done[layer] = true;
    return SPW_OK;
}

static spw_status count_ids(spw_trace_writer *writer, size_t layer, const uint16_t *expert_id) {
    size_t experts = writer->experts, limit = writer->layer_experts[layer], top_k = writer->top_k;
    const uint16_t *source_rank = writer->step.source_rank;
    uint32_t *routed = writer->routed_counts + layer * experts;
    memset(routed, 0, experts * sizeof *routed);
    for (size_t rank = 0; writer->has_by_rank && rank < writer->ranks; rank++) {
        memset(writer->by_rank_counts + (rank * writer->layers + layer) * experts, 0,
               experts * sizeof *routed);
    }
    for (uint64_t token = 0; token < writer->step.tokens; token++) {
        uint32_t *count = routed;
        if (writer->has_by_rank && source_rank != NULL)
            count = writer->by_rank_counts + (source_rank[token] * writer->layers + layer) * experts;
        for (size_t k = 0; k < top_k; k++) {
            unsigned id = expert_id[token * top_k + k];
            if (id < limit) {
                count[id]++;
            } else if (id != SPW_TRACE_MISSING) {
                return spw_fail(SPW_EARG, "step %lld, layer position %zu, token %llu: expert %u of %zu",
                                (long long)writer->step.id, layer, (unsigned long long)token, id, limit);
            }
        }
    }
    for (size_t rank = 0; writer->has_by_rank && rank < writer->ranks; rank++) {
        const uint32_t *count = writer->by_rank_counts + (rank * writer->layers + layer) * experts;
        for (size_t expert = 0; expert < experts; expert++) routed[expert] += count[expert];
    }
    return SPW_OK;
}

spw_status spw_trace_writer_put_layer(spw_trace_writer *writer, size_t layer, const uint16_t *expert_id,
                                      const uint16_t *weight) {
    spw_status status = SPW_OK;
    SPW_TRY(check_layer(writer, layer));
    if (writer->has_by_rank && writer->step.source_rank == NULL)
        SPW_TRY(spw_fail(SPW_EARG, "no source ranks given"));
    SPW_TRY(count_ids(writer, layer, expert_id));
    if (!writer->step.tokens_kept) goto cleanup;
    SPW_TRY(spw_chunk_writer_append(writer->ids, layer, expert_id, writer->step.tokens));
    if (!writer->has_weights) goto cleanup;
    if (weight == NULL) SPW_TRY(spw_fail(SPW_EARG, "layer position %zu: no weights given", layer));
    SPW_TRY(spw_chunk_writer_append(writer->weights, layer, weight, writer->step.tokens));

cleanup:
    return status;
}

spw_status spw_trace_writer_put_counts(spw_trace_writer *writer, size_t layer, const uint32_t *routed,
                                       const uint32_t *by_rank) {
    spw_status status = SPW_OK;
    size_t experts = writer->experts;
    SPW_TRY(check_layer(writer, layer));
    if (writer->step.tokens_kept)
        SPW_TRY(spw_fail(SPW_EARG, "counts alone for a step whose tokens are kept"));
    if (writer->has_by_rank && by_rank == NULL) SPW_TRY(spw_fail(SPW_EARG, "no counts by rank given"));
    memcpy(writer->routed_counts + layer * experts, routed, experts * sizeof *routed);
    for (size_t rank = 0; by_rank != NULL && writer->has_by_rank && rank < writer->ranks; rank++) {
        memcpy(writer->by_rank_counts + (rank * writer->layers + layer) * experts, by_rank + rank * experts,
               experts * sizeof *by_rank);
    }

cleanup:
    return status;
}

spw_status spw_trace_writer_end_step(spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    size_t at = writer->steps;
    for (size_t layer = 0; layer < writer->layers; layer++) {
        if (!writer->in_step || !writer->layer_done[layer])
            SPW_TRY(spw_fail(SPW_EARG, "layer position %zu is not written", layer));
    }
    const hsize_t extent[] = {at + 1, writer->layers, writer->experts},
                  count[] = {1, writer->layers, writer->experts};
    SPW_TRY(append(writer, "counts/routed", writer->routed, 3, extent, count, H5T_NATIVE_UINT32,
                   writer->routed_counts));
    if (writer->has_by_rank) {
        const hsize_t whole[] = {at + 1, writer->ranks, writer->layers, writer->experts};
        const hsize_t part[] = {1, writer->ranks, writer->layers, writer->experts};
        SPW_TRY(append(writer, "counts/by_rank", writer->by_rank, 4, whole, part, H5T_NATIVE_UINT32,
                       writer->by_rank_counts));
    }
    writer->step_id[at] = writer->step.id;
    writer->step_tokens[at] = (int64_t)writer->step.tokens;
    writer->step_phase[at] = writer->step.phase;
    writer->step_offset[at + 1] = (int64_t)writer->rows;
    writer->steps = at + 1;
    writer->in_step = false;

cleanup:
    return status;
}
