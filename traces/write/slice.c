#include "traces/write/slice.h"

#include "base/memory.h"
#include "base/progress.h"
#include "traces/shard_set.h"
#include "traces/write/slice_internal.h"
#include "traces/write/trace_part.h"

#include <stdio.h>
#include <string.h>

enum { NOTE_BYTES = 4096 };

/* The buffers of one step. */
typedef struct cut {
    spw_trace *in;
    spw_trace_writer *out;
    const spw_slice_settings *settings;
    size_t rank_begin, rank_end;
    spw_slice_runs step_rows; /* of the step under way, counted from its first row */
    spw_slice_runs all_rows, all_steps;
    spw_trace_rows rows;
    uint32_t *routed, *by_rank;
} cut;

spw_status spw_slice_add_run(spw_slice_runs *runs, uint64_t first, uint64_t count) {
    spw_status status = SPW_OK;
    spw_slice_run *larger = NULL;
    if (count == 0) return SPW_OK;
    spw_slice_run *last = runs->used > 0 ? &runs->run[runs->used - 1] : NULL;
    if (last != NULL && last->first + last->count == first) {
        last->count += count;
        return SPW_OK;
    }
    if (runs->run == NULL || runs->used == runs->capacity) {
        SPW_TRY(SPW_ALLOC(runs->capacity * 2 + 16, &larger));
        if (runs->run != NULL) memcpy(larger, runs->run, runs->used * sizeof *larger);
        spw_free(runs->run);
        runs->run = larger;
        runs->capacity = runs->capacity * 2 + 16;
    }
    runs->run[runs->used++] = (spw_slice_run){first, count};

cleanup:
    return status;
}

static spw_status check_settings(const spw_trace_info *info, const spw_slice_settings *settings) {
    if (settings->steps == 0 || settings->layer_begin >= settings->layer_end) {
        return spw_fail(SPW_EARG, "a slice needs a step and a layer");
    }
    for (size_t i = 0; i < settings->steps; i++) {
        if (settings->step[i] >= info->steps || (i > 0 && settings->step[i] <= settings->step[i - 1])) {
            return spw_fail(SPW_EARG, "step position %zu; must rise and be < %zu", settings->step[i],
                            info->steps);
        }
    }
    if (settings->layer_end > info->layers) {
        return spw_fail(SPW_EARG, "layers to position %zu; the trace has %zu", settings->layer_end,
                        info->layers);
    }
    if (settings->rank_begin > settings->rank_end || settings->rank_end > info->ranks) {
        return spw_fail(SPW_EARG, "ranks %zu to %zu; the trace has %zu%s", settings->rank_begin,
                        settings->rank_end, info->ranks, info->ranks == 0 ? " (it does not know them)" : "");
    }
    for (size_t i = 0; i < settings->steps; i++) {
        size_t at = settings->step[i];
        bool has_tokens = info->has_tokens && info->step_offset[at + 1] > info->step_offset[at];
        if ((settings->rank_end > 0 || settings->max_tokens > 0) && !has_tokens &&
            info->step_tokens[at] > 0) {
            return spw_fail(SPW_EARG, "step position %zu has counts only; its ranks and tokens cannot be cut",
                            at);
        }
    }
    return SPW_OK;
}

static spw_status create_writer(cut *c, const char *path) {
    spw_status status = SPW_OK;
    const spw_trace_info *from = spw_trace_get_info(c->in);
    const spw_slice_settings *settings = c->settings;
    const spw_trace_part part = {.step = settings->step,
                                 .steps = settings->steps,
                                 .layer_begin = settings->layer_begin,
                                 .layer_end = settings->layer_end,
                                 .rank_begin = c->rank_begin,
                                 .rank_end = c->rank_end};
    char *note = NULL, what[256];
    (void)snprintf(
        what, sizeof what, "%zu of %zu steps, layer positions %zu:%zu of %zu, ranks %zu:%zu of %zu, %s",
        settings->steps, from->steps, settings->layer_begin, settings->layer_end, from->layers, c->rank_begin,
        c->rank_end, from->ranks, settings->max_tokens > 0 ? "tokens cut" : "all their tokens");
    SPW_TRY(SPW_ALLOC(NOTE_BYTES, &note));
    (void)snprintf(note, NOTE_BYTES, "slice (%s) of: %s", what, from->note);
    SPW_TRY(spw_trace_part_create(c->in, &part, note, settings->level, path, &c->out));
    SPW_TRY(spw_trace_writer_set_text(c->out, "/", "slice", what));
    SPW_TRY(SPW_ALLOC(from->experts, &c->routed));
    if (c->rank_end > c->rank_begin && from->has_by_rank)
        SPW_TRY(SPW_ALLOC(from->ranks * from->experts, &c->by_rank));

cleanup:
    spw_free(note);
    return status;
}

/* Which rows of the step stay. */
static spw_status choose_rows(cut *c, const spw_trace_columns *columns) {
    spw_status status = SPW_OK;
    size_t kept = 0, most = c->settings->max_tokens > 0 ? c->settings->max_tokens : SIZE_MAX;
    c->step_rows.used = 0;
    for (size_t i = 0; i < columns->tokens && kept < most; i++) {
        if (columns->source_rank != NULL &&
            (columns->source_rank[i] < c->rank_begin || columns->source_rank[i] >= c->rank_end)) {
            continue;
        }
        SPW_TRY(spw_slice_add_run(&c->step_rows, i, 1));
        kept++;
    }
    for (size_t i = 0; i < c->step_rows.used; i++) {
        const spw_slice_run *run = &c->step_rows.run[i];
        SPW_TRY(spw_slice_add_run(&c->all_rows, columns->first + run->first, run->count));
    }

cleanup:
    return status;
}

