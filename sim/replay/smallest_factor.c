#include "sim/replay/smallest_factor.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/schemes/selection.h"
#include "traces/generate/made_trace.h"

#include <stdio.h>
#include <string.h>

/* Factors are counted in thousandths. The first replay doubles from 0.001 to 4194; the others divide what is left. */
enum { DOUBLINGS = 23, PARTS = 32 };
static const double UNIT = 0.001;

static const spw_scheme_option *factor_of(const spw_scheme *scheme, spw_factor_kind kind) {
    const char *name = spw_scheme_factor_name(scheme, kind);
    const spw_scheme_option *o = scheme->type->options;
    if (name == NULL) return NULL;
    while (strcmp(o->name, name) != 0) o++;
    return o;
}

spw_status spw_scheme_with_factor(const spw_scheme *scheme, spw_factor_kind kind, double factor,
                                  spw_scheme *out, bool *has) {
    const spw_scheme_option *option = factor_of(scheme, kind);
    *has = option != NULL;
    if (option == NULL) return SPW_OK;
    char text[2 * SPW_SCHEME_TEXT];
    const size_t name = strcspn(scheme->text, ":");
    int used = snprintf(text, sizeof text, "%.*s:%s=%.3f", (int)name, scheme->text, option->name, factor);
    for (const char *part = scheme->text + name; *part != '\0';) {
        part++;
        const size_t length = strcspn(part, ","), key = strlen(option->name);
        if (strncmp(part, option->name, key) != 0 || part[key] != '=')
            used += snprintf(text + used, sizeof text - (size_t)used, ",%.*s", (int)length, part);
        part += length;
    }
    return spw_scheme_parse(text, out);
}

/* Of one scheme: the smallest that is known to do, and the largest that is known not to; in thousandths. */
typedef struct search {
    const spw_replay_request *request;
    const spw_scheme *scheme;
    spw_factor_kind kind;
    spw_factor_limit limit;
    uint64_t fails, does;
    uint64_t refused; /* the smallest that is known to be too large for the scheme; 0: none */
    bool replayed;    /* one has been */
    bool by_loads;    /* then: loads tell what any of them drops */
    spw_load_tally loads;
    spw_result_drops drops; /* of `does` */
} search;

/* Of a layer under one micro-batch. */
static spw_layer_shape shape_of(const search *s) {
    return spw_point_of(s->request->job, s->scheme, s->request->job->sequences_per_gpu[0]).shape;
}

static double fraction_of(const spw_result_drops *d) {
    return d->assignments > 0 ? (double)d->dropped / (double)d->assignments : 0.0;
}

/* Drops those that the scheme refuses: below the first that it takes for being too small, above for being too large. Where it
 * takes none the largest is left, for the replay to say why. */
static spw_status drop_refused(search *s, uint64_t *candidate, size_t *count, spw_scheme *scheme) {
    const spw_job *job = s->request->job;
    size_t left = 0;
    for (size_t i = 0; i < *count; i++) {
        bool has = false;
        const spw_status status =
            spw_scheme_with_factor(s->scheme, s->kind, UNIT * (double)candidate[i], &scheme[left], &has);
        if (status != SPW_OK) return status;
        const spw_point point = spw_point_of(job, &scheme[left], job->sequences_per_gpu[0]);
        const bool last = !s->replayed && left == 0 && i + 1 == *count;
        if (last || spw_scheme_check(&scheme[left], &point.shape) == SPW_OK) {
            candidate[left++] = candidate[i];
        } else if (left > 0 || (s->replayed && s->does == 0)) {
            s->refused = candidate[i];
            break;
        } else {
            s->fails = candidate[i];
        }
    }
    *count = left;
    return SPW_OK;
}

/* Of a candidate that was tried; false: it does not do. */
static bool narrow(search *s, uint64_t candidate, const spw_result_drops *d) {
    if (fraction_of(d) > s->limit.dropped || d->dropping_steps > s->limit.overflow) {
        s->fails = candidate;
        return false;
    }
    s->does = candidate;
    s->drops = *d;
    return true;
}

