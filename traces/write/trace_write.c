#include "traces/write/trace_write.h"

#include "base/memory.h"
#include "traces/disk/hdf5_error.h"
#include "traces/disk/hdf5_read.h"
#include "traces/trace.h"
#include "traces/write/trace_write_internal.h"
#include "traces/write/trace_write_rules.h"

#include <string.h>

enum { MAX_EXPERTS_OF_BYTE = 255 };

static hid_t create_file(const char *path, spw_hdf5_disk *disk) {
    hid_t file = H5I_INVALID_HID, access_list = H5Pcreate(H5P_FILE_ACCESS);
    (void)H5Pset_libver_bounds(access_list, H5F_LIBVER_EARLIEST, H5F_LIBVER_V110);
    (void)H5Pset_fclose_degree(access_list, H5F_CLOSE_STRONG);
    if (spw_hdf5_disk_use(access_list, disk) == SPW_OK)
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access_list);
    (void)H5Pclose(access_list);
    return file;
}

spw_status spw_trace_writer_create(const char *path, const spw_trace_write_settings *settings,
                                   spw_trace_writer **out) {
    spw_status status = SPW_OK;
    spw_trace_writer *writer = NULL;
    const spw_trace_info *info = settings->info;
    *out = NULL;
    SPW_TRY(spw_hdf5_listen());
    SPW_TRY(spw_trace_write_check_settings(info));
    SPW_TRY(SPW_ALLOC(1, &writer));
    hid_t *handles[] = {&writer->file,     &writer->half_type,   &writer->expert_id,
                        &writer->weight,   &writer->source_rank, &writer->sequence,
                        &writer->position, &writer->routed,      &writer->by_rank};
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) *handles[i] = H5I_INVALID_HID;
    writer->has_tokens = info->has_tokens;
    writer->has_weights = info->has_tokens && info->has_weights;
    writer->has_sequences = info->has_tokens && info->has_sequences;
    writer->has_by_rank = info->has_by_rank;
    writer->falls = settings->order != NULL && strcmp(settings->order, "descending_weight") == 0;
    writer->ids_rise = settings->ids_rise;
    writer->droppable = settings->droppable;
    writer->layers = info->layers;
    writer->experts = info->experts;
    writer->top_k = info->top_k;
    writer->ranks = info->ranks;
    writer->id_bytes = info->experts <= MAX_EXPERTS_OF_BYTE ? 1 : 2;
    SPW_TRY(SPW_ALLOC(info->layers, &writer->layer_experts));
    memcpy(writer->layer_experts, info->layer_experts, info->layers * sizeof *writer->layer_experts);
    SPW_TRY(SPW_ALLOC(info->layers, &writer->layer_top_k));
    memcpy(writer->layer_top_k, info->layer_top_k, info->layers * sizeof *writer->layer_top_k);
    SPW_TRY(SPW_ALLOC(info->layers, &writer->layer_done));
    SPW_TRY(SPW_ALLOC(info->layers * info->experts, &writer->routed_counts));
    if (info->has_by_rank)
        SPW_TRY(SPW_ALLOC(info->ranks * info->layers * info->experts, &writer->by_rank_counts));
    SPW_TRY(spw_file_begin(path, &writer->target));
    writer->file = create_file(writer->target.temporary, &writer->disk);
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
    spw_hdf5_ledger_clear(&writer->before);
    void *owned[] = {writer->layer_experts, writer->layer_top_k,    writer->layer_done,
                     writer->routed_counts, writer->by_rank_counts, writer->step_id,
                     writer->step_tokens,   writer->step_offset,    writer->step_phase};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
    spw_free(writer);
}

/* Whether all that a call wrote is there; a file that cannot be written is named. */
static spw_status conclude(spw_trace_writer *writer, spw_status status) {
    if (status == SPW_OK || status == SPW_EIO) {
        const spw_status written = spw_hdf5_disk_check(&writer->disk);
        if (written != SPW_OK) status = written, writer->torn = true;
    }
    const bool names = status == SPW_EIO && writer->target.path != NULL;
    return names ? spw_fail_within(status, "%s", writer->target.path) : status;
}

