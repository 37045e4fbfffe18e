#include "sim/command/plan_until.h"

#include "base/memory.h"
#include "base/temporary.h"
#include "base/text.h"
#include "sim/command/plan_routing.h"
#include "sim/print/plural.h"
#include "sim/replay/result_answers.h"
#include "sim/replay/result_print.h"
#include "sim/replay/until.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { ROUTING_TEXT = 512 };

typedef struct until {
    const spw_until_options *options;
    const spw_plan_request *plan;
    spw_severity severity;
    double factor; /* 0: until memory runs out */
} until;

static spw_status parse_until(const char *text, double *factor) {
    char *end = NULL;
    *factor = 0.0;
    if (strcmp(text, "oom") == 0) return SPW_OK;
    if (strncmp(text, "step=", strlen("step=")) == 0) *factor = spw_text_number(text + strlen("step="), &end);
    if (end == NULL || *end != '\0' || !(*factor > 1.0 && *factor <= 1000.0))
        return spw_fail(SPW_EARG,
                        "--until %s: write oom, or step=X with X above 1, as in step=1.1 for 10 %% longer",
                        text);
    return SPW_OK;
}

/* The smallest expert-parallel size of the plan. */
static size_t fewest_ranks(const spw_plan_request *plan) {
    size_t fewest = plan->splits > 0 ? plan->expert[0] : plan->job->expert;
    for (size_t i = 0; i < plan->splits; i++) fewest = plan->expert[i] < fewest ? plan->expert[i] : fewest;
    return fewest;
}

static void routing_text(const until *u, double severity, char out[ROUTING_TEXT]) {
    const char *family = u->options->routing;
    (void)snprintf(out, ROUTING_TEXT, "%.400s%c%s=%.17g", family, strchr(family, ':') != NULL ? ',' : ':',
                   u->severity.key, severity);
}

static spw_status plan_at(void *state, double severity, spw_result *result) {
    const until *u = state;
    spw_plan_request plan = *u->plan;
    spw_trace *trace = NULL;
    char text[ROUTING_TEXT] = "uniform", *made = NULL;
    spw_status status = SPW_OK;
    if (u->options->routing == NULL) {
        plan.imbalance = severity;
    } else {
        routing_text(u, severity, text);
    }
    SPW_TRY(spw_plan_make_trace(plan.job, text, u->options->routing_steps, plan.seed, &made));
    SPW_TRY(spw_trace_open(made, &trace));
    plan.trace = trace;
    SPW_TRY(spw_plan_run(&plan, result));

cleanup:
    spw_trace_close(trace);
    if (made != NULL) spw_temporary_remove(made);
    spw_free(made);
    return status;
}

static const double ROUNDING = 1e-9; /* of a violation that is 0 */

/* What the routing is at a severity, in the words of users: max/mean of the GPUs of a group, and MaxVio. */
static spw_status skew_at(const until *u, size_t expert, double severity, double *max_over_mean,
                          double *violation) {
    char text[ROUTING_TEXT];
    spw_generate_settings settings;
    *max_over_mean = severity;
    *violation = severity - 1.0; /* the experts of the fullest rank are alike */
    if (u->options->routing == NULL) return SPW_OK;
    routing_text(u, severity, text);
    const spw_status status =
        spw_plan_routing_settings(u->plan->job, text, u->options->routing_steps, u->plan->seed, &settings);
    if (status != SPW_OK) return status;
    const spw_status measured = spw_generator_skew(&settings, expert, max_over_mean, violation);
    if (fabs(*violation) < ROUNDING) *violation = 0.0;
    return measured;
}

/* --- In words --- */

static const char *family_of(const until *u) {
    return u->options->routing != NULL ? u->options->routing : "stated imbalance";
}

static void print_value(const until *u, double value, FILE *out) {
    if (u->factor > 0.0)
        fprintf(out, "%.3f times its balanced step", value);
    else
        fprintf(out, "%.1f GiB", value / GIB);
}

/* "imbalance 1.83: the fullest GPU gets 1.83 times the mean, MaxVio 0.83; 130.2 GiB" */
static spw_status print_at(const until *u, size_t expert, double severity, double value, FILE *out) {
    double ratio = 0.0, violation = 0.0;
    const spw_status status = skew_at(u, expert, severity, &ratio, &violation);
    if (status != SPW_OK) return status;
    fprintf(out, "%s %.4g: the fullest GPU gets %.3g times the mean, MaxVio %.3g; ", u->severity.key,
            severity, ratio, violation);
    print_value(u, value, out);
    fprintf(out, "\n");
    return SPW_OK;
}

