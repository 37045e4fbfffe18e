#include "traces/generate/temper.h"

#include "base/memory.h"
#include "traces/generate/random_stream.h"
#include "traces/generate/temper_internal.h"

#include <stdio.h>
#include <string.h>

enum { PURPOSE_TEMPER = 11, NOTE_BYTES = 4096 };

/* --- Moving choices --- */

/* One step and layer: choices [tokens][top_k], and the rank of each token. */
typedef struct moves {
    size_t experts, top_k, tokens, ranks;
    const uint16_t *source; /* [tokens]; NULL: one rank */
    uint16_t *choice;
    uint32_t *own;          /* [ranks][experts] */
    uint64_t *all, *active; /* [experts]; [ranks] tokens with a choice */
    uint32_t *target;       /* [experts] of the rank at work */
    int64_t *over;          /* [experts] chosen more often than wanted; below 0: less */
    double *due, *rate;     /* [experts] */
    size_t *token;          /* [tokens of the rank at work] */
    size_t count;
} moves;

static size_t rank_of(const moves *m, size_t token) { return m->source != NULL ? m->source[token] : 0; }

static void count_choices(moves *m) {
    memset(m->own, 0, m->ranks * m->experts * sizeof *m->own);
    memset(m->all, 0, m->experts * sizeof *m->all);
    memset(m->active, 0, m->ranks * sizeof *m->active);
    for (size_t t = 0; t < m->tokens; t++) {
        bool any = false;
        for (size_t k = 0; k < m->top_k; k++) {
            const uint16_t x = m->choice[t * m->top_k + k];
            if (x == SPW_TRACE_MISSING) continue;
            m->own[rank_of(m, t) * m->experts + x]++;
            m->all[x]++;
            any = true;
        }
        m->active[rank_of(m, t)] += any;
    }
}

static bool has(const moves *m, size_t token, size_t expert) {
    bool found = false;
    for (size_t k = 0; k < m->top_k; k++) found = found || m->choice[token * m->top_k + k] == expert;
    return found;
}

/* The expert that lacks most of those that the token does not have; SIZE_MAX: none lacks any. */
static size_t neediest(const moves *m, size_t token) {
    size_t best = SIZE_MAX;
    for (size_t x = 0; x < m->experts; x++) {
        if (m->over[x] >= 0 || (best != SIZE_MAX && m->over[x] >= m->over[best])) continue;
        if (!has(m, token, x)) best = x;
    }
    return best;
}

static void move(moves *m, size_t token, size_t slot, size_t to) {
    uint16_t *choice = &m->choice[token * m->top_k + slot];
    m->over[*choice]--;
    m->over[to]++;
    *choice = (uint16_t)to;
}

/* Every token of the rank once; `all`: whatever is too much goes, else evenly along the tokens. Returns what was moved. */
static size_t pass(moves *m, bool all) {
    size_t moved = 0;
    for (size_t i = 0; i < m->count; i++) {
        const size_t t = m->token[i];
        for (size_t k = 0; k < m->top_k; k++) {
            const uint16_t x = m->choice[t * m->top_k + k];
            if (x == SPW_TRACE_MISSING || m->rate[x] <= 0.0) continue;
            m->due[x] += m->rate[x];
            if (m->over[x] <= 0 || (!all && m->due[x] < 1.0)) continue;
            const size_t to = neediest(m, t);
            if (to == SIZE_MAX) continue;
            m->due[x] -= 1.0;
            move(m, t, k, to);
            moved++;
        }
    }
    return moved;
}

/* A token that lacks `need` gives another expert for it, which a second token takes in place of what it has too much of. */
static bool exchange(moves *m, size_t need) {
    for (size_t i = 0; i < m->count; i++) {
        const size_t a = m->token[i];
        if (has(m, a, need)) continue;
        for (size_t k = 0; k < m->top_k; k++) {
            const uint16_t between = m->choice[a * m->top_k + k];
            if (between == SPW_TRACE_MISSING) continue;
            for (size_t j = 0; j < m->count; j++) {
                const size_t b = m->token[j];
                if (b == a || has(m, b, between)) continue;
                for (size_t l = 0; l < m->top_k; l++) {
                    const uint16_t x = m->choice[b * m->top_k + l];
                    if (x == SPW_TRACE_MISSING || m->over[x] <= 0) continue;
                    move(m, a, k, need);
                    move(m, b, l, between);
                    return true;
                }
            }
        }
    }
    return false;
}