/* Replays such schemes for what they drop alone; tally: gets the loads of the experts, or NULL. */
static spw_status replay(const search *s, const spw_scheme *scheme, size_t count, spw_load_tally *tally,
                         spw_result *result) {
    spw_replay_request request = *s->request;
    request.scheme = scheme;
    request.schemes = count;
    request.splits = 1;
    request.allocator = false;
    request.skips_lost_tokens = true;
    request.drops_alone = true;
    request.tally = tally;
    request.stack = NULL;
    request.time_stack = NULL;
    request.megatron = NULL;
    request.sink = (spw_replay_sink){.state = NULL};
    request.judge = (spw_replay_judge){.state = NULL};
    const spw_status status = spw_replay_run(&request, result);
    if (status != SPW_OK || result->refusals == 0) return status;
    return spw_fail(SPW_ECONFIG, "scheme '%s': %s", result->refusal[0].scheme, result->refusal[0].reason);
}

/* By a replay of each. */
static spw_status try_rows(search *s, const uint64_t *candidate, const spw_scheme *scheme, size_t count) {
    spw_result result = {.rows = 0};
    spw_status status = SPW_OK;
    SPW_TRY(replay(s, scheme, count, NULL, &result));
    for (size_t i = count; i-- > 0;) {
        const spw_result_drops pages = {.dropping_steps = result.row[i].pages.overflow_steps},
                               *d = s->kind == SPW_FACTOR_PAGES ? &pages : &result.row[i].drops;
        if (!narrow(s, candidate[i], d)) break;
    }

cleanup:
    spw_result_clear(&result);
    return status;
}

/* By the loads of the experts, which one replay tells. */
static spw_status try_loads(search *s, const uint64_t *candidate, const spw_scheme *scheme, size_t count) {
    const spw_layer_shape shape = shape_of(s);
    spw_result result = {.rows = 0};
    spw_status status = SPW_OK;
    if (!s->replayed) SPW_TRY(replay(s, scheme, 1, &s->loads, &result));
    for (size_t i = count; i-- > 0;) {
        const size_t capacity = scheme[i].type->routing.expert_capacity(&scheme[i], &shape);
        const spw_capacity_drops c = spw_load_tally_drops(&s->loads, capacity);
        const spw_result_drops d = {
            .assignments = c.assignments, .dropped = c.dropped, .dropping_steps = c.dropping_steps};
        if (!narrow(s, candidate[i], &d)) break;
    }

cleanup:
    spw_result_clear(&result);
    return status;
}

/* Does a capacity say what a factor drops, so that loads tell it of all? */
static bool go_by_loads(const search *s, const spw_scheme *scheme) {
    const spw_layer_shape shape = shape_of(s);
    return s->kind == SPW_FACTOR_ROWS && s->request->imbalance == NULL &&
           spw_selection_by_counts(scheme, &shape, s->request->job->cluster.gpus_per_node, true);
}

/* Tries the factors unit x candidate[i], rising, and narrows the search. */
static spw_status try_all(search *s, uint64_t *candidate, size_t count) {
    spw_scheme scheme[PARTS];
    spw_status status = SPW_OK;
    SPW_TRY(drop_refused(s, candidate, &count, scheme));
    if (count == 0) goto cleanup;
    if (!s->replayed) s->by_loads = go_by_loads(s, scheme);
    SPW_TRY(s->by_loads ? try_loads(s, candidate, scheme, count) : try_rows(s, candidate, scheme, count));
    s->replayed = true;

cleanup:
    return status;
}

/* Of a factor that was found by loads all that it drops is not known. */
static spw_status replay_found(search *s) {
    spw_scheme scheme;
    bool has = false;
    if (!s->by_loads || s->does == 0) return SPW_OK;
    const spw_status status =
        spw_scheme_with_factor(s->scheme, s->kind, UNIT * (double)s->does, &scheme, &has);
    return status == SPW_OK ? try_rows(s, &s->does, &scheme, 1) : status;
}

