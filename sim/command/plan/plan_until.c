#include "sim/command/plan/plan_until.h"

#include "base/memory.h"
#include "base/temporary.h"
#include "base/text.h"
#include "sim/command/plan/plan_routing.h"
#include "sim/command/plan/plan_until_view.h"
#include "sim/job/job.h"
#include "sim/print/plural.h"
#include "sim/replay/result_answers.h"
#include "traces/generate/temper.h"
#include "traces/trace.h"

#include <math.h>
#include <string.h>

enum { ROUTING_TEXT = 512, MOST_SEEN = 4096 };

/* What one severity is in the words of users. */
typedef struct seen {
    double severity;
    spw_until_skew skew;
} seen;

/* The search at one expert-parallel size. */
typedef struct until {
    const spw_until_options *options;
    spw_plan_request plan;
    spw_until_family family;
    char routing[ROUTING_TEXT]; /* of a generated family */
    spw_severity severity;
    seen *seen; /* [seens] */
    size_t seens;
} until;

/* --- The questions --- */

static spw_status parse_question(const char *text, spw_until_line *out) {
    char *end = NULL;
    out->factor = 0.0;
    (void)snprintf(out->question, sizeof out->question, "%s", text);
    if (strcmp(text, "oom") == 0) return SPW_OK;
    if (strncmp(text, "step=", strlen("step=")) == 0)
        out->factor = spw_text_number(text + strlen("step="), &end);
    if (end == NULL || *end != '\0' || !(out->factor > 1.0 && out->factor <= 1000.0))
        return spw_fail(SPW_EARG,
                        "--until %s: write oom, or step=X with X above 1, as in step=1.1 for 10 %% longer, "
                        "or both between commas",
                        text);
    return SPW_OK;
}

static spw_status parse_questions(const char *text, spw_until_line *question, size_t *count) {
    char copy[256], *rest = NULL;
    spw_status status = SPW_OK;
    if (strlen(text) >= sizeof copy) return spw_fail(SPW_EARG, "--until: a list of over 255 characters");
    if (spw_text_has_gap(text))
        return spw_fail(SPW_EARG, "--until '%s': an empty place; write oom, step=X or both between commas",
                        text);
    (void)snprintf(copy, sizeof copy, "%s", text);
    *count = 0;
    for (char *part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        if (*count == SPW_UNTIL_QUESTIONS)
            return spw_fail(SPW_EARG, "--until %s: at most %d questions", text, (int)SPW_UNTIL_QUESTIONS);
        status = parse_question(part, &question[*count]);
        if (status != SPW_OK) return status;
        for (size_t i = 0; i < *count; i++)
            if (strcmp(question[i].question, part) == 0)
                return spw_fail(SPW_EARG, "--until %s: %s is asked twice", text, part);
        ++*count;
    }
    return *count > 0 ? SPW_OK : parse_question(text, question);
}

/* --- The routing of a severity --- */

static spw_temper_settings temper_settings(const until *u, double exponent) {
    return (spw_temper_settings){.exponent = exponent,
                                 .seed = u->plan.seed,
                                 .step_begin = u->plan.step_begin,
                                 .step_end = u->plan.step_end,
                                 .layer_begin = u->plan.layer_begin,
                                 .layer_end = u->plan.layer_end};
}

/* *path: a file that it stands in, to be removed; NULL: it is none. */
static spw_status make_trace(const until *u, double severity, char **path, spw_trace **out) {
    char text[ROUTING_TEXT] = "uniform";
    if (u->family == SPW_UNTIL_RECORDED) {
        const spw_temper_settings settings = temper_settings(u, severity);
        const spw_status status = spw_plan_temper_trace(u->options->trace_path, &settings, path);
        return status == SPW_OK ? spw_trace_open(*path, out) : status;
    }
    if (u->family == SPW_UNTIL_GENERATED) {
        const spw_status status =
            spw_distribution_at(u->routing, u->severity.key, severity, text, sizeof text);
        if (status != SPW_OK) return status;
    }
    return spw_plan_make_trace(u->plan.job, text, &u->options->extent, u->plan.seed, out);
}

static spw_status generated_skew(const until *u, size_t expert, double severity, spw_until_skew *out) {
    char text[ROUTING_TEXT];
    spw_generate_settings settings;
    double violation = 0.0;
    spw_status status = spw_distribution_at(u->routing, u->severity.key, severity, text, sizeof text);
    if (status == SPW_OK)
        status = spw_plan_routing_settings(u->plan.job, text, &u->options->extent, u->plan.seed, &settings);
    if (status == SPW_OK) status = spw_generator_skew(&settings, expert, &out->gpu, &violation);
    out->expert = violation + 1.0;
    return status;
}

