#include "traces/trace_shards.h"

#include "base/memory.h"
#include "traces/trace_internal.h"

#include <string.h>

struct spw_trace_shards {
    spw_shard_set set;
    size_t *first_step; /* [rows + 1] position of each range of steps */
    size_t *first_rank; /* [columns + 1] */
    spw_trace **open;   /* [columns] of the range of steps `row` */
    size_t row;         /* SIZE_MAX: none is open */
    spw_trace_buffer ids, weights, ranks, sequences, positions;
    uint32_t *counts; /* [experts] of one shard */
};

/* --- Life --- */

static void close_row(spw_trace_shards *s) {
    for (size_t c = 0; c < s->set.columns && s->open != NULL; c++) {
        spw_trace_close(s->open[c]);
        s->open[c] = NULL;
    }
    s->row = SIZE_MAX;
}

static void close_shards(spw_trace *trace) {
    spw_trace_shards *s = trace->shards;
    close_row(s);
    void *owned[] = {s->first_step,      s->first_rank,     s->open,           s->ids.data,
                     s->weights.data,    s->ranks.data,     s->sequences.data, s->positions.data,
                     s->counts,          trace->path,       trace->step_id,    trace->step_tokens,
                     trace->step_offset, trace->step_phase, trace->rank_id};
    spw_shard_set_clear(&s->set);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
    spw_free(s);
    spw_free(trace);
}

static void keep_contradictions(spw_trace *trace) {
    spw_trace_shards *s = trace->shards;
    for (size_t c = 0; c < s->set.columns && s->row != SIZE_MAX; c++)
        spw_trace_keep_contradictions(s->open[c]);
}

const spw_trace *spw_trace_shards_first(const spw_trace *trace, size_t *columns) {
    *columns = trace->shards->set.columns;
    return trace->shards->set.first;
}

static void set_window(spw_trace *trace, size_t bytes) {
    const spw_trace_shards *s = trace->shards;
    for (size_t c = 0; c < s->set.columns && s->row != SIZE_MAX; c++)
        spw_trace_set_window(s->open[c], bytes / s->set.columns);
}

static const spw_shard *shard_at(const spw_trace_shards *s, size_t row, size_t column) {
    return &s->set.shard[row * s->set.columns + column];
}

/* Counts steps and ranks; within the limits of one file. */
static spw_status lay_out(spw_trace *trace) {
    spw_trace_shards *s = trace->shards;
    size_t steps = 0, ranks = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->set.rows + 1, &s->first_step));
    SPW_TRY(SPW_ALLOC(s->set.columns + 1, &s->first_rank));
    SPW_TRY(SPW_ALLOC(s->set.columns, &s->open));
    for (size_t row = 0; row < s->set.rows; row++)
        s->first_step[row + 1] = steps += shard_at(s, row, 0)->steps;
    for (size_t c = 0; c < s->set.columns; c++) s->first_rank[c + 1] = ranks += shard_at(s, 0, c)->ranks;
    if (steps > SPW_TRACE_MAX_STEPS || ranks > SPW_TRACE_MAX_RANKS)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: %zu steps and %zu ranks together; at most %d and %d", trace->path,
                         steps, ranks, SPW_TRACE_MAX_STEPS, SPW_TRACE_MAX_RANKS));
    SPW_TRY(SPW_ALLOC(trace->info.experts, &s->counts));
    SPW_TRY(SPW_ALLOC(steps, &trace->step_id));
    SPW_TRY(SPW_ALLOC(steps, &trace->step_tokens));
    SPW_TRY(SPW_ALLOC(steps, &trace->step_phase));
    SPW_TRY(SPW_ALLOC(steps + 1, &trace->step_offset));
    SPW_TRY(SPW_ALLOC(ranks, &trace->rank_id));
    trace->info.steps = steps;
    trace->info.ranks = ranks;

cleanup:
    return status;
}

/* The steps and ranks of all shards, one after the other. */
static void join(spw_trace *trace) {
    const spw_trace_shards *s = trace->shards;
    spw_trace_info *info = &trace->info;
    for (size_t row = 0; row < s->set.rows; row++) {
        for (size_t at = s->first_step[row]; at < s->first_step[row + 1]; at++) {
            const size_t own = at - s->first_step[row];
            trace->step_id[at] = shard_at(s, row, 0)->step_id[own];
            trace->step_phase[at] = shard_at(s, row, 0)->step_phase[own];
            trace->step_offset[at + 1] = trace->step_offset[at];
            for (size_t c = 0; c < s->set.columns; c++) {
                trace->step_tokens[at] += shard_at(s, row, c)->step_tokens[own];
                trace->step_offset[at + 1] += shard_at(s, row, c)->step_rows[own];
            }
        }
    }
    for (size_t c = 0; c < s->set.columns; c++) {
        const spw_shard *shard = shard_at(s, 0, c);
        if (shard->ranks > 0)
            memcpy(trace->rank_id + s->first_rank[c], shard->rank_id, shard->ranks * sizeof *shard->rank_id);
    }
    info->step_id = trace->step_id;
    info->step_tokens = trace->step_tokens;
    info->step_phase = trace->step_phase;
    info->step_offset = info->has_tokens ? trace->step_offset : NULL;
    info->tokens = trace->step_offset[info->steps];
    info->rank_id = info->ranks > 0 ? trace->rank_id : NULL;
}

