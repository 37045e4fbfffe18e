#include "traces/temper.h"

#include "base/memory.h"
#include "traces/random_stream.h"
#include "traces/trace_internal.h"
#include "traces/trace_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PURPOSE_TEMPER = 11, NOTE_BYTES = 4096 };
static const double MOST_EXPONENT = 64.0, MOST_SHARE = 0.9;

/* --- What a rank is to choose --- */

typedef struct wish {
    double weight, value;
    size_t expert;
} wish;

static int heaviest_first(const void *a, const void *b) {
    const wish *x = a, *y = b;
    if (x->weight > y->weight || x->weight < y->weight) return x->weight > y->weight ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

static int largest_rest_first(const void *a, const void *b) {
    const wish *x = a, *y = b;
    const double rest_x = x->value - floor(x->value), rest_y = y->value - floor(y->value);
    if (rest_x > rest_y || rest_x < rest_y) return rest_x > rest_y ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

/* value = min(tokens, c weight), in the order of heaviest_first(). */
static void share_out(wish *list, size_t count, double total, double tokens) {
    double rest = 0.0;
    size_t full = 0;
    for (size_t i = count; i > 0; i--) rest += list[i - 1].weight; /* the smallest first */
    while (full < count && total - (double)full * tokens > 0.0 &&
           (total - (double)full * tokens) * list[full].weight > tokens * rest) {
        list[full].value = tokens;
        rest -= list[full++].weight;
        if (!(rest > 0.0) && full < count) { /* cancelled */
            rest = 0.0;
            for (size_t i = count; i > full; i--) rest += list[i - 1].weight;
        }
    }
    for (size_t i = full; i < count; i++)
        list[i].value = fmin(tokens, (total - (double)full * tokens) * (list[i].weight / rest));
}

/* Whole numbers that sum to total. */
static void round_off(wish *list, size_t count, uint64_t total, uint64_t tokens, uint32_t *out) {
    static const double ROUNDING = 1e-9;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        list[i].value += ROUNDING * fmax(1.0, list[i].value);
        out[list[i].expert] = (uint32_t)fmin(floor(list[i].value), (double)tokens);
        sum += out[list[i].expert];
    }
    qsort(list, count, sizeof *list, largest_rest_first);
    while (sum != total) {
        const bool more = sum < total;
        for (size_t n = 0; n < count && sum != total; n++) {
            uint32_t *m = &out[list[more ? n : count - 1 - n].expert];
            if (more ? *m >= tokens : *m == 0) continue;
            *m = more ? *m + 1 : *m - 1;
            sum = more ? sum + 1 : sum - 1;
        }
    }
}

spw_status spw_temper_target(const uint32_t *own, const uint64_t *all, size_t experts, uint64_t tokens,
                             double exponent, uint32_t *out) {
    static const double LEAST_LOG = -600.0; /* of a weight: below it nothing is chosen but in need */
    spw_status status = SPW_OK;
    wish *list = NULL;
    uint64_t most = 0, total = 0;
    size_t count = 0;
    SPW_TRY(SPW_ALLOC(experts, &list));
    for (size_t x = 0; x < experts; x++) {
        most = all[x] > most ? all[x] : most;
        total += own[x];
        if (own[x] > tokens)
            SPW_TRY(spw_fail(SPW_EARG, "expert %zu is chosen %u times by %llu tokens", x, own[x],
                             (unsigned long long)tokens));
    }
    for (size_t x = 0; x < experts; x++) {
        out[x] = 0;
        if (own[x] == 0) continue;
        const double power = (exponent - 1.0) * log((double)all[x] / (double)most);
        list[count++] = (wish){.weight = (double)own[x] * exp(fmax(power, LEAST_LOG)), .expert = x};
    }
    qsort(list, count, sizeof *list, heaviest_first);
    share_out(list, count, (double)total, (double)tokens);
    round_off(list, count, total, tokens, out);

cleanup:
    spw_free(list);
    return status;
}

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
    size_t step_begin, step_end, layer_begin, layer_end;
    bool ascending; /* the slots of a token stand in the order of their experts */
    size_t capacity;
    uint16_t *choice, *weight;
    uint32_t *routed, *by_rank, *changed;
    uint16_t *source;
    int32_t *sequence, *position;
    moves moves;
} temper;