static size_t gather_columns(cut *c, const spw_trace_columns *columns) {
    size_t to = 0;
    for (size_t i = 0; i < c->step_rows.used; i++) {
        const spw_slice_run run = c->step_rows.run[i];
        for (uint64_t row = run.first; row < run.first + run.count; row++, to++) {
            if (columns->source_rank != NULL) {
                c->rows.source_rank[to] = (uint16_t)(columns->source_rank[row] - c->rank_begin);
            }
            if (columns->sequence != NULL) c->rows.sequence[to] = columns->sequence[row];
            if (columns->position != NULL) c->rows.position[to] = columns->position[row];
        }
    }
    return to;
}

static void gather_record(cut *c, const spw_trace_record *record) {
    size_t to = 0, top_k = record->top_k;
    for (size_t i = 0; i < c->step_rows.used; i++) {
        const spw_slice_run run = c->step_rows.run[i];
        for (uint64_t at = run.first * top_k; at < (run.first + run.count) * top_k; at++, to++) {
            c->rows.expert_id[to] = spw_trace_choice(record, at);
            if (record->weight != NULL) c->rows.weight[to] = record->weight[at];
        }
    }
}

static spw_status cut_tokens(cut *c, size_t at) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = spw_trace_get_info(c->in);
    spw_trace_columns columns;
    spw_trace_record record;
    SPW_TRY(spw_trace_read_columns(c->in, at, 1, &columns));
    SPW_TRY(choose_rows(c, &columns));
    SPW_TRY(spw_trace_rows_grow(&c->rows, columns.tokens, info->top_k));
    spw_trace_write_step step = {.id = info->step_id[at], .phase = info->step_phase[at], .tokens_kept = true};
    step.tokens = gather_columns(c, &columns);
    if (columns.source_rank != NULL) step.source_rank = c->rows.source_rank;
    step.sequence = c->rows.sequence;
    step.position = c->rows.position;
    SPW_TRY(spw_trace_writer_begin_step(c->out, &step));
    for (size_t layer = c->settings->layer_begin; layer < c->settings->layer_end; layer++) {
        SPW_TRY(spw_trace_read_record(c->in, at, 1, layer, true, &record));
        gather_record(c, &record);
        SPW_TRY(spw_trace_writer_put_layer(c->out, layer - c->settings->layer_begin, c->rows.expert_id,
                                           c->rows.weight));
    }
    SPW_TRY(spw_trace_writer_end_step(c->out));

cleanup:
    return status;
}

static spw_status cut_counts(cut *c, size_t at) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = spw_trace_get_info(c->in);
    const spw_trace_write_step step = {
        .id = info->step_id[at], .phase = info->step_phase[at], .tokens = info->step_tokens[at]};
    SPW_TRY(spw_trace_writer_begin_step(c->out, &step));
    for (size_t layer = c->settings->layer_begin; layer < c->settings->layer_end; layer++) {
        SPW_TRY(spw_trace_read_routed(c->in, at, layer, c->routed));
        if (c->by_rank != NULL) SPW_TRY(spw_trace_read_by_rank(c->in, at, layer, c->by_rank));
        SPW_TRY(spw_trace_writer_put_counts(c->out, layer - c->settings->layer_begin, c->routed, c->by_rank));
    }
    SPW_TRY(spw_trace_writer_end_step(c->out));

cleanup:
    return status;
}

static void free_cut(cut *c) {
    spw_trace_writer_abandon(c->out);
    spw_trace_close(c->in);
    spw_trace_rows_clear(&c->rows);
    void *owned[] = {c->step_rows.run, c->all_rows.run, c->all_steps.run, c->routed, c->by_rank};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
}

spw_status spw_trace_slice(const char *in_path, const char *out_path, const spw_slice_settings *settings) {
    spw_status status = SPW_OK;
    cut c = {.settings = settings};
    spw_progress progress = spw_progress_begin("slice", "steps", settings->steps);
    if (spw_shard_set_is(in_path))
        SPW_TRY(spw_fail(SPW_EARG, "%s: a set of shards cannot be cut; cut each of its files", in_path));
    SPW_TRY(spw_slice_rehearse_extra(in_path));
    SPW_TRY(spw_trace_open(in_path, &c.in));
    const spw_trace_info *info = spw_trace_get_info(c.in);
    SPW_TRY(check_settings(info, settings));
    c.rank_begin = settings->rank_begin;
    c.rank_end = settings->rank_end > 0 ? settings->rank_end : info->ranks;
    SPW_TRY(create_writer(&c, out_path));
    for (size_t i = 0; i < settings->steps; i++) {
        size_t at = settings->step[i];
        SPW_TRY(spw_slice_add_run(&c.all_steps, at, 1));
        SPW_TRY(spw_trace_step_has_tokens(info, at) ? cut_tokens(&c, at) : cut_counts(&c, at));
        spw_progress_update(&progress, i + 1);
    }
    status = spw_slice_copy_extra(c.in, c.out, settings, &c.all_rows, &c.all_steps);
    if (status == SPW_EIO) SPW_TRY(spw_fail_within(status, "%s, copied from %s", out_path, in_path));
    if (status != SPW_OK) SPW_TRY(spw_fail_within(status, "%s", in_path));
    status = spw_trace_writer_finish(c.out);
    c.out = NULL;

cleanup:
    spw_progress_end(&progress);
    free_cut(&c);
    return status;
}