/* trace: of that severity, where it is open. */
static spw_status skew_of(const until *u, double severity, spw_trace *trace, spw_until_skew *out) {
    const size_t expert = u->plan.expert[0];
    *out = (spw_until_skew){severity, severity}; /* the experts of the fullest GPU are alike */
    if (u->family == SPW_UNTIL_STATED) return SPW_OK;
    if (u->family == SPW_UNTIL_GENERATED) return generated_skew(u, expert, severity, out);
    return spw_trace_skew(trace, expert, &out->gpu, &out->expert);
}

static spw_status plan_at(void *state, double severity, spw_result *result) {
    until *u = state;
    spw_plan_request plan = u->plan;
    spw_trace *trace = NULL;
    char *made = NULL;
    seen *now = &u->seen[u->seens];
    spw_imbalance_law law = {.sizes = 0};
    spw_status status = SPW_OK;
    if (u->seens == MOST_SEEN) return spw_fail(SPW_EARG, "more than %d plans", (int)MOST_SEEN);
    if (u->family == SPW_UNTIL_STATED) {
        const spw_model *model = &plan.job->model;
        SPW_TRY(spw_imbalance_law_create(model->experts, model->top_k, plan.expert[0], severity, &law));
        plan.imbalance = &law;
    }
    SPW_TRY(make_trace(u, severity, &made, &trace));
    if (u->family == SPW_UNTIL_RECORDED) /* it holds what was chosen alone */
        plan.step_begin = plan.step_end = plan.layer_begin = plan.layer_end = 0;
    plan.trace = trace;
    SPW_TRY(spw_plan_run(&plan, result));
    now->severity = severity;
    SPW_TRY(skew_of(u, severity, trace, &now->skew));
    u->seens++;

cleanup:
    spw_imbalance_law_destroy(&law);
    spw_trace_close(trace);
    if (made != NULL) spw_temporary_remove(made);
    spw_free(made);
    return status;
}

/* Of a severity that was planned; NAN of any other. */
static spw_until_skew skew_at(const until *u, double severity) {
    for (size_t i = 0; i < u->seens; i++)
        if (u->seen[i].severity == severity) return u->seen[i].skew;
    return (spw_until_skew){NAN, NAN};
}

/* --- The family, and how far it goes at one expert-parallel size --- */

static spw_until_family family_of(const spw_until_options *options) {
    if (options->trace_path != NULL) return SPW_UNTIL_RECORDED;
    return options->routing != NULL ? SPW_UNTIL_GENERATED : SPW_UNTIL_STATED;
}

static spw_status open_family(until *u) {
    const spw_model *model = &u->plan.job->model;
    const size_t expert = u->plan.expert[0];
    if (u->family == SPW_UNTIL_STATED) {
        const double most = fmin((double)expert, (double)model->experts / (double)model->top_k);
        u->severity = (spw_severity){"imbalance", 1.0, most, NAN};
        return SPW_OK;
    }
    if (u->family == SPW_UNTIL_RECORDED) {
        const spw_temper_settings settings = temper_settings(u, 1.0);
        u->severity = (spw_severity){"exponent", 0.0, 0.0, 1.0};
        return spw_temper_most(u->options->trace_path, &settings, &u->severity.high);
    }
    (void)snprintf(u->routing, sizeof u->routing, "%.400s", u->options->routing);
    return spw_distribution_severity(u->routing, model->experts, model->top_k, &u->severity);
}

/* --- All sizes --- */

static spw_status add_line(spw_until_view *v, const until *u, const spw_until_line *question, bool once,
                           const spw_result_row *row, const spw_until_answer *answer, spw_until_skew today) {
    spw_until_line *larger = NULL, *line = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(v->lines + 1, &larger));
    if (v->lines > 0) memcpy(larger, v->line, v->lines * sizeof *larger);
    spw_free(v->line);
    v->line = larger;
    line = &v->line[v->lines++];
    *line = *question;
    memcpy(line->scheme, row->scheme.text, sizeof line->scheme);
    line->expert = row->expert;
    line->sequences = row->sequences;
    line->live = spw_point_is_live_alone(row);
    line->measured = line->live && spw_scheme_program(&row->scheme) == NULL;
    line->answer = *answer;
    line->once = once;
    line->good = skew_at(u, answer->kind == SPW_UNTIL_ALWAYS ? u->severity.low : answer->good);
    line->bad = skew_at(u, answer->bad);
    line->today = today;

cleanup:
    return status;
}

static spw_status add_refusal(spw_until_view *v, const spw_until_refusal *refusal) {
    spw_until_refusal *larger = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(v->refusals + 1, &larger));
    if (v->refusals > 0) memcpy(larger, v->refusal, v->refusals * sizeof *larger);
    spw_free(v->refusal);
    v->refusal = larger;
    v->refusal[v->refusals++] = *refusal;