static spw_status choose(const spw_trace_info *info, const spw_temper_settings *s, temper *t) {
    t->step_begin = s->step_begin, t->step_end = s->step_end > 0 ? s->step_end : info->steps;
    t->layer_begin = s->layer_begin, t->layer_end = s->layer_end > 0 ? s->layer_end : info->layers;
    if (t->step_begin >= t->step_end || t->step_end > info->steps)
        return spw_fail(SPW_EARG, "steps %zu:%zu; the trace has %zu", t->step_begin, t->step_end,
                        info->steps);
    if (t->layer_begin >= t->layer_end || t->layer_end > info->layers)
        return spw_fail(SPW_EARG, "layers %zu:%zu; the trace has %zu", t->layer_begin, t->layer_end,
                        info->layers);
    return SPW_OK;
}

static bool step_has_tokens(const spw_trace_info *info, size_t at) {
    return info->has_tokens &&
           (info->step_offset[at + 1] > info->step_offset[at] || info->step_tokens[at] == 0);
}

static spw_status create_writer(temper *t, const char *path) {
    const spw_trace_info *from = spw_trace_get_info(t->in);
    const char *order = t->in->text[SPW_TRACE_ORDER];
    spw_trace_info info = *from;
    char *note = NULL;
    uint64_t tokens = 0;
    bool any_tokens = false, all_tokens = true;
    spw_status status = SPW_OK;
    for (size_t i = t->step_begin; i < t->step_end; i++) {
        any_tokens = any_tokens || step_has_tokens(from, i);
        all_tokens = all_tokens && step_has_tokens(from, i);
        tokens += from->step_tokens[i];
    }
    info.layers = t->layer_end - t->layer_begin;
    info.layer_id += t->layer_begin;
    info.layer_experts += t->layer_begin;
    info.layer_top_k += t->layer_begin;
    info.has_tokens = any_tokens;
    info.has_sequences = from->has_sequences && t->in->position.id >= 0;
    info.has_by_rank = info.ranks > 0 && (from->has_by_rank || all_tokens);
    SPW_TRY(SPW_ALLOC(NOTE_BYTES, &note));
    (void)snprintf(note, NOTE_BYTES, "tempered (exponent %.17g, seed %llu) of: %s", t->settings->exponent,
                   (unsigned long long)t->settings->seed, from->note);
    info.note = note;
    t->ascending = strcmp(order, "ascending_id") == 0;
    const spw_trace_write_settings write = {
        .info = &info, .order = order[0] != '\0' ? order : NULL, .tokens = tokens, .level = SPW_TRACE_STORED};
    SPW_TRY(spw_trace_writer_create(path, &write, &t->out));

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
    SPW_TRY(SPW_ALLOC(cells, &t->by_rank));
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
    const size_t top_k = spw_trace_get_info(t->in)->top_k;
    void **const buffers[] = {(void **)&t->source, (void **)&t->sequence, (void **)&t->position,
                              (void **)&t->choice, (void **)&t->weight,   (void **)&t->moves.token};
    const size_t sizes[] = {2, 4, 4, 2 * top_k, 2 * top_k, sizeof(size_t)};
    spw_status status = SPW_OK;
    if (tokens <= t->capacity) return SPW_OK;
    t->capacity = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        spw_free(*buffers[i]);
        *buffers[i] = NULL;
        SPW_TRY(spw_alloc(tokens, sizes[i], buffers[i]));
    }
    t->capacity = tokens;

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
    const uint8_t *narrow = record.expert_id;
    const uint16_t *wide = record.expert_id;
    for (size_t i = 0; i < record.tokens * record.top_k; i++) {
        const uint16_t id = record.id_bytes == 1 ? narrow[i] : wide[i];
        t->choice[i] = id == record.missing ? SPW_TRACE_MISSING : id;
        t->weight[i] = record.weight != NULL ? record.weight[i] : 0;
    }
    m->experts = spw_trace_get_info(t->in)->experts;
    m->top_k = record.top_k;
    m->tokens = record.tokens;
    m->choice = t->choice;
    count_choices(m);
    for (size_t rank = 0; rank < m->ranks && t->settings->exponent != 1.0; rank++)
        SPW_TRY(move_rank(m, rank, t->settings, step, layer));
    if (t->ascending) sort_slots(m, t->weight);
    SPW_TRY(spw_trace_writer_put_layer(t->out, layer - t->layer_begin, t->choice,
                                       record.weight != NULL ? t->weight : NULL));

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
        if (columns.source_rank != NULL) t->source[i] = columns.source_rank[i];
        if (columns.sequence != NULL) t->sequence[i] = columns.sequence[i];
        if (columns.position != NULL) t->position[i] = columns.position[i];
    }
    step.tokens = columns.tokens;
    step.source_rank = columns.source_rank != NULL ? t->source : NULL;
    step.sequence = t->sequence;
    step.position = t->position;
    t->moves.source = step.source_rank;
    SPW_TRY(spw_trace_writer_begin_step(t->out, &step));
    for (size_t layer = t->layer_begin; layer < t->layer_end; layer++) SPW_TRY(temper_layer(t, at, layer));
    SPW_TRY(spw_trace_writer_end_step(t->out));