static void print_monotone(const spw_until_answer *a, FILE *out) {
    if (a->good_again > 0.0)
        fprintf(out, "  not monotone: at %.4g it is good again, so that the number is the first of several\n",
                a->good_again);
    else if (!a->monotone)
        fprintf(out, "  not monotone: the value falls by more than 1 %% somewhere between the ends\n");
}

static spw_status print_answer(const until *u, const spw_result_row *row, const spw_until_answer *a,
                               FILE *out) {
    const char *const too = u->factor > 0.0 ? "too long at " : "out of memory at ";
    spw_status status = SPW_OK;
    fprintf(out, "%s, EP %zu, %zu sequence%s\n", row->scheme.text, row->expert, row->sequences,
            spw_plural(row->sequences));
    switch (a->kind) {
    case SPW_UNTIL_FOUND:
        fprintf(out, "  good up to ");
        SPW_TRY(print_at(u, row->expert, a->good, a->value_good, out));
        fprintf(out, "  %s", too);
        SPW_TRY(print_at(u, row->expert, a->bad, a->value_bad, out));
        break;
    case SPW_UNTIL_NEVER:
        fprintf(out, "  %s\n  tried up to ",
                a->follows        ? "good up to the end of what was tried"
                : u->factor > 0.0 ? "never: its step does not follow this routing"
                                  : "never: its memory does not follow the routing");
        SPW_TRY(print_at(u, row->expert, a->good, a->value_good, out));
        break;
    case SPW_UNTIL_ALWAYS:
        fprintf(out, "  already %s", too);
        SPW_TRY(print_at(u, row->expert, a->bad, a->value_bad, out));
        break;
    case SPW_UNTIL_UNTIMED: fprintf(out, "  it has no time, so that nothing can be said of it\n"); break;
    }
    if (a->kind != SPW_UNTIL_UNTIMED) print_monotone(a, out);
    if (a->kind == SPW_UNTIL_FOUND && u->factor <= 0.0 && a->value_bad < a->value_good)
        fprintf(out, "  (held when a larger allocation failed, not what it needs)\n");
    if (a->kind != SPW_UNTIL_UNTIMED && a->drops_good > 0.0)
        fprintf(out, "  but it drops %.3g %% of the assignments at %.4g\n", 100.0 * a->drops_good, a->good);
    if (a->kind != SPW_UNTIL_UNTIMED && u->factor <= 0.0 && spw_point_is_live_alone(row))
        fprintf(out, "  by what must be live alone: with what an allocator adds it runs out earlier "
                     "(--allocator for PyTorch's)\n");

cleanup:
    return status;
}

/* What of the first point the model that answers was not fitted on. */
static void print_outside(const until *u, const spw_result *first, FILE *out) {
    const char *const of = u->factor > 0.0 ? "time" : "memory";
    size_t said = 0;
    for (size_t i = 0; first->rows > 0 && i < first->row[0].outside_fit.count; i++) {
        const spw_outside_item *item = &first->row[0].outside_fit.item[i];
        if (strcmp(item->of, of) != 0) continue;
        fprintf(out, "%s%s", said++ == 0 ? "beyond    the fit, for the first point: " : "; ", item->feature);
    }
    if (said > 0) fprintf(out, "\n");
}

static spw_status print_words(const until *u, const spw_until_outcome *o, FILE *out) {
    const spw_job *job = u->plan->job;
    spw_status status = SPW_OK;
    fprintf(out, "until     ");
    if (u->factor > 0.0)
        fprintf(out, "a step takes more than %g times the step with balanced routing\n", u->factor);
    else
        fprintf(out, "a GPU needs more than %.1f GiB\n", job->memory_fraction * job->cluster.hbm_gib.value);
    fprintf(out, "job       %s on %s, %zu GPUs, %zu tokens a sequence\n", job->model.name, job->cluster.name,
            spw_job_gpus(job), job->sequence_length);
    fprintf(out, "          remat %s, optimizer %s; as said, or the defaults of plan\n",
            spw_remat_name(job->remat), spw_optimizer_name(job->optimizer));
    spw_result_print_precision(job, out);
    print_outside(u, &o->first, out);
    fprintf(out, "routing   %s, %s from %.4g to %.4g, %zu plans\n\n", family_of(u), u->severity.key,
            u->severity.low, u->severity.high, o->plans);
    for (size_t i = 0; i < o->first.rows && status == SPW_OK; i++)
        status = print_answer(u, &o->first.row[i], &o->answer[i], out);
    for (size_t i = 0; i < o->first.refusals; i++) {
        const spw_refusal *r = &o->first.refusal[i];
        fprintf(out, "%s, EP %zu, %zu sequence%s\n  cannot be: %s\n", r->scheme, r->expert, r->sequences,
                spw_plural(r->sequences), r->reason);
    }
    fprintf(out, "\nmax/mean per GPU and MaxVio are of the routing asked for, before a scheme drops or pads "
                 "anything, in "
                 "its worst step.\n");
    return status;
}