static spw_status find(search *s) {
    uint64_t candidate[PARTS];
    for (size_t i = 0; i < DOUBLINGS; i++) candidate[i] = (uint64_t)1 << i;
    spw_status status = try_all(s, candidate, DOUBLINGS);
    while (status == SPW_OK) {
        const uint64_t above = s->does > 0 ? s->does : s->refused,
                       gap = above > s->fails ? above - s->fails : 0;
        if (gap <= 1) break;
        size_t count = 0;
        for (uint64_t i = 1; i <= PARTS && i < gap; i++) {
            const uint64_t value = gap <= PARTS ? s->fails + i : s->fails + gap * i / (PARTS + 1);
            if (count == 0 || value > candidate[count - 1]) candidate[count++] = value;
        }
        status = try_all(s, candidate, count);
    }
    return status == SPW_OK ? replay_found(s) : status;
}

const char *spw_scheme_factor_name(const spw_scheme *scheme, spw_factor_kind kind) {
    const char *pages = scheme->type->memory.pool_factor;
    if (kind == SPW_FACTOR_ROWS) return scheme->type->routing.factor;
    return pages != NULL && spw_scheme_option_value(scheme, pages) > 0.0 ? pages : NULL;
}

spw_status spw_smallest_factor(const spw_replay_request *request, const spw_scheme *scheme,
                               spw_factor_kind kind, spw_factor_limit limit, double *factor,
                               spw_result_drops *drops) {
    spw_replay_request shared = *request; /* generated routing is drawn once for all tries */
    search s = {.request = &shared, .scheme = scheme, .kind = kind, .limit = limit};
    spw_token_store *store = NULL;
    spw_status status = SPW_OK;
    if (shared.store == NULL && spw_trace_made_tokens(request->trace) > 0) {
        SPW_TRY(spw_token_store_create(&store));
        shared.store = store;
    }
    status = find(&s);

cleanup:
    *factor = UNIT * (double)s.does;
    *drops = s.drops;
    spw_load_tally_destroy(&s.loads);
    spw_token_store_destroy(store);
    return status;
}

static spw_status append(const spw_job *job, const spw_scheme *scheme, double most, double factor,
                         double fraction, spw_result *result) {
    spw_factor_answer *answer = NULL;
    spw_scheme same;
    bool has = false;
    spw_status status = spw_result_append_factor(result, &answer);
    if (status != SPW_OK) return status;
    *answer = (spw_factor_answer){.sequences = job->sequences_per_gpu[0],
                                  .option = spw_scheme_factor_name(scheme, SPW_FACTOR_ROWS),
                                  .most = most,
                                  .factor = factor,
                                  .fraction = fraction};
    (void)snprintf(answer->scheme, sizeof answer->scheme, "%s", scheme->text);
    memcpy(answer->without, scheme->text, sizeof answer->without);
    if (spw_scheme_with_factor(scheme, SPW_FACTOR_ROWS, 1.0, &same, &has) == SPW_OK)
        memcpy(answer->without, same.text, sizeof answer->without);
    return SPW_OK;
}

spw_replay_request spw_replay_of_batch(const spw_replay_request *request, size_t batch, spw_job *job) {
    spw_replay_request one = *request;
    *job = *request->job;
    job->batches = 1;
    job->sequences_per_gpu[0] = request->job->sequences_per_gpu[batch];
    one.job = job;
    return one;
}

spw_status spw_smallest_factors(const spw_replay_request *request, double most, spw_result *result) {
    spw_job *job = NULL;
    spw_status status = SPW_ALLOC(1, &job);
    if (status != SPW_OK) return status;
    for (size_t b = 0; b < request->job->batches; b++) {
        const spw_replay_request one = spw_replay_of_batch(request, b, job);
        for (size_t i = 0; i < request->schemes; i++) {
            const spw_factor_limit limit = {most, SIZE_MAX};
            spw_result_drops drops;
            double factor = 0.0;
            if (spw_scheme_factor_name(&request->scheme[i], SPW_FACTOR_ROWS) == NULL) continue;
            SPW_TRY(spw_smallest_factor(&one, &request->scheme[i], SPW_FACTOR_ROWS, limit, &factor, &drops));
            SPW_TRY(append(job, &request->scheme[i], most, factor, fraction_of(&drops), result));
        }
    }

cleanup:
    spw_free(job);
    return status;
}