cleanup:
    return status;
}

/* As few tokens as can have made these choices. */
static uint64_t fewest_tokens(const uint32_t *own, size_t experts, size_t top_k) {
    uint64_t sum = 0, most = 0;
    for (size_t x = 0; x < experts; x++) {
        sum += own[x];
        most = own[x] > most ? own[x] : most;
    }
    const uint64_t tokens = (sum + top_k - 1) / top_k;
    return tokens > most ? tokens : most;
}

static spw_status temper_counts(temper *t, size_t at) {
    const spw_trace_info *info = spw_trace_get_info(t->in);
    const size_t experts = info->experts, ranks = info->has_by_rank ? info->ranks : 1;
    const spw_trace_write_step step = {
        .id = info->step_id[at], .phase = info->step_phase[at], .tokens = info->step_tokens[at]};
    moves *m = &t->moves;
    spw_status status = SPW_OK;
    SPW_TRY(spw_trace_writer_begin_step(t->out, &step));
    for (size_t layer = t->layer_begin; layer < t->layer_end; layer++) {
        SPW_TRY(spw_trace_read_routed(t->in, at, layer, t->routed));
        memcpy(m->own, t->routed, experts * sizeof *m->own);
        if (info->has_by_rank) SPW_TRY(spw_trace_read_by_rank(t->in, at, layer, m->own));
        for (size_t x = 0; x < experts; x++) m->all[x] = t->routed[x], t->routed[x] = 0;
        for (size_t r = 0; r < ranks; r++) {
            const uint32_t *own = &m->own[r * experts];
            const uint64_t tokens = info->has_by_rank ? fewest_tokens(own, experts, info->layer_top_k[layer])
                                                      : info->step_tokens[at];
            SPW_TRY(spw_temper_target(own, m->all, experts, tokens, t->settings->exponent,
                                      &t->changed[r * experts]));
            for (size_t x = 0; x < experts; x++) t->routed[x] += t->changed[r * experts + x];
        }
        SPW_TRY(spw_trace_writer_put_counts(t->out, layer - t->layer_begin, t->routed,
                                            info->has_by_rank ? t->changed : NULL));
    }
    SPW_TRY(spw_trace_writer_end_step(t->out));

cleanup:
    return status;
}

static void clear(temper *t) {
    moves *m = &t->moves;
    void *const owned[] = {t->choice,   t->weight,   t->routed, t->by_rank, t->changed, t->source,
                           t->sequence, t->position, m->own,    m->all,     m->active,  m->target,
                           m->over,     m->due,      m->rate,   m->token};
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
    SPW_TRY(choose(spw_trace_get_info(t.in), settings, &t));
    SPW_TRY(create_writer(&t, out_path));
    SPW_TRY(create_buffers(&t));
    for (size_t at = t.step_begin; at < t.step_end; at++)
        SPW_TRY(step_has_tokens(spw_trace_get_info(t.in), at) ? temper_tokens(&t, at)
                                                              : temper_counts(&t, at));
    status = spw_trace_writer_finish(t.out);
    t.out = NULL;

cleanup:
    clear(&t);
    return status;
}

/* --- Loads --- */

