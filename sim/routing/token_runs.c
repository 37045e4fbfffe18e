#include "sim/routing/token_runs.h"

#include "base/memory.h"
#include "sim/routing/counts.h"
#include "traces/generate/made_trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int compare_runs(const void *left, const void *right) {
    const spw_token_run *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->sequence != b->sequence) return a->sequence < b->sequence ? -1 : 1;
    if (a->position != b->position) return a->position < b->position ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

static spw_status add_run(spw_token_runs *r, spw_token_run run) {
    if (r->runs == r->run_capacity) {
        spw_token_run *larger = NULL;
        size_t capacity = r->runs == 0 ? 256 : r->runs * 2;
        spw_status status = SPW_ALLOC(capacity, &larger);
        if (status != SPW_OK) return status;
        if (r->runs > 0) memcpy(larger, r->run, r->runs * sizeof *larger);
        spw_free(r->run);
        r->run = larger;
        r->run_capacity = capacity;
    }
    r->run[r->runs++] = run;
    return SPW_OK;
}

/* Of generated routing every source rank has one run a step, which is a sequence. */
static spw_status read_even(spw_token_runs *r, size_t ranks, size_t step, size_t tokens) {
    spw_status status = SPW_OK;
    r->runs = r->flagged = 0;
    r->repeated = false;
    for (size_t rank = 0; rank < ranks && status == SPW_OK; rank++)
        status = add_run(r, (spw_token_run){.rank = (uint32_t)rank,
                                            .sequence = (int32_t)(step * ranks + rank),
                                            .first = (uint64_t)rank * tokens,
                                            .tokens = tokens});
    return status;
}

spw_status spw_token_runs_read(spw_token_runs *r, spw_trace *trace, size_t begin, size_t end) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_trace_columns columns;
    const size_t made = spw_trace_made_tokens(trace);
    size_t trace_step = begin;
    if (made > 0 && end == begin + 1) return read_even(r, info->ranks, begin, made);
    spw_status status = spw_trace_read_columns(trace, begin, end - begin, &columns);
    if (status != SPW_OK) return status;
    r->runs = 0;
    r->flagged = columns.flagged;
    for (uint64_t t = 0; t < columns.tokens; t++) {
        while (columns.first + t >= info->step_offset[trace_step + 1]) trace_step++;
        uint32_t rank = columns.source_rank != NULL ? columns.source_rank[t] : 0;
        int32_t sequence = columns.sequence != NULL ? columns.sequence[t] : (int32_t)(trace_step - begin);
        int64_t position =
            columns.sequence != NULL && columns.position != NULL ? columns.position[t] : (int64_t)t;
        spw_token_run *last = r->runs > 0 ? &r->run[r->runs - 1] : NULL;
        if (last != NULL && last->rank == rank && last->sequence == sequence &&
            last->position + (int64_t)last->tokens == position) {
            last->tokens++;
        } else {
            status = add_run(r, (spw_token_run){rank, sequence, position, t, 1});
            if (status != SPW_OK) return status;
        }
    }
    qsort(r->run, r->runs, sizeof *r->run, compare_runs);
    r->repeated = false;
    for (size_t i = 1; i < r->runs; i++) {
        const spw_token_run *a = &r->run[i - 1], *b = &r->run[i];
        r->repeated |= a->rank == b->rank && a->sequence == b->sequence &&
                       a->position + (int64_t)a->tokens > b->position;
    }
    return r->runs > 0
               ? SPW_OK
               : spw_fail(SPW_EFORMAT, "step %" PRId64 " of the trace has no tokens", info->step_id[begin]);
}

spw_status spw_token_runs_take(const spw_token_runs *r, size_t begin, size_t end, size_t want, size_t length,
                               size_t rank, spw_layout *out) {
    size_t taken = 0;
    for (size_t i = begin; i < end && taken < want; i++) {
        for (uint64_t used = 0; used < r->run[i].tokens && taken < want;) {
            size_t room = length - taken % length;
            uint64_t left = r->run[i].tokens - used;
            size_t part = left < room ? (size_t)left : room;
            spw_segment segment = {r->run[i].first + used, (uint32_t)part, (uint32_t)(taken / length)};
            spw_status status = spw_layout_put(out, rank, segment);
            if (status != SPW_OK) return status;
            used += part;
            taken += part;
        }
    }
    return SPW_OK;
}

