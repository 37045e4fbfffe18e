#include "sim/command/plan/plan_search_plans.h"

#include "base/memory.h"
#include "sim/command/plan/plan_json.h"
#include "sim/command/plan/plan_search_notes.h"
#include "sim/replay/result_answers.h"
#include "traces/trace.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 512 };

/* --- The command of one point --- */

/* Options that a point says itself, or that only a search has. */
static const struct {
    const char *name;
    bool valued;
} replaced[] = {{"search", false},           {"over", true},
                {"gpus-at-most", true},      {"tokens-per-day", true},
                {"checkpoint", true},        {"global-batch-at-most", true},
                {"global-batch", true},      {"scheme", true},
                {"sequences-per-gpu", true}, {"gpus", true},
                {"pipeline", true},          {"tensor", true},
                {"context", true},           {"expert-tensor", true},
                {"micro-batches", true},     {"expert-parallel", true},
                {"virtual-stages", true},    {"remat", true}};

/* The row of an option that is replaced, in full or as far as it tells; NULL: another word. */
static const char *replaced_by(const char *word, bool *valued) {
    const size_t length = strncmp(word, "--", 2) == 0 ? strcspn(word + 2, "=") : 0;
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced && length > 0; i++) {
        if (strncmp(replaced[i].name, word + 2, length) != 0) continue;
        *valued = replaced[i].valued && word[2 + length] == '\0';
        return replaced[i].name;
    }
    return NULL;
}

/* The words of the search without those, and the options of the point. `text` is cut into words. */
static size_t words_of(const spw_search_origin *origin, char *text, char *word[MOST_WORDS]) {
    size_t words = 0;
    char *rest = NULL;
    for (size_t i = 0; i < origin->arguments && words < MOST_WORDS; i++) {
        bool valued = false;
        if (replaced_by(origin->argument[i], &valued) == NULL) {
            word[words++] = origin->argument[i];
        } else {
            i += valued;
        }
    }
    for (char *part = strtok_r(text, " ", &rest); part != NULL && words < MOST_WORDS;
         part = strtok_r(NULL, " ", &rest))
        word[words++] = part;
    return words;
}

/* --- Its plan --- */

typedef struct point_plan {
    spw_job job;
    spw_plan_tries tries;
    char options[SPW_SEARCH_OPTIONS_TEXT];
    char *word[MOST_WORDS];
} point_plan;

static spw_status plan_point(spw_json *json, const spw_search_view *v, const spw_search_point *p,
                             spw_token_store *store, json_t *list) {
    const spw_search_request *q = v->request;
    spw_plan_request request = *q->plan;
    spw_run_settings settings = *v->origin->settings;
    spw_result result = {.rows = 0};
    point_plan *of = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &of));
    SPW_TRY(spw_search_space_job(q->space, p->value, &of->job));
    of->job.batches = 1;
    of->job.sequences_per_gpu[0] = p->sequences;
    SPW_TRY(q->open_trace(q->state, &of->job, &request.trace));
    request.job = &of->job;
    request.scheme = &q->plan->scheme[p->scheme];
    request.schemes = 1;
    request.splits = 0;
    request.store = store;
    request.brief = false;
    SPW_TRY(spw_plan_run(&request, &result));
    if (result.rows != 1)
        SPW_TRY(spw_fail(SPW_EMISMATCH, "a point that can be was refused; please report the job"));
    SPW_TRY(spw_result_answer(&result, q->drop_most));
    SPW_TRY(spw_plan_try(&request, &result, &of->tries));
    spw_run_settings_bind(&settings, &of->job, spw_trace_get_info(request.trace));
    spw_search_options_text(v, p, of->options);
    const spw_plan_view view = {.result = &result,
                                .request = &request,
                                .tries = &of->tries,
                                .settings = &settings,
                                .routing = v->origin->routing,
                                .argument = of->word,
                                .arguments = words_of(v->origin, of->options, of->word)};
    spw_json_add(json, list, spw_plan_json(json, &view));

cleanup:
    spw_result_clear(&result);
    spw_free(of);
    return status;
}

spw_status spw_search_plans(spw_json *json, const spw_search_view *v, json_t **out) {
    const spw_search_front *f = &v->outcome->front;
    const spw_search_point *point[SPW_SEARCH_PLANS] = {&f->best, &f->best_sure};
    size_t points = f->found ? 1 : 0;
    spw_status status = SPW_OK;
    json_t *list = json_array();
    spw_token_store *store = NULL;
    *out = NULL;
    SPW_TRY(spw_token_store_create(&store));
    if (f->found_sure && f->best_sure.order != f->best.order) points = 2;
    for (size_t i = 0; i < f->points && points < SPW_SEARCH_PLANS; i++) {
        bool there = false;
        for (size_t k = 0; k < points; k++) there = there || point[k]->order == f->point[i].order;
        if (!there) point[points++] = &f->point[i];
    }
    for (size_t i = 0; i < points; i++) {
        if (i > 0 && point[i]->gpus != point[i - 1]->gpus) spw_token_store_forget(store); /* another trace */
        SPW_TRY(plan_point(json, v, point[i], store, list));
    }
    *out = list;
    list = NULL;

cleanup:
    json_decref(list);
    spw_token_store_destroy(store);
    return status;
}
