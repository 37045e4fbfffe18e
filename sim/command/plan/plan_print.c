#include "sim/command/plan/plan_print.h"

#include "sim/command/plan/plan_brief.h"
#include "sim/command/plan/plan_json.h"
#include "sim/command/plan/plan_notes.h"
#include "sim/job/job.h"
#include "sim/plan/plan_answers.h"
#include "sim/result/row_cost.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { FRONT_LINES = 12 };

/* --- Points --- */

/* What only CSV has: the ends of the other intervals. */
static void add_ends(spw_table *t, const spw_result_row *r, const spw_row_cost *cost) {
    const spw_balanced_figures balanced = spw_result_balanced(r);
    const spw_ratio ratio = spw_result_row_ratio(r);
    const struct {
        const char *key;
        double value;
    } times[] = {{"balanced_low_s", r->balanced.low_s},     {"balanced_high_s", r->balanced.high_s},
                 {"worst_low_s", r->worst.low_s},           {"worst_high_s", r->worst.high_s},
                 {"tokens_per_s_low", r->tokens_per_s_low}, {"tokens_per_s_high", r->tokens_per_s_high},
                 {"gpu_hours_low", cost->gpu_hours.low},    {"gpu_hours_high", cost->gpu_hours.high}},
      costs[] = {{"tokens_per_day_low", cost->tokens_per_day.low},
                 {"tokens_per_day_high", cost->tokens_per_day.high},
                 {"flops_per_s_per_gpu", cost->flops_per_s_per_gpu.value},
                 {"flops_per_s_per_gpu_low", cost->flops_per_s_per_gpu.low},
                 {"flops_per_s_per_gpu_high", cost->flops_per_s_per_gpu.high},
                 {"mfu_low", cost->mfu.low},
                 {"mfu_high", cost->mfu.high},
                 {"days", cost->days.value},
                 {"days_low", cost->days.low},
                 {"days_high", cost->days.high},
                 {"money_low", cost->money.low},
                 {"money_high", cost->money.high},
                 {"balanced_tokens_per_s_per_gpu", r->timed ? balanced.tokens_per_s_per_gpu : NAN}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        spw_table_real(spw_table_in(t, times[i].key, NULL), r->timed ? times[i].value : NAN, NULL);
    spw_table_flag(spw_table_in(t, "surely_fits", NULL), r->surely_fits);
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        spw_table_real(spw_table_in(t, costs[i].key, NULL), costs[i].value, NULL);
    spw_table_count(spw_table_in(t, "balanced_peak_bytes", NULL), balanced.peak_bytes);
    spw_table_real(spw_table_in(t, "balanced_drop_fraction", NULL), balanced.drop_fraction, NULL);
    spw_table_real(spw_table_in(t, "real_over_balanced_low", NULL), ratio.low, NULL);
    spw_table_real(spw_table_in(t, "real_over_balanced_high", NULL), ratio.high, NULL);
}

/* What any of the points has. A column that says nothing for a person here has no heading. */
typedef struct has {
    bool times, reserved;
} has;

/* Of a step, and what it costs. */
static void add_times(spw_table *t, const spw_plan_view *v, const spw_result_row *r, const spw_row_cost *cost,
                      bool any) {
    static const char *const speeds[] = {"%.0f", "%.1f", "%.2f"};
    const bool priced = v->settings->tokens > 0.0;
    spw_table_figure(spw_table_in(t, "step_s", any ? "step s" : NULL), r->timed ? r->time.step_s : NAN);
    spw_table_interval(t, (spw_column){"low_s", any ? "low-high" : NULL}, "high_s",
                       r->timed ? r->time.low_s : NAN, r->timed ? r->time.high_s : NAN);
    spw_table_real(spw_table_in(t, "balanced_step_s", NULL), r->timed ? r->balanced.step_s : NAN, NULL);
    spw_table_real(spw_table_in(t, "real_over_balanced", any ? "over balanced" : NULL),
                   spw_result_row_ratio(r).value, "%.3f");
    spw_table_real(spw_table_in(t, "worst_step_s", NULL), r->timed ? r->worst.step_s : NAN, NULL);
    spw_table_real(spw_table_in(t, "worst_over_balanced", any && spw_plan_steps(v) != 1 ? "worst" : NULL),
                   r->timed ? r->worst.step_s / r->balanced.step_s : NAN, "%.3f");
    spw_table_real(spw_table_in(t, "tokens_per_s_per_gpu", any ? "tok/s/GPU" : NULL),
                   r->timed ? r->time.tokens_per_s_per_gpu : NAN,
                   speeds[spw_plan_digits(r->time.tokens_per_s_per_gpu)]);
    spw_table_scaled(spw_table_in(t, "mfu", any && v->request->job->part == SPW_PART_WHOLE ? "MFU %" : NULL),
                     cost->mfu.value, 0.01, "%.1f");
    spw_table_amount(spw_table_in(t, "tokens_per_day", priced ? "tokens/day" : NULL),
                     cost->tokens_per_day.value);
    spw_table_amount(spw_table_in(t, "gpu_hours", priced ? "GPU-hours" : NULL), cost->gpu_hours.value);
    spw_table_amount(spw_table_in(t, "money", priced && spw_job_price(v->request->job) > 0.0 ? "cost" : NULL),
                     cost->money.value);
}

static void add_point(spw_table *t, const spw_plan_view *v, const spw_result_row *r, has any,
                      spw_format format) {
    const bool live = format == SPW_FORMAT_TABLE && spw_point_is_live_alone(r),
               splits = v->request->splits > 1;
    const spw_row_cost cost = spw_row_cost_of(r, v->request->job, v->settings->tokens);
    spw_table_text(spw_table_in(t, "scheme", "scheme"), r->scheme.text);
    spw_table_count(spw_table_in(t, "expert_parallel", splits ? "EP" : NULL), r->expert);
    spw_table_count(spw_table_in(t, "fsdp", splits ? "FSDP" : NULL), r->fsdp);
    spw_table_count(spw_table_in(t, "sequences_per_gpu", "seq/GPU"), r->sequences);
    spw_table_text(spw_table_in(t, "verdict", "memory"), spw_verdict_text(spw_result_verdict(r), live));
    spw_table_text(spw_table_in(t, "memory_kind", NULL), spw_memory_kind_name(r->memory_kind));
    spw_table_scaled(spw_table_in(t, "peak_bytes", "GiB/GPU"), (double)r->memory.max_bytes, GIB,
                     r->memory_kind == SPW_MEMORY_LIVE ? "%.1f*" : "%.1f");
    spw_table_count(spw_table_in(t, "low_bytes", NULL), r->footprint.low_bytes);
    spw_table_count(spw_table_in(t, "high_bytes", NULL), r->footprint.high_bytes);
    spw_table_count(spw_table_in(t, "budget_bytes", NULL), r->footprint.budget_bytes);
    spw_table_real(spw_table_in(t, "oom_probability", NULL), r->memory.oom_probability, NULL);
    spw_table_count_of(spw_table_in(t, "reserved_bytes", any.reserved ? "reserved" : NULL), r->reserved.there,
                       r->reserved.as_set.reserved.max_bytes, GIB,
                       r->reserved.as_set.failed_steps > 0 ? ">=%.1f" : "%.1f");
    spw_table_scaled(spw_table_in(t, "drop_fraction", "dropped"), r->drops.fraction, 0.01,
                     r->drops.at_least ? ">=%.2f %%" : "%.2f %%");
    spw_table_real(spw_table_in(t, "max_over_mean", "max/mean"), spw_plan_max_over_mean(r), "%.2f");
    add_times(t, v, r, &cost, any.times);
    spw_table_flag(spw_table_in(t, "front", NULL), v->result->answers.front[r - v->result->row]);
    spw_table_text(spw_table_in(t, "evidence", NULL), spw_match_name(r->match));
    add_ends(t, r, &cost);
}

/* The front, the best first, or all points in their order. */
static spw_status print_points(const spw_plan_view *v, spw_format format, FILE *out) {
    const spw_result *result = v->result;
    const bool few = format == SPW_FORMAT_TABLE && !v->all;
    const has any = {spw_plan_any_timed(result), spw_plan_any_reserved(result)};
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    size_t rows = 0;
    SPW_TRY(spw_table_create(NULL, &table));
    for (size_t i = 0; i < (few ? result->answers.fits : result->rows); i++) {
        const size_t row = few ? spw_result_answers_row(&result->answers, i) : i;
        if (few && !result->answers.front[row]) continue;
        if (!few || rows++ < FRONT_LINES) add_point(table, v, &result->row[row], any, format);
    }
    SPW_TRY(spw_table_print(table, format, out));
    if (rows > FRONT_LINES)
        fprintf(out, "... and %zu more points that nothing beats: --all\n", rows - FRONT_LINES);

cleanup:
    spw_table_destroy(table);
    return status;
}

/* --- Speed by batch: a line a scheme and split, a column a batch --- */

static void speed_cell(spw_table *t, const spw_result_row *r) {
    char text[48];
    if (r == NULL) {
        spw_table_none(t);
        return;
    }
    const bool reserved = r->reserved.there && spw_point_fits(r);
    const double gib = (double)(reserved ? r->reserved.as_set.reserved.max_bytes : r->memory.max_bytes) / GIB;
    if (spw_point_fits(r) && r->timed) {
        (void)snprintf(text, sizeof text, "%.*f%s", spw_plan_digits(r->time.tokens_per_s_per_gpu),
                       r->time.tokens_per_s_per_gpu, r->surely_fits ? "" : "?");
    } else if (!spw_point_fits(r) && r->reserved.there && r->memory.max_bytes <= r->footprint.budget_bytes) {
        (void)snprintf(text, sizeof text,
                       "oom >%.0f", /* what is live would fit; the allocator asks for more */
                       floor((double)r->footprint.budget_bytes / GIB));
    } else {
        (void)snprintf(text, sizeof text, "%s %.*f%s%s",
                       spw_verdict_text(spw_result_verdict(r), spw_point_is_live_alone(r)),
                       gib < 9.95 ? 1 : 0, gib,
                       reserved                            ? "r"
                       : r->memory_kind == SPW_MEMORY_LIVE ? "*"
                                                           : "",
                       spw_point_fits(r) && !r->surely_fits ? "?" : "");
    }
    spw_table_shown(t, r->sequences, text);
}

static const spw_result_row *find(const spw_result *result, const char *scheme, size_t expert,
                                  size_t sequences) {
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *r = &result->row[i];
        if (r->expert == expert && r->sequences == sequences && strcmp(r->scheme.text, scheme) == 0) return r;
    }
    return NULL;
}