size_t spw_token_runs_first(const spw_token_runs *r, uint64_t rank) {
    size_t low = 0, high = r->runs;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->run[middle].rank < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint64_t spw_token_runs_tokens(const spw_token_runs *r, size_t begin, size_t end) {
    uint64_t tokens = 0;
    for (size_t i = begin; i < end; i++) tokens += r->run[i].tokens;
    return tokens;
}

bool spw_token_runs_have_length(const spw_token_runs *r, size_t length) {
    uint64_t tokens = 0;
    for (size_t i = 0; i < r->runs; i++) {
        const spw_token_run *run = &r->run[i], *next = i + 1 < r->runs ? run + 1 : NULL;
        tokens += run->tokens;
        if (next != NULL && next->rank == run->rank && next->sequence == run->sequence) continue;
        if (tokens != length) return false;
        tokens = 0;
    }
    return true;
}

spw_status spw_token_runs_take_part(const spw_token_runs *r, size_t begin, const spw_token_place *p,
                                    spw_layout *out) {
    uint64_t skip = p->offset, left = p->tokens;
    spw_status status = SPW_OK;
    for (size_t i = begin; i < r->runs && left > 0 && status == SPW_OK; i++) {
        const spw_token_run *run = &r->run[i];
        const uint64_t passed = skip < run->tokens ? skip : run->tokens, there = run->tokens - passed,
                       part = there < left ? there : left;
        skip -= passed;
        left -= part;
        if (part > 0)
            status = spw_layout_put(
                out, p->rank, (spw_segment){run->first + passed, (uint32_t)part, (uint32_t)p->sequence});
    }
    return status;
}

static bool same_sequence(const spw_token_run *a, const spw_token_run *b) {
    return a->rank == b->rank && a->sequence == b->sequence;
}

spw_status spw_token_runs_cut(spw_token_runs *r, size_t length) {
    const size_t whole = r->runs;
    spw_token_run *const run = r->run;
    uint64_t filled = 0; /* of the piece under way */
    spw_status status = SPW_OK;
    r->run = NULL;
    r->runs = r->run_capacity = r->pieces = 0;
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && !same_sequence(&run[i], &run[i - 1])) filled = 0;
        for (uint64_t used = 0; used < run[i].tokens;) {
            spw_token_run part = run[i];
            const uint64_t left = part.tokens - used, room = length - filled;
            part.first += used;
            part.position += (int64_t)used;
            part.tokens = left < room ? left : room;
            SPW_TRY(add_run(r, part));
            used += part.tokens;
            filled = (filled + part.tokens) % length;
        }
    }
    spw_free(r->piece);
    SPW_TRY(SPW_ALLOC(r->runs + 1, &r->piece));
    filled = 0;
    for (size_t i = 0; i < r->runs; i++) {
        if (i > 0 && !same_sequence(&r->run[i], &r->run[i - 1])) filled = 0;
        if (filled == 0) r->piece[r->pieces++] = i;
        filled = (filled + r->run[i].tokens) % length;
    }
    r->piece[r->pieces] = r->runs;

cleanup:
    spw_free(run);
    return status;
}

spw_status spw_token_runs_take_piece(const spw_token_runs *r, size_t index, size_t room, size_t rank,
                                     size_t sequence, spw_layout *out, size_t *taken) {
    spw_status status = SPW_OK;
    *taken = 0;
    for (size_t i = r->piece[index]; i < r->piece[index + 1] && *taken < room && status == SPW_OK; i++) {
        const spw_token_run *run = &r->run[i];
        const size_t part = run->tokens < room - *taken ? (size_t)run->tokens : room - *taken;
        status = spw_layout_put(out, rank, (spw_segment){run->first, (uint32_t)part, (uint32_t)sequence});
        *taken += part;
    }
    return status;
}

void spw_token_runs_clear(spw_token_runs *r) {
    spw_free(r->run);
    spw_free(r->piece);
    *r = (spw_token_runs){.runs = 0};
}