/* Histogram of a step and layer; out [experts]. */
static spw_status read_loads(spw_trace *trace, size_t step, size_t layer, uint32_t *out) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_trace_record record;
    if (info->has_routed) return spw_trace_read_routed(trace, step, layer, out);
    const spw_status status = spw_trace_read_record(trace, step, 1, layer, false, &record);
    if (status != SPW_OK) return status;
    memset(out, 0, info->experts * sizeof *out);
    for (size_t i = 0; i < record.tokens * record.top_k; i++) {
        const uint16_t id = record.id_bytes == 1 ? ((const uint8_t *)record.expert_id)[i]
                                                 : ((const uint16_t *)record.expert_id)[i];
        if (id != record.missing) out[id]++;
    }
    return SPW_OK;
}

static int largest_first(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

/* The share of the choices that the top_k hottest experts have at this exponent, summed over steps and layers that have any. */
static spw_status hottest_share(const temper *t, double exponent, double *sum, size_t *records) {
    const spw_trace_info *info = spw_trace_get_info(t->in);
    spw_status status = SPW_OK;
    uint32_t *own = NULL, *target = NULL;
    uint64_t *all = NULL;
    *sum = 0.0, *records = 0;
    SPW_TRY(SPW_ALLOC(info->experts, &own));
    SPW_TRY(SPW_ALLOC(info->experts, &target));
    SPW_TRY(SPW_ALLOC(info->experts, &all));
    for (size_t step = t->step_begin; step < t->step_end; step++) {
        for (size_t layer = t->layer_begin; layer < t->layer_end; layer++) {
            const size_t top_k = info->layer_top_k[layer];
            uint64_t total = 0, hot = 0;
            SPW_TRY(read_loads(t->in, step, layer, own));
            for (size_t x = 0; x < info->experts; x++) all[x] = own[x], total += own[x];
            if (total == 0) continue;
            SPW_TRY(spw_temper_target(own, all, info->experts, fewest_tokens(own, info->experts, top_k),
                                      exponent, target));
            qsort(target, info->experts, sizeof *target, largest_first);
            for (size_t x = 0; x < top_k && x < info->experts; x++) hot += target[x];
            *sum += (double)hot / (double)total;
            ++*records;
        }
    }

cleanup:
    spw_free(own);
    spw_free(target);
    spw_free(all);
    return status;
}

spw_status spw_temper_most(const char *path, const spw_temper_settings *settings, double *out) {
    temper t = {.settings = settings};
    spw_status status = SPW_OK;
    double sum = 0.0;
    size_t records = 0;
    SPW_TRY(spw_trace_open(path, &t.in));
    SPW_TRY(choose(spw_trace_get_info(t.in), settings, &t));
    for (*out = 2.0; *out < MOST_EXPONENT; *out *= 2.0) {
        SPW_TRY(hottest_share(&t, *out, &sum, &records));
        if (sum >= MOST_SHARE * (double)records) break;
    }

cleanup:
    spw_trace_close(t.in);
    return status;
}

spw_status spw_trace_skew(spw_trace *trace, size_t ranks, double *part, double *expert) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    uint32_t *loads = NULL;
    bool divides = true;
    spw_status status = SPW_OK;
    *part = *expert = 0.0;
    SPW_TRY(SPW_ALLOC(info->experts, &loads));
    for (size_t step = 0; step < info->steps; step++) {
        for (size_t layer = 0; layer < info->layers; layer++) {
            const size_t experts = info->layer_experts[layer], local = ranks > 0 ? experts / ranks : 0;
            double total = 0.0, held = 0.0;
            SPW_TRY(read_loads(trace, step, layer, loads));
            for (size_t x = 0; x < experts; x++) total += loads[x];
            if (!(total > 0.0)) continue;
            for (size_t x = 0; x < experts; x++) {
                held = local > 0 && x % local == 0 ? loads[x] : held + loads[x];
                *expert = fmax(*expert, loads[x] * (double)experts / total);
                if (local > 0) *part = fmax(*part, held * (double)ranks / total);
            }
            divides = divides && local > 0 && local * ranks == experts;
        }
    }

    if (!divides) *part = NAN;

cleanup:
    spw_free(loads);
    return status;
}