/* --- Reading --- */

static size_t row_of(const spw_trace_shards *s, size_t step) {
    size_t low = 0, high = s->set.rows;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(s->first_step[middle] <= step ? &low : &high) = middle;
    }
    return low;
}

/* Opens the shards that hold a step, and closes those of other steps. */
static spw_status open_row(spw_trace *trace, size_t row) {
    spw_trace_shards *s = trace->shards;
    spw_status status = SPW_OK;
    if (s->row == row) return SPW_OK;
    close_row(s);
    for (size_t c = 0; c < s->set.columns; c++) {
        const spw_shard *shard = shard_at(s, row, c);
        SPW_TRY(spw_trace_open_file(shard->path, s->set.first, &s->open[c]));
        const spw_trace_info *info = spw_trace_get_info(s->open[c]);
        if (info->steps != shard->steps || info->ranks != shard->ranks ||
            memcmp(info->step_tokens, shard->step_tokens, shard->steps * sizeof *shard->step_tokens) != 0)
            SPW_TRY(spw_fail(SPW_EFORMAT, "%s: has changed since it was opened first", shard->path));
        if (trace->keep_contradictions) spw_trace_keep_contradictions(s->open[c]);
        if (trace->window > 0) spw_trace_set_window(s->open[c], trace->window / s->set.columns);
    }
    s->row = row;

cleanup:
    if (status != SPW_OK) close_row(s);
    return status;
}

static spw_status make_room(spw_trace_buffer *buffer, size_t count, size_t size) {
    spw_status status = SPW_OK;
    if (count <= buffer->bytes / size && buffer->data != NULL) return SPW_OK;
    spw_free(buffer->data);
    *buffer = (spw_trace_buffer){.bytes = 0};
    status = spw_alloc(count, size, &buffer->data);
    if (status == SPW_OK) buffer->bytes = count * size;
    return status;
}

/* Columns of one step of one shard behind the tokens [at]. */
static void append_columns(const spw_trace_shards *s, size_t column, const spw_trace_columns *own, size_t at,
                           spw_trace_columns *out) {
    const uint16_t first = (uint16_t)s->first_rank[column];
    for (size_t i = 0; i < own->tokens; i++) { /* a shard of one rank need not say it of each token */
        ((uint16_t *)s->ranks.data)[at + i] =
            (uint16_t)(first + (own->source_rank != NULL ? own->source_rank[i] : 0));
    }
    if (own->sequence != NULL)
        memcpy((int32_t *)s->sequences.data + at, own->sequence, own->tokens * sizeof *own->sequence);
    if (own->position != NULL)
        memcpy((int32_t *)s->positions.data + at, own->position, own->tokens * sizeof *own->position);
    if (own->tokens > 0 && own->sequence == NULL) out->sequence = NULL;
    if (own->tokens > 0 && own->position == NULL) out->position = NULL;
    if (own->tokens > 0 && own->source_rank == NULL && s->first_rank[column + 1] != first + 1u)
        out->source_rank = NULL;
    out->flagged += own->flagged;
}

static spw_status read_columns(spw_trace *trace, size_t step, size_t steps, spw_trace_columns *out) {
    spw_trace_shards *s = trace->shards;
    const uint64_t *offset = trace->step_offset;
    spw_status status = SPW_OK;
    const size_t tokens = (size_t)(offset[step + steps] - offset[step]);
    SPW_TRY(make_room(&s->ranks, tokens, sizeof(uint16_t)));
    SPW_TRY(make_room(&s->sequences, tokens, sizeof(int32_t)));
    SPW_TRY(make_room(&s->positions, tokens, sizeof(int32_t)));
    *out = (spw_trace_columns){.first = offset[step],
                               .tokens = tokens,
                               .source_rank = trace->info.ranks > 0 ? s->ranks.data : NULL,
                               .sequence = s->sequences.data,
                               .position = s->positions.data};
    for (size_t at = step, done = 0; at < step + steps; at++) {
        const size_t row = row_of(s, at);
        SPW_TRY(open_row(trace, row));
        for (size_t c = 0; c < s->set.columns; c++) {
            spw_trace_columns own;
            SPW_TRY(spw_trace_read_columns(s->open[c], at - s->first_step[row], 1, &own));
            append_columns(s, c, &own, done, out);
            done += own.tokens;
        }
    }

cleanup:
    return status;
}

