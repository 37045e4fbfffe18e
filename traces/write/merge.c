#include "traces/write/merge.h"

#include "base/memory.h"
#include "base/progress.h"
#include "traces/shard_set.h"
#include "traces/trace_internal.h"
#include "traces/write/trace_write.h"
#include "traces/write/trace_write_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NOTE_BYTES = 4096 };

typedef struct merger {
    spw_trace *in;
    const spw_trace_info *info;
    spw_trace_writer *out;
    uint16_t *expert_id; /* [capacity][top_k] of one step and layer */
    size_t capacity;
    uint32_t *routed, *by_rank; /* [experts], [ranks][experts] or NULL */
} merger;

static bool has_tokens(const spw_trace_info *info, size_t step) {
    return info->has_tokens &&
           (info->step_offset[step + 1] > info->step_offset[step] || info->step_tokens[step] == 0);
}

static spw_status create_writer(merger *m, const char *path, int level) {
    spw_status status = SPW_OK;
    spw_trace_info info = *m->info;
    spw_trace_columns columns = {.tokens = 0};
    char note[NOTE_BYTES];
    bool all = true;
    for (size_t step = 0; step < info.steps; step++) {
        all = all && has_tokens(m->info, step);
        if (columns.tokens == 0 && has_tokens(m->info, step))
            SPW_TRY(spw_trace_read_columns(m->in, step, 1, &columns));
    }
    info.has_sequences = info.has_sequences && columns.position != NULL;
    info.has_by_rank = info.ranks > 0 && (info.has_by_rank || all);
    (void)snprintf(note, sizeof note, "merged of shards, datasets that no reader knows left out%s%s",
                   info.note[0] != '\0' ? "; the first said: " : "", info.note);
    info.note = note;
    const spw_trace_write_settings write = {.info = &info,
                                            .order = info.order[0] != '\0' ? info.order : NULL,
                                            .tokens = info.tokens,
                                            .level = level};
    SPW_TRY(spw_trace_writer_create(path, &write, &m->out));
    SPW_TRY(SPW_ALLOC(info.experts, &m->routed));
    if (info.has_by_rank) SPW_TRY(SPW_ALLOC(info.ranks * info.experts, &m->by_rank));

cleanup:
    return status;
}

static spw_status put_record(merger *m, size_t step, size_t layer) {
    spw_status status = SPW_OK;
    spw_trace_record record;
    SPW_TRY(spw_trace_read_record(m->in, step, 1, layer, m->info->has_weights, &record));
    const uint8_t *narrow = record.expert_id;
    const uint16_t *wide = record.expert_id;
    if (record.tokens > m->capacity) {
        spw_free(m->expert_id);
        m->expert_id = NULL;
        m->capacity = 0;
        SPW_TRY(SPW_ALLOC(record.tokens * record.top_k, &m->expert_id));
        m->capacity = record.tokens;
    }
    for (size_t i = 0; i < record.tokens * record.top_k; i++) {
        const uint16_t id = record.id_bytes == 1 ? narrow[i] : wide[i];
        m->expert_id[i] = id == record.missing ? SPW_TRACE_MISSING : id;
    }
    SPW_TRY(spw_trace_writer_put_layer(m->out, layer, m->expert_id, record.weight));

cleanup:
    return status;
}

static spw_status put_counts(merger *m, size_t step, size_t layer) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_trace_read_routed(m->in, step, layer, m->routed));
    if (m->by_rank != NULL) SPW_TRY(spw_trace_read_by_rank(m->in, step, layer, m->by_rank));
    SPW_TRY(spw_trace_writer_put_counts(m->out, layer, m->routed, m->by_rank));

cleanup:
    return status;
}

static spw_status merge_step(merger *m, size_t at) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = m->info;
    const bool tokens = has_tokens(info, at);
    spw_trace_write_step step = {.id = info->step_id[at],
                                 .phase = info->step_phase[at],
                                 .tokens = info->step_tokens[at],
                                 .tokens_kept = tokens};
    if (tokens) {
        spw_trace_columns columns;
        SPW_TRY(spw_trace_read_columns(m->in, at, 1, &columns));
        step.source_rank = columns.source_rank;
        step.sequence = columns.sequence;
        step.position = columns.position;
    }
    SPW_TRY(spw_trace_writer_begin_step(m->out, &step));
    for (size_t layer = 0; layer < info->layers; layer++)
        SPW_TRY(tokens ? put_record(m, at, layer) : put_counts(m, at, layer));
    SPW_TRY(spw_trace_writer_end_step(m->out));

cleanup:
    return status;
}

/* /steps/microbatch of the first shard of every range of steps; none where a shard has none. */
static spw_status merge_micro_batches(merger *m, const spw_shard_set *set) {
    spw_status status = SPW_OK;
    spw_trace *shard = NULL;
    int32_t *micro = NULL;
    size_t at = 0;
    bool all = true;
    SPW_TRY(SPW_ALLOC(m->info->steps, &micro));
    for (size_t row = 0; row < set->rows && all; row++) {
        const spw_shard *first = &set->shard[row * set->columns];
        SPW_TRY(spw_trace_open(first->path, &shard));
        all = spw_hdf5_exists(shard->file, "steps/microbatch");
        if (all)
            SPW_TRY(
                spw_read_array(shard->file, "steps/microbatch", H5T_NATIVE_INT32, first->steps, micro + at));
        at += first->steps;
        spw_trace_close(shard);
        shard = NULL;
    }
    if (all && at == m->info->steps)
        SPW_TRY(
            spw_trace_write_array(m->out, "steps/microbatch", H5T_STD_I32LE, H5T_NATIVE_INT32, at, micro));

cleanup:
    spw_trace_close(shard);
    spw_free(micro);
    return status;
}

static spw_status check_flags(merger *m, const char *path) {
    uint64_t flagged = 0;
    const spw_status status = spw_trace_count_flagged(m->in, &flagged);
    if (status != SPW_OK || flagged == 0) return status;
    return spw_fail(SPW_EFORMAT,
                    "%s: %" PRIu64
                    " tokens are flagged as padding or of a dummy run; a merged trace would not "
                    "say so: read the shards in place",
                    path, flagged);
}

spw_status spw_trace_merge(const char *in_path, const char *out_path, int level) {
    spw_status status = SPW_OK;
    merger m = {.capacity = 0};
    spw_shard_set set = {.shards = 0};
    spw_progress progress = spw_progress_begin("merge", "steps", 0);
    SPW_TRY(spw_trace_open(in_path, &m.in)); /* first: it says what is not there at all */
    if (!spw_shard_set_is(in_path))
        SPW_TRY(spw_fail(SPW_EARG,
                         "%s is no set of shards: a folder of traces, or a list NAME.shards, would be right",
                         in_path));
    SPW_TRY(spw_shard_set_read(in_path, &set));
    m.info = spw_trace_get_info(m.in);
    SPW_TRY(check_flags(&m, in_path));
    progress = spw_progress_begin("merge", "steps", m.info->steps);
    SPW_TRY(create_writer(&m, out_path, level));
    for (size_t step = 0; step < m.info->steps; step++) {
        SPW_TRY(merge_step(&m, step));
        spw_progress_update(&progress, step + 1);
    }
    SPW_TRY(merge_micro_batches(&m, &set));
    status = spw_trace_writer_finish(m.out);
    m.out = NULL;

cleanup:
    spw_progress_end(&progress);
    spw_trace_writer_abandon(m.out);
    spw_trace_close(m.in);
    spw_shard_set_clear(&set);
    spw_free(m.expert_id);
    spw_free(m.routed);
    spw_free(m.by_rank);
    return status;
}