/* What a scheme's points drop at most at one split; nothing where no point of the plan drops. */
static void drop_cell(spw_table *t, const spw_plan_view *v, const char *scheme, size_t expert) {
    const spw_result_row *most = NULL;
    char text[48] = "-";
    for (size_t i = 0; i < v->result->rows; i++) {
        const spw_result_row *r = &v->result->row[i];
        if (r->expert != expert || strcmp(r->scheme.text, scheme) != 0 || !spw_point_drops(r)) continue;
        if (most == NULL || r->drops.fraction > most->drops.fraction) most = r;
    }
    if (most != NULL)
        (void)snprintf(text, sizeof text, "%s%.2f %%", most->drops.at_least ? ">=" : "",
                       100.0 * most->drops.fraction);
    spw_table_shown(t, 0, text);
}

/* What the table has, and those of its marks that it uses. */
static void print_marks(const spw_plan_view *v, FILE *out) {
    bool oom = false, unsure = false;
    for (size_t i = 0; i < v->result->rows; i++) {
        const spw_result_row *r = &v->result->row[i];
        oom = oom || !spw_point_fits(r);
        unsure = unsure || (spw_point_fits(r) && !r->surely_fits);
    }
    fprintf(out, "%s by sequences per GPU%s%s%s%s\n",
            spw_plan_any_timed(v->result) ? "tokens/s per GPU" : "GiB per GPU", oom || unsure ? " (" : "",
            oom ? "oom N: out of memory, needs N GiB" : "", oom && unsure ? "; " : "",
            unsure ? "?: may not fit)"
            : oom  ? ")"
                   : "");
}