static spw_status move_rank(moves *m, size_t rank, const spw_temper_settings *settings, size_t step,
                            size_t layer) {
    const uint32_t *own = &m->own[rank * m->experts];
    spw_random_stream stream;
    m->count = 0;
    for (size_t t = 0; t < m->tokens; t++)
        if (rank_of(m, t) == rank) m->token[m->count++] = t;
    const spw_status status =
        spw_temper_target(own, m->all, m->experts, m->active[rank], settings->exponent, m->target);
    if (status != SPW_OK) return status;
    spw_random_stream_init(&stream, settings->seed, PURPOSE_TEMPER, step, layer, rank);
    for (size_t x = 0; x < m->experts; x++) {
        m->over[x] = (int64_t)own[x] - (int64_t)m->target[x];
        m->rate[x] = m->over[x] > 0 ? (double)m->over[x] / (double)own[x] : 0.0;
        m->due[x] = (double)spw_random_below(&stream, 1 << 20) / (double)(1 << 20);
    }
    (void)pass(m, false);
    while (pass(m, true) > 0) continue;
    for (size_t x = 0; x < m->experts; x++)
        while (m->over[x] < 0 && exchange(m, x)) continue;
    return SPW_OK;
}

/* --- Files --- */

typedef struct temper {
    const spw_temper_settings *settings;
    spw_trace *in;
    spw_trace_writer *out;
    spw_trace_part part;
    bool ascending; /* the slots of a token stand in the order of their experts */
    spw_trace_rows rows;
    uint32_t *routed, *changed;
    moves moves;
} temper;

static spw_status create_writer(temper *t, const char *path) {
    char *note = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(NOTE_BYTES, &note));
    (void)snprintf(note, NOTE_BYTES, "tempered (exponent %.17g, seed %llu) of: %s", t->settings->exponent,
                   (unsigned long long)t->settings->seed, spw_trace_get_info(t->in)->note);
    t->ascending = strcmp(t->in->text[SPW_TRACE_ORDER], "ascending_id") == 0;
    SPW_TRY(spw_trace_part_create(t->in, &t->part, note, SPW_TRACE_STORED, path, &t->out));

cleanup:
    spw_free(note);
    return status;
}

static spw_status create_buffers(temper *t) {
    const spw_trace_info *info = spw_trace_get_info(t->in);
    const size_t ranks = info->ranks > 0 ? info->ranks : 1;
    moves *m = &t->moves;
    size_t cells = 0;
    spw_status status = SPW_OK;
    if (!spw_mul_size(ranks, info->experts, &cells))
        SPW_TRY(spw_fail(SPW_EARG, "%zu ranks x %zu experts overflow", ranks, info->experts));
    m->ranks = ranks;
    SPW_TRY(SPW_ALLOC(cells, &m->own));
    SPW_TRY(SPW_ALLOC(info->experts, &m->all));
    SPW_TRY(SPW_ALLOC(ranks, &m->active));
    SPW_TRY(SPW_ALLOC(info->experts, &m->target));
    SPW_TRY(SPW_ALLOC(info->experts, &m->over));
    SPW_TRY(SPW_ALLOC(info->experts, &m->due));
    SPW_TRY(SPW_ALLOC(info->experts, &m->rate));
    SPW_TRY(SPW_ALLOC(info->experts, &t->routed));
    SPW_TRY(SPW_ALLOC(cells, &t->changed));

cleanup:
    return status;
}

static spw_status grow(temper *t, size_t tokens) {
    const bool more = tokens > t->rows.capacity;
    spw_status status = SPW_OK;
    SPW_TRY(spw_trace_rows_grow(&t->rows, tokens, spw_trace_get_info(t->in)->top_k));
    if (!more) return SPW_OK;
    spw_free(t->moves.token);
    t->moves.token = NULL;
    SPW_TRY(SPW_ALLOC(tokens, &t->moves.token));

cleanup:
    return status;
}

/* A token's slots in the order of their experts, missing ones last; weights go along. */
static void sort_slots(const moves *m, uint16_t *weight) {
    for (size_t t = 0; t < m->tokens; t++) {
        uint16_t *choice = &m->choice[t * m->top_k], *beside = weight + t * m->top_k;
        for (size_t i = 1; i < m->top_k; i++)
            for (size_t k = i; k > 0 && choice[k] < choice[k - 1]; k--) {
                const uint16_t x = choice[k], w = beside[k];
                choice[k] = choice[k - 1], choice[k - 1] = x;
                beside[k] = beside[k - 1], beside[k - 1] = w;
            }
    }
}

static spw_status temper_layer(temper *t, size_t step, size_t layer) {
    moves *m = &t->moves;
    spw_trace_record record;
    spw_status status = SPW_OK;
    SPW_TRY(spw_trace_read_record(t->in, step, 1, layer, true, &record));
    for (size_t i = 0; i < record.tokens * record.top_k; i++) {
        t->rows.expert_id[i] = spw_trace_choice(&record, i);
        t->rows.weight[i] = record.weight != NULL ? record.weight[i] : 0;
    }
    m->experts = spw_trace_get_info(t->in)->experts;
    m->top_k = record.top_k;
    m->tokens = record.tokens;
    m->choice = t->rows.expert_id;
    count_choices(m);
    for (size_t rank = 0; rank < m->ranks && t->settings->exponent != 1.0; rank++)
        SPW_TRY(move_rank(m, rank, t->settings, step, layer));
    if (t->ascending) sort_slots(m, t->rows.weight);
    SPW_TRY(spw_trace_writer_put_layer(t->out, layer - t->part.layer_begin, t->rows.expert_id,
                                       record.weight != NULL ? t->rows.weight : NULL));

cleanup:
    return status;
}