spw_status spw_trace_writer_finish(spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    if (writer->in_step) SPW_TRY(spw_fail(SPW_EARG, "a step is not ended; end it, or drop it"));
    if (writer->steps == 0) SPW_TRY(spw_fail(SPW_EARG, "a trace needs a step"));
    if (writer->ids != NULL) SPW_TRY(spw_chunk_writer_flush(writer->ids));
    if (writer->weights != NULL) SPW_TRY(spw_chunk_writer_flush(writer->weights));
    SPW_TRY(spw_trace_write_steps(writer));
    SPW_TRY(close_handles(writer));
    SPW_TRY(spw_hdf5_disk_check(&writer->disk));
    SPW_TRY(spw_hdf5_ledger_check(&writer->ledger, writer->target.temporary));
    SPW_TRY(spw_file_commit(&writer->target));

cleanup:
    status = conclude(writer, status);
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

/* A dataset and what is written to its end. data NULL: it only grows. */
typedef struct appended {
    const char *path;
    hid_t dataset;
    int rank;
    hid_t type;
    const void *data;
} appended;

/* Grows a dataset to `extent` and writes its last block [count] there. */
static spw_status append(spw_trace_writer *writer, const appended *part, const hsize_t *extent,
                         const hsize_t *count) {
    const hid_t dataset = part->dataset, type = part->type;
    const void *data = part->data;
    const int rank = part->rank;
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
    return spw_hdf5_ledger_note(&writer->ledger, part->path, SPW_HDF5_IN_ORDER, type, NULL, data, bytes);
}

/* Room for the rows of a step whose tokens are kept, and its columns. */
static spw_status append_columns(spw_trace_writer *writer, const spw_trace_write_step *step) {
    spw_status status = SPW_OK;
    const hsize_t rows = writer->rows + step->tokens, count = step->tokens;
    const hsize_t extent[] = {rows, writer->layers, writer->top_k};
    const appended parts[] = {
        {"tokens/expert_id", writer->expert_id, 3, H5I_INVALID_HID, NULL},
        {"tokens/weight", writer->weight, 3, H5I_INVALID_HID, NULL},
        {"tokens/source_rank", writer->source_rank, 1, H5T_NATIVE_UINT16, step->source_rank},
        {"tokens/sequence", writer->sequence, 1, H5T_NATIVE_INT32, step->sequence},
        {"tokens/position", writer->position, 1, H5T_NATIVE_INT32, step->position}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].dataset < 0) continue; /* the trace has none */
        SPW_TRY(append(writer, &parts[i], extent, &count));
    }
    writer->rows = rows;

cleanup:
    return status;
}

spw_status spw_trace_writer_begin_step(spw_trace_writer *writer, const spw_trace_write_step *step) {
    spw_status status = SPW_OK;
    const bool kept = writer->has_tokens && step->tokens_kept;
    if (writer->in_step) return spw_fail(SPW_EARG, "the step before is not ended; end it, or drop it");
    SPW_TRY(spw_trace_write_check_step(writer, step));
    SPW_TRY(grow_steps(writer));
    SPW_TRY(spw_trace_writer_mark(writer));
    writer->step = *step;
    writer->step.tokens_kept = kept;
    writer->in_step = writer->torn = true;
    writer->rows_before = writer->rows;
    memset(writer->layer_done, 0, writer->layers * sizeof *writer->layer_done);
    if (kept) SPW_TRY(append_columns(writer, step));
    writer->torn = false;

cleanup:
    status = conclude(writer, status);
    if (status == SPW_OK || !writer->torn || !writer->droppable) return status;
    const spw_status dropped = spw_trace_writer_drop_step(writer);
    return dropped == SPW_OK ? status : dropped;
}