/* --- JSON and CSV --- */

static const char *kind_name(spw_until_kind kind) {
    static const char *const names[] = {"found", "never", "always", "no time"};
    return names[kind];
}

static const spw_column columns[] = {{"scheme", NULL},
                                     {"expert_parallel", NULL},
                                     {"sequences_per_gpu", NULL},
                                     {"answer", NULL},
                                     {"good", NULL},
                                     {"bad", NULL},
                                     {"max_over_mean", NULL},
                                     {"max_violation", NULL},
                                     {"value_low", NULL},
                                     {"value_good", NULL},
                                     {"value_bad", NULL},
                                     {"follows", NULL},
                                     {"monotone", NULL},
                                     {NULL, NULL}};

static spw_status fill(const until *u, const spw_until_outcome *o, spw_table *t) {
    for (size_t i = 0; i < o->first.rows; i++) {
        const spw_result_row *row = &o->first.row[i];
        const spw_until_answer *a = &o->answer[i];
        double ratio = 0.0, violation = 0.0;
        const spw_status status =
            skew_at(u, row->expert, a->kind == SPW_UNTIL_ALWAYS ? a->bad : a->good, &ratio, &violation);
        if (status != SPW_OK) return status;
        spw_table_text(t, row->scheme.text);
        spw_table_count(t, row->expert);
        spw_table_count(t, row->sequences);
        spw_table_text(t, kind_name(a->kind));
        const bool timed = a->kind != SPW_UNTIL_UNTIMED, always = a->kind == SPW_UNTIL_ALWAYS;
        const double numbers[] = {always ? NAN : a->good,
                                  a->kind == SPW_UNTIL_NEVER ? NAN : a->bad,
                                  ratio,
                                  violation,
                                  a->value_low,
                                  always ? NAN : a->value_good,
                                  a->kind == SPW_UNTIL_NEVER ? NAN : a->value_bad};
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            spw_table_real(t, timed ? numbers[n] : NAN, NULL);
        spw_table_text(t, a->follows ? "yes" : "no");
        spw_table_text(t, a->monotone ? "yes" : "no");
    }
    return SPW_OK;
}

spw_status spw_plan_until(const spw_until_options *options, const spw_plan_request *plan, spw_format format,
                          FILE *out) {
    until u = {.options = options, .plan = plan};
    spw_until_outcome outcome = {.plans = 0};
    spw_table *table = NULL;
    const size_t experts = plan->job->model.experts, top_k = plan->job->model.top_k;
    spw_status status = SPW_OK;
    SPW_TRY(parse_until(options->until, &u.factor));
    if (options->routing == NULL) {
        u.severity = (spw_severity){"imbalance", 1.0,
                                    fmin((double)fewest_ranks(plan), (double)experts / (double)top_k)};
    } else {
        SPW_TRY(spw_distribution_severity(options->routing, experts, top_k, &u.severity));
    }
    if (!(u.severity.high > u.severity.low))
        SPW_TRY(spw_fail(SPW_EARG, "--until: %s is even in every way that can be had here", family_of(&u)));
    const spw_until_request request = {
        .plan = plan_at, .state = &u, .low = u.severity.low, .high = u.severity.high, .factor = u.factor};
    SPW_TRY(spw_until_find(&request, &outcome));
    if (outcome.first.rows == 0)
        SPW_TRY(spw_fail(SPW_ECONFIG, "no point of this plan can be: %s", outcome.first.refusal[0].reason));
    if (format == SPW_FORMAT_TABLE) {
        SPW_TRY(print_words(&u, &outcome, out));
    } else {
        SPW_TRY(spw_table_create(columns, &table));
        SPW_TRY(fill(&u, &outcome, table));
        SPW_TRY(spw_table_print(table, format, out));
    }

cleanup:
    spw_table_destroy(table);
    spw_until_clear(&outcome);
    return status;
}
