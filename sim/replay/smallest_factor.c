#include "sim/replay/smallest_factor.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Factors are counted in thousandths. The first replay doubles from 0.001 to 4194; the others divide what is left. */
enum { DOUBLINGS = 23, PARTS = 32 };
static const double UNIT = 0.001;

static const spw_scheme_option *factor_of(const spw_scheme *scheme) {
    const char *name = scheme->type->routing.factor;
    const spw_scheme_option *o = scheme->type->options;
    if (name == NULL) return NULL;
    while (strcmp(o->name, name) != 0) o++;
    return o;
}

spw_status spw_scheme_with_factor(const spw_scheme *scheme, double factor, spw_scheme *out, bool *has) {
    const spw_scheme_option *option = factor_of(scheme);
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
    double most;
    uint64_t fails, does;
    double fraction; /* of `does` */
} search;

/* Replays the factors unit x candidate[i], rising, and narrows the search. */
static spw_status try_all(search *s, const uint64_t *candidate, size_t count) {
    spw_scheme scheme[PARTS];
    spw_replay_request request = *s->request;
    spw_result result = {.rows = 0};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < count; i++) {
        bool has = false;
        SPW_TRY(spw_scheme_with_factor(s->scheme, UNIT * (double)candidate[i], &scheme[i], &has));
    }
    request.scheme = scheme;
    request.schemes = count;
    request.splits = 1;
    request.allocator = false;
    request.skips_lost_tokens = true;
    request.stack = NULL;
    request.time_stack = NULL;
    request.sink = (spw_replay_sink){.state = NULL};
    SPW_TRY(spw_replay_run(&request, &result));
    for (size_t i = count; i-- > 0;) {
        const spw_result_drops *d = &result.row[i].drops;
        const double fraction = d->assignments > 0 ? (double)d->dropped / (double)d->assignments : 0.0;
        if (fraction > s->most) {
            s->fails = candidate[i];
            break;
        }
        s->does = candidate[i];
        s->fraction = fraction;
    }

cleanup:
    spw_result_clear(&result);
    return status;
}

static spw_status find(search *s) {
    uint64_t candidate[PARTS];
    for (size_t i = 0; i < DOUBLINGS; i++) candidate[i] = (uint64_t)1 << i;
    spw_status status = try_all(s, candidate, DOUBLINGS);
    while (status == SPW_OK && s->does > s->fails + 1) {
        const uint64_t gap = s->does - s->fails;
        size_t count = 0;
        for (uint64_t i = 1; i <= PARTS && i < gap; i++) {
            const uint64_t value = gap <= PARTS ? s->fails + i : s->fails + gap * i / (PARTS + 1);
            if (count == 0 || value > candidate[count - 1]) candidate[count++] = value;
        }
        status = try_all(s, candidate, count);
    }
    return status;
}

spw_status spw_smallest_factors(const spw_replay_request *request, double most, spw_result *result) {
    spw_job *job = NULL;
    spw_status status = SPW_ALLOC(1, &job);
    if (status != SPW_OK) return status;
    for (size_t b = 0; b < request->job->batches; b++) {
        spw_replay_request one = *request;
        *job = *request->job;
        job->batches = 1;
        job->sequences_per_gpu[0] = request->job->sequences_per_gpu[b];
        one.job = job;
        for (size_t i = 0; i < request->schemes; i++) {
            search s = {.request = &one, .scheme = &request->scheme[i], .most = most};
            spw_factor_answer *answer = NULL;
            spw_scheme same;
            bool has = false;
            if (factor_of(s.scheme) == NULL) continue;
            SPW_TRY(find(&s));
            SPW_TRY(spw_result_append_factor(result, &answer));
            *answer = (spw_factor_answer){.sequences = job->sequences_per_gpu[0],
                                          .option = factor_of(s.scheme)->name,
                                          .most = most,
                                          .factor = UNIT * (double)s.does,
                                          .fraction = s.fraction};
            (void)snprintf(answer->scheme, sizeof answer->scheme, "%s", s.scheme->text);
            memcpy(answer->without, s.scheme->text, sizeof answer->without);
            if (spw_scheme_with_factor(s.scheme, 1.0, &same, &has) == SPW_OK)
                memcpy(answer->without, same.text, sizeof answer->without);
        }
    }

cleanup:
    spw_free(job);
    return status;
}