static spw_status check_layer(spw_trace_writer *writer, size_t layer) {
    if (!writer->in_step || layer >= writer->layers) {
        return spw_fail(SPW_EARG, "layer position %zu of %zu outside a step", layer, writer->layers);
    }
    if (writer->layer_done[layer]) return spw_fail(SPW_EARG, "layer position %zu written twice", layer);
    if (writer->torn) return spw_fail(SPW_EARG, "the step is half written, by a call that failed; drop it");
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
    const uint64_t tokens = writer->step.tokens;
    SPW_TRY(check_layer(writer, layer));
    const bool weighted = writer->step.tokens_kept && writer->has_weights;
    if (writer->has_by_rank && writer->step.source_rank == NULL && tokens > 0)
        SPW_TRY(spw_fail(SPW_EARG, "no source ranks given"));
    if (weighted && weight == NULL && tokens > 0)
        SPW_TRY(spw_fail(SPW_EARG, "layer position %zu: no weights given", layer));
    if (expert_id == NULL && tokens > 0) {
        status = spw_fail(SPW_EARG, "layer position %zu: no choices given", layer);
        goto cleanup;
    }
    if (tokens > UINT32_MAX) /* of which an expert may have all */
        SPW_TRY(spw_fail(SPW_EARG, "step %lld: %llu tokens do not fit a count", (long long)writer->step.id,
                         (unsigned long long)tokens));
    SPW_TRY(count_ids(writer, layer, expert_id));
    SPW_TRY(spw_trace_write_check_layer(writer, layer, expert_id, weighted ? weight : NULL));
    writer->torn = true;
    if (writer->step.tokens_kept) SPW_TRY(spw_chunk_writer_append(writer->ids, layer, expert_id, tokens));
    if (weighted) SPW_TRY(spw_chunk_writer_append(writer->weights, layer, weight, tokens));
    writer->torn = false;
    writer->layer_done[layer] = true;

cleanup:
    return conclude(writer, status);
}

spw_status spw_trace_writer_put_counts(spw_trace_writer *writer, size_t layer, const uint32_t *routed,
                                       const uint32_t *by_rank) {
    spw_status status = SPW_OK;
    size_t experts = writer->experts;
    SPW_TRY(check_layer(writer, layer));
    if (writer->step.tokens_kept)
        SPW_TRY(spw_fail(SPW_EARG, "counts alone for a step whose tokens are kept"));
    if (writer->has_by_rank && by_rank == NULL) SPW_TRY(spw_fail(SPW_EARG, "no counts by rank given"));
    SPW_TRY(spw_trace_write_check_counts(writer, layer, routed));
    memcpy(writer->routed_counts + layer * experts, routed, experts * sizeof *routed);
    for (size_t rank = 0; by_rank != NULL && writer->has_by_rank && rank < writer->ranks; rank++) {
        memcpy(writer->by_rank_counts + (rank * writer->layers + layer) * experts, by_rank + rank * experts,
               experts * sizeof *by_rank);
    }
    writer->layer_done[layer] = true;

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
    if (writer->torn) SPW_TRY(spw_fail(SPW_EARG, "the step is half written, by a call that failed; drop it"));
    writer->torn = true;
    const hsize_t extent[] = {at + 1, writer->layers, writer->experts},
                  count[] = {1, writer->layers, writer->experts};
    SPW_TRY(append(writer,
                   &(appended){"counts/routed", writer->routed, 3, H5T_NATIVE_UINT32, writer->routed_counts},
                   extent, count));
    if (writer->has_by_rank) {
        const hsize_t whole[] = {at + 1, writer->ranks, writer->layers, writer->experts};
        const hsize_t part[] = {1, writer->ranks, writer->layers, writer->experts};
        SPW_TRY(append(
            writer,
            &(appended){"counts/by_rank", writer->by_rank, 4, H5T_NATIVE_UINT32, writer->by_rank_counts},
            whole, part));
    }
    writer->step_id[at] = writer->step.id;
    writer->step_tokens[at] = (int64_t)writer->step.tokens;
    writer->step_phase[at] = writer->step.phase;
    writer->step_offset[at + 1] = (int64_t)writer->rows;
    writer->steps = at + 1;
    writer->in_step = writer->torn = false;

cleanup:
    return conclude(writer, status);
}