static spw_status print_speeds(const spw_plan_view *v, FILE *out) {
    const spw_plan_request *q = v->request;
    const size_t splits = q->splits > 0 ? q->splits : 1;
    const bool drops = spw_plan_any_drops(v->result);
    char heading[SPW_JOB_MAX_BATCHES][24];
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    for (size_t b = 0; b < q->job->batches; b++)
        (void)snprintf(heading[b], sizeof heading[b], "%zu", q->job->sequences_per_gpu[b]);
    SPW_TRY(spw_table_create(NULL, &table));
    for (size_t s = 0; s < q->schemes; s++) {
        for (size_t e = 0; e < splits; e++) {
            const size_t expert = q->splits > 0 ? q->expert[e] : q->job->expert;
            bool any = false;
            for (size_t b = 0; b < q->job->batches; b++)
                any = any || find(v->result, q->scheme[s].text, expert, q->job->sequences_per_gpu[b]) != NULL;
            if (!any) continue;
            spw_table_text(spw_table_in(table, "scheme", "scheme"), q->scheme[s].text);
            spw_table_count(spw_table_in(table, "expert_parallel", splits > 1 ? "EP" : NULL), expert);
            for (size_t b = 0; b < q->job->batches; b++)
                speed_cell(spw_table_in(table, heading[b], heading[b]),
                           find(v->result, q->scheme[s].text, expert, q->job->sequences_per_gpu[b]));
            drop_cell(spw_table_in(table, "dropped", drops ? "dropped" : NULL), v, q->scheme[s].text, expert);
        }
    }
    print_marks(v, out);
    status = spw_table_print(table, SPW_FORMAT_TABLE, out);

cleanup:
    spw_table_destroy(table);
    return status;
}