cleanup:
    return status;
}

static spw_status add_refusals(spw_until_view *v, const spw_result *result) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < result->refusals && status == SPW_OK; i++) {
        const spw_refusal *r = &result->refusal[i];
        spw_until_refusal refusal = {.expert = r->expert, .sequences = r->sequences};
        memcpy(refusal.scheme, r->scheme, sizeof refusal.scheme);
        memcpy(refusal.reason, r->reason, sizeof refusal.reason);
        status = add_refusal(v, &refusal);
    }
    return status;
}

static spw_status refuse_size(spw_until_view *v, const until *u) {
    spw_until_refusal refusal = {.expert = u->plan.expert[0]};
    (void)snprintf(refusal.scheme, sizeof refusal.scheme, "every scheme");
    (void)snprintf(refusal.reason, sizeof refusal.reason, "%.200s is even in every way that can be had here",
                   u->family == SPW_UNTIL_GENERATED ? u->routing : v->routing);
    return add_refusal(v, &refusal);
}

static void describe(const until *u, spw_until_view *v) {
    const bool first = v->plans == 0 && v->lines == 0;
    if (u->family == SPW_UNTIL_STATED)
        (void)snprintf(v->routing, sizeof v->routing, "stated imbalance");
    else if (u->family == SPW_UNTIL_RECORDED)
        (void)snprintf(v->routing, sizeof v->routing, "%.500s, tempered", u->options->trace_path);
    else
        (void)snprintf(v->routing, sizeof v->routing, "%.400s", u->routing);
    (void)snprintf(v->key, sizeof v->key, "%s", u->severity.key);
    v->low = first ? u->severity.low : fmin(v->low, u->severity.low);
    v->high = first ? u->severity.high : fmax(v->high, u->severity.high);
    v->today = u->severity.given;
}

/* Lines of this size, behind those of the sizes before, question by question. */
static spw_status search_size(until *u, const spw_until_line *question, size_t questions, spw_until_view *v) {
    double factor[SPW_UNTIL_QUESTIONS];
    spw_until_outcome outcome = {.plans = 0};
    spw_until_skew today;
    spw_status status = SPW_OK;
    SPW_TRY(open_family(u));
    describe(u, v);
    const bool flat = !(u->severity.high > u->severity.low);
    if (flat && u->family != SPW_UNTIL_STATED)
        return refuse_size(v, u); /* EP 1 is even, and can be planned */
    for (size_t i = 0; i < questions; i++) factor[i] = question[i].factor;
    const spw_until_request request = {.plan = plan_at,
                                       .state = u,
                                       .low = u->severity.low,
                                       .high = u->severity.high,
                                       .today = u->severity.given,
                                       .factor = factor,
                                       .questions = questions};
    SPW_TRY(spw_until_find(&request, &outcome));
    today = skew_at(u, u->severity.given);
    if (v->lines == 0 && outcome.first.rows > 0) v->outside = outcome.first.row[0].outside_fit;
    for (size_t i = 0; i < questions * outcome.first.rows; i++)
        SPW_TRY(add_line(v, u, &question[i / outcome.first.rows], outcome.once,
                         &outcome.first.row[i % outcome.first.rows], &outcome.answer[i], today));
    SPW_TRY(add_refusals(v, &outcome.first));
    v->once = outcome.once && (v->once || v->plans == 0);
    v->plans += outcome.plans;

cleanup:
    spw_until_clear(&outcome);
    return status;
}

spw_status spw_plan_until(const spw_until_options *options, const spw_plan_request *plan, spw_format format,
                          FILE *out) {
    spw_until_line question[SPW_UNTIL_QUESTIONS] = {{.factor = 0.0}};
    until u = {.options = options, .family = family_of(options)};
    spw_until_view v = {.plan = plan, .family = u.family, .today = NAN};
    const size_t sizes = plan->splits > 0 ? plan->splits : 1;
    spw_status status = SPW_OK;
    SPW_TRY(parse_questions(options->until, question, &v.questions));
    SPW_TRY(SPW_ALLOC(MOST_SEEN, &u.seen));
    for (size_t i = 0; i < sizes; i++) {
        u.plan = *plan;
        u.plan.splits = 1;
        u.plan.expert[0] = plan->splits > 0 ? plan->expert[i] : plan->job->expert;
        u.seens = 0;
        SPW_TRY(search_size(&u, question, v.questions, &v));
    }
    if (v.lines == 0)
        SPW_TRY(spw_fail(SPW_ECONFIG, "no point of this plan can be: EP %zu: %s", v.refusal[0].expert,
                         v.refusal[0].reason));
    SPW_TRY(spw_plan_until_print(&v, format, out));

cleanup:
    spw_free(u.seen);
    spw_free(v.line);
    spw_free(v.refusal);
    return status;
}