static spw_status read_record(spw_trace *trace, size_t step, size_t steps, size_t layer, bool weights,
                              spw_trace_record *out) {
    spw_trace_shards *s = trace->shards;
    const spw_trace_info *info = &trace->info;
    const size_t tokens = (size_t)(trace->step_offset[step + steps] - trace->step_offset[step]),
                 row = row_of(s, step), slot = info->top_k * info->id_bytes;
    spw_status status = SPW_OK;
    if (s->set.columns == 1 &&
        step + steps <= s->first_step[row + 1]) { /* of one shard: as it stands there */
        SPW_TRY(open_row(trace, row));
        return spw_trace_read_record(s->open[0], step - s->first_step[row], steps, layer, weights, out);
    }
    SPW_TRY(make_room(&s->ids, tokens, slot));
    if (weights && info->has_weights) SPW_TRY(make_room(&s->weights, tokens, info->top_k * sizeof(uint16_t)));
    for (size_t at = step, done = 0; at < step + steps; at++) {
        const size_t in = row_of(s, at);
        SPW_TRY(open_row(trace, in));
        for (size_t c = 0; c < s->set.columns; c++) {
            spw_trace_record own;
            SPW_TRY(spw_trace_read_record(s->open[c], at - s->first_step[in], 1, layer, weights, &own));
            if (own.tokens > 0) memcpy((char *)s->ids.data + done * slot, own.expert_id, own.tokens * slot);
            if (own.tokens > 0 && own.weight != NULL)
                memcpy((uint16_t *)s->weights.data + done * info->top_k, own.weight,
                       own.tokens * info->top_k * sizeof *own.weight);
            done += own.tokens;
        }
    }
    *out = (spw_trace_record){tokens,
                              info->top_k,
                              info->layer_experts[layer],
                              info->id_bytes,
                              info->missing,
                              s->ids.data,
                              weights && info->has_weights ? s->weights.data : NULL};

cleanup:
    return status;
}

static spw_status read_counts(spw_trace *trace, size_t step, size_t layer, bool by_rank, uint32_t *out) {
    spw_trace_shards *s = trace->shards;
    const size_t experts = trace->info.experts, row = row_of(s, step), own = step - s->first_step[row];
    spw_status status = SPW_OK;
    SPW_TRY(open_row(trace, row));
    if (!by_rank) memset(out, 0, experts * sizeof *out);
    for (size_t c = 0; c < s->set.columns; c++) {
        if (by_rank) {
            SPW_TRY(spw_trace_read_by_rank(s->open[c], own, layer, out + s->first_rank[c] * experts));
            continue;
        }
        SPW_TRY(spw_trace_read_routed(s->open[c], own, layer, s->counts));
        for (size_t x = 0; x < experts; x++) {
            if (__builtin_add_overflow(out[x], s->counts[x], &out[x])) out[x] = UINT32_MAX;
        }
    }

cleanup:
    return status;
}

static spw_status count_flagged(spw_trace *trace, uint64_t *out) {
    spw_trace_shards *s = trace->shards;
    spw_status status = SPW_OK;
    *out = 0;
    for (size_t i = 0; i < s->set.shards; i++) {
        uint64_t flagged = 0;
        SPW_TRY(open_row(trace, i / s->set.columns));
        SPW_TRY(spw_trace_count_flagged(s->open[i % s->set.columns], &flagged));
        *out += flagged;
    }

cleanup:
    return status;
}

/* --- As a trace --- */

static const spw_trace_source shards = {close_shards, keep_contradictions, set_window, count_flagged,
                                        read_columns, read_record,         read_counts};

static spw_status open_shards(const char *path, spw_trace **out) {
    spw_status status = SPW_OK;
    spw_trace *trace = NULL;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &trace));
    SPW_TRY(SPW_ALLOC(1, &trace->shards));
    trace->source = &shards;
    trace->shards->row = SIZE_MAX;
    SPW_TRY(SPW_ALLOC(strlen(path) + 1, &trace->path));
    memcpy(trace->path, path, strlen(path) + 1);
    trace->routed.path = "counts/routed", trace->by_rank.path = "counts/by_rank";
    SPW_TRY(spw_shard_set_read(path, &trace->shards->set));
    trace->info = *spw_trace_get_info(trace->shards->set.first);
    SPW_TRY(lay_out(trace));
    join(trace);
    *out = trace;
    trace = NULL;

cleanup:
    if (trace != NULL && trace->shards == NULL) {
        spw_free(trace);
        trace = NULL;
    }
    spw_trace_close(trace);
    return status;
}

spw_status spw_trace_open(const char *path, spw_trace **out) {
    return spw_shard_set_is(path) ? open_shards(path, out) : spw_trace_open_file(path, NULL, out);
}