/* --- Answers --- */

static void print_misfit(const spw_plan_view *v, const spw_plan_misfit_advice *m, FILE *out) {
    const spw_result_row *r = &v->result->row[m->row];
    char drops[48], death[SPW_DEATH_TEXT];
    spw_plan_drops_text(r, drops, sizeof drops);
    fprintf(out, "  %-26s expert %zu, %zu sequence%s%s%s: ", r->scheme.text, r->expert, r->sequences,
            r->sequences == 1 ? "" : "s", drops[0] != '\0' ? ", " : "", drops);
    if (r->reserved.there) {
        fprintf(out, "out of memory in %zu of %zu step%s, first %s; ", r->reserved.as_set.failed_steps,
                r->reserved.steps, r->reserved.steps == 1 ? "" : "s", spw_result_death_text(r, death));
    } else {
        fprintf(out, "%.0f%s GiB do not fit; ", (double)r->memory.max_bytes / GIB,
                r->memory_kind == SPW_MEMORY_LIVE ? "*" : "");
    }
    if (m->state_alone)
        fprintf(out, "its state alone is %.0f of %.0f GiB, which no batch changes; ",
                (double)r->footprint.argument_bytes / GIB, (double)r->footprint.budget_bytes / GIB);
    fprintf(out, "%s\n", m->advice);
}

spw_status spw_plan_print(const spw_plan_view *v, spw_format format, FILE *out) {
    if (v->result->rows == 0)
        return spw_fail(SPW_ECONFIG, "no point of this plan can be; EP %zu: %s", v->result->refusal[0].expert,
                        v->result->refusal[0].reason);
    if (format == SPW_FORMAT_JSON) return spw_plan_print_json(v, out);
    if (format == SPW_FORMAT_CSV) return print_points(v, format, out);
    spw_plan_print_brief(v, out);
    fprintf(out, "\n");
    if (v->details)
        spw_plan_print_heading(v, out);
    else
        spw_plan_print_doubts(v, out);
    if (!v->details) fprintf(out, "\n");
    const spw_status status = print_speeds(v, out);
    if (status != SPW_OK) return status;
    spw_plan_print_legend(v, out);
    fprintf(out, "\n");
    if (!v->details) {
        fprintf(out, "more: --details (formats, software, intervals, memory of stages, other answers, every "
                     "figure of the best points)\n");
        return SPW_OK;
    }
    spw_plan_print_answers(v, out);
    if (v->tries->misfits > 0) fprintf(out, "does not fit, and the smallest change\n");
    for (size_t i = 0; i < v->tries->misfits; i++) print_misfit(v, &v->tries->misfit[i], out);
    if (!v->all && v->result->answers.fits == 0) return SPW_OK;
    fprintf(out, v->all ? "\nevery point\n" : "\npoints that no other beats in memory, speed and drops\n");
    return print_points(v, format, out);
}