static spw_status temper_tokens(temper *t, size_t at) {
    const spw_trace_info *info = spw_trace_get_info(t->in);
    spw_trace_columns columns;
    spw_trace_write_step step = {.id = info->step_id[at], .phase = info->step_phase[at], .tokens_kept = true};
    spw_status status = SPW_OK;
    SPW_TRY(spw_trace_read_columns(t->in, at, 1, &columns));
    SPW_TRY(grow(t, columns.tokens));
    for (size_t i = 0; i < columns.tokens; i++) {
        if (columns.source_rank != NULL) t->rows.source_rank[i] = columns.source_rank[i];
        if (columns.sequence != NULL) t->rows.sequence[i] = columns.sequence[i];
        if (columns.position != NULL) t->rows.position[i] = columns.position[i];
    }
    step.tokens = columns.tokens;
    step.source_rank = columns.source_rank != NULL ? t->rows.source_rank : NULL;
    step.sequence = t->rows.sequence;
    step.position = t->rows.position;
    t->moves.source = step.source_rank;
    SPW_TRY(spw_trace_writer_begin_step(t->out, &step));
    for (size_t layer = t->part.layer_begin; layer < t->part.layer_end; layer++)
        SPW_TRY(temper_layer(t, at, layer));
    SPW_TRY(spw_trace_writer_end_step(t->out));

cleanup:
    return status;
}

static spw_status temper_counts(temper *t, size_t at) {
    const spw_trace_info *info = spw_trace_get_info(t->in);
    const size_t experts = info->experts, ranks = info->has_by_rank ? info->ranks : 1;
    const spw_trace_write_step step = {
        .id = info->step_id[at], .phase = info->step_phase[at], .tokens = info->step_tokens[at]};
    moves *m = &t->moves;
    spw_status status = SPW_OK;
    SPW_TRY(spw_trace_writer_begin_step(t->out, &step));
    for (size_t layer = t->part.layer_begin; layer < t->part.layer_end; layer++) {
        SPW_TRY(spw_trace_read_routed(t->in, at, layer, t->routed));
        memcpy(m->own, t->routed, experts * sizeof *m->own);
        if (info->has_by_rank) SPW_TRY(spw_trace_read_by_rank(t->in, at, layer, m->own));
        for (size_t x = 0; x < experts; x++) m->all[x] = t->routed[x], t->routed[x] = 0;
        for (size_t r = 0; r < ranks; r++) {
            const uint32_t *own = &m->own[r * experts];
            const uint64_t tokens = info->has_by_rank
                                        ? spw_temper_fewest_tokens(own, experts, info->layer_top_k[layer])
                                        : info->step_tokens[at];
            SPW_TRY(spw_temper_target(own, m->all, experts, tokens, t->settings->exponent,
                                      &t->changed[r * experts]));
            for (size_t x = 0; x < experts; x++) t->routed[x] += t->changed[r * experts + x];
        }
        SPW_TRY(spw_trace_writer_put_counts(t->out, layer - t->part.layer_begin, t->routed,
                                            info->has_by_rank ? t->changed : NULL));
    }
    SPW_TRY(spw_trace_writer_end_step(t->out));

cleanup:
    return status;
}

static void clear(temper *t) {
    moves *m = &t->moves;
    void *const owned[] = {t->routed, t->changed, m->own, m->all,  m->active,
                           m->target, m->over,    m->due, m->rate, m->token};
    spw_trace_rows_clear(&t->rows);
    spw_trace_writer_abandon(t->out);
    spw_trace_close(t->in);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
}

spw_status spw_trace_temper(const char *in_path, const char *out_path, const spw_temper_settings *settings) {
    temper t = {.settings = settings};
    spw_status status = SPW_OK;
    if (!(settings->exponent >= 0.0 && settings->exponent <= 1e3))
        return spw_fail(SPW_EARG, "exponent %g; give 0 to 1000, 1 for the trace as it is",
                        settings->exponent);
    SPW_TRY(spw_trace_open(in_path, &t.in));
    SPW_TRY(spw_temper_part(spw_trace_get_info(t.in), settings, &t.part));
    SPW_TRY(create_writer(&t, out_path));
    SPW_TRY(create_buffers(&t));
    for (size_t at = t.part.first; at < t.part.first + t.part.steps; at++)
        SPW_TRY(spw_trace_step_has_tokens(spw_trace_get_info(t.in), at) ? temper_tokens(&t, at)
                                                                        : temper_counts(&t, at));
    status = spw_trace_writer_finish(t.out);
    t.out = NULL;

cleanup:
    clear(&t);
    return status;
}
