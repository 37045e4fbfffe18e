#include "sim/command/plan_print.h"

#include "base/memory.h"
#include "sim/command/plan_json.h"
#include "sim/command/plan_notes.h"
#include "sim/replay/plan_answers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { FRONT_LINES = 12 };

/* --- Points --- */

static const spw_column point_columns[] = {
    {"scheme", "scheme"},
    {"expert_parallel", "EP"},
    {"fsdp", "FSDP"},
    {"sequences_per_gpu", "seq/GPU"},
    {"verdict", "memory"},
    {"memory_kind", NULL},
    {"peak_bytes", "GiB/GPU"},
    {"low_bytes", NULL},
    {"high_bytes", NULL},
    {"budget_bytes", NULL},
    {"oom_probability", NULL},
    {"reserved_bytes", "reserved"},
    {"drop_fraction", "dropped"},
    {"max_over_mean", "max/mean"},
    {"step_s", "step s"},
    {"balanced_step_s", NULL},
    {"real_over_balanced", "real/balanced"},
    {"worst_step_s", NULL},
    {"worst_over_balanced", "worst"},
    {"tokens_per_s_per_gpu", "tok/s/GPU"},
    {"tokens_per_day", "tokens/day"},
    {"gpu_hours", "GPU-hours"},
    {"front", NULL},
    {"evidence", NULL},
    {NULL, NULL},
};

static void add_real(spw_table *t, double value, const char *format) {
    if (isfinite(value)) {
        spw_table_real(t, value, format);
    } else {
        spw_table_none(t);
    }
}

static void add_point(spw_table *t, const spw_plan_view *v, const spw_result_row *r, bool front) {
    const spw_plan_cost cost =
        spw_plan_cost_of(r, (double)spw_job_gpus(v->request->job), v->tokens > 0.0 ? v->tokens : NAN);
    static const char *const speeds[] = {"%.0f", "%.1f", "%.2f"};
    spw_table_text(t, r->scheme.text);
    spw_table_count(t, r->expert);
    spw_table_count(t, r->fsdp);
    spw_table_count(t, r->sequences);
    spw_table_text(t, spw_verdict_name(spw_result_verdict(r)));
    spw_table_text(t, spw_memory_kind_name(r->memory_kind));
    spw_table_scaled(t, (double)r->memory.max_bytes, GIB,
                     r->memory_kind == SPW_MEMORY_LIVE ? "%.1f*" : "%.1f");
    spw_table_count(t, r->footprint.low_bytes);
    spw_table_count(t, r->footprint.high_bytes);
    spw_table_count(t, r->footprint.budget_bytes);
    spw_table_real(t, r->memory.oom_probability, NULL);
    if (r->reserved.there) {
        spw_table_scaled(t, (double)r->reserved.as_set.reserved.max_bytes, GIB,
                         r->reserved.as_set.failed_steps > 0 ? ">=%.1f" : "%.1f");
    } else {
        spw_table_none(t);
    }
    spw_table_scaled(t, spw_point_drop_fraction(r), 0.01, r->drops.at_least ? ">=%.2f %%" : "%.2f %%");
    add_real(t, spw_plan_max_over_mean(r), "%.2f");
    add_real(t, r->timed ? r->time.step_s : NAN, spw_plan_seconds_format(r->time.step_s));
    add_real(t, r->timed ? r->balanced_step_s : NAN, NULL);
    add_real(t, r->timed ? r->time.step_s / r->balanced_step_s : NAN, "%.3f");
    add_real(t, r->timed ? r->worst_step_s : NAN, NULL);
    add_real(t, r->timed ? r->worst_step_s / r->balanced_step_s : NAN, "%.3f");
    add_real(t, r->timed ? r->time.tokens_per_s_per_gpu : NAN,
             speeds[spw_plan_digits(r->time.tokens_per_s_per_gpu)]);
    add_real(t, cost.tokens_per_day, "%.3g");
    add_real(t, cost.gpu_hours, "%.3g");
    spw_table_text(t, front ? "yes" : "no");
    spw_table_text(t, spw_match_name(r->match));
}

static int faster_first(const void *a, const void *b) {
    const spw_result_row *x = *(const spw_result_row *const *)a, *y = *(const spw_result_row *const *)b;
    const double sx = x->timed ? x->time.tokens_per_s_per_gpu : 0.0,
                 sy = y->timed ? y->time.tokens_per_s_per_gpu : 0.0;
    if (sx > sy || sx < sy) return sx > sy ? -1 : 1;
    return (x->memory.max_bytes > y->memory.max_bytes) - (x->memory.max_bytes < y->memory.max_bytes);
}

static void set_heading(spw_column *column, const char *key, const char *heading) {
    while (strcmp(column->key, key) != 0) column++;
    column->heading = heading;
}

/* The front, fastest first, or all points in their order. */
static spw_status print_points(const spw_plan_view *v, const bool *front, spw_format format, FILE *out) {
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    spw_column columns[sizeof point_columns / sizeof *point_columns];
    const spw_result_row **row = NULL;
    char heading[32];
    size_t rows = 0;
    memcpy(columns, point_columns, sizeof columns);
    (void)snprintf(heading, sizeof heading, "%s/balanced", spw_plan_routing_word(v));
    if (!(v->tokens > 0.0)) set_heading(columns, "gpu_hours", NULL);
    if (!v->request->allocator) set_heading(columns, "reserved_bytes", NULL);
    if (spw_plan_steps(v) == 1) set_heading(columns, "worst_over_balanced", NULL);
    set_heading(columns, "real_over_balanced", heading);
    SPW_TRY(SPW_ALLOC(v->result->rows, &row));
    SPW_TRY(spw_table_create(columns, &table));
    for (size_t i = 0; i < v->result->rows; i++) {
        if (v->all || format != SPW_FORMAT_TABLE || front[i]) row[rows++] = &v->result->row[i];
    }
    const bool few = format == SPW_FORMAT_TABLE && !v->all;
    if (few) qsort(row, rows, sizeof *row, faster_first);
    for (size_t i = 0; i < rows && (!few || i < FRONT_LINES); i++)
        add_point(table, v, row[i], front[row[i] - v->result->row]);
    SPW_TRY(spw_table_print(table, format, out));
    if (few && rows > FRONT_LINES)
        fprintf(out, "... and %zu more points that nothing beats: --all\n", rows - FRONT_LINES);

cleanup:
    spw_table_destroy(table);
    spw_free(row);
    return status;
}

/* --- Speed by batch: a line a scheme and split, a column a batch --- */

enum { MOST_COLUMNS = 4 + SPW_JOB_MAX_BATCHES };

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
                       r->time.tokens_per_s_per_gpu, spw_point_surely_fits(r) ? "" : "?");
    } else {
        (void)snprintf(text, sizeof text, "%s %.*f%s", spw_verdict_name(spw_result_verdict(r)),
                       gib < 9.95 ? 1 : 0, gib,
                       reserved                            ? "r"
                       : r->memory_kind == SPW_MEMORY_LIVE ? "*"
                                                           : "");
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
        if (most == NULL || spw_point_drop_fraction(r) > spw_point_drop_fraction(most)) most = r;
    }
    if (most != NULL)
        (void)snprintf(text, sizeof text, "%s%.2f %%", most->drops.at_least ? ">=" : "",
                       100.0 * spw_point_drop_fraction(most));
    spw_table_shown(t, 0, text);
}

static spw_status print_speeds(const spw_plan_view *v, FILE *out) {
    const spw_plan_request *q = v->request;
    const size_t splits = q->splits > 0 ? q->splits : 1;
    char heading[SPW_JOB_MAX_BATCHES][24];
    spw_column columns[MOST_COLUMNS] = {{"scheme", "scheme"}, {"expert_parallel", splits > 1 ? "EP" : NULL}};
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    for (size_t b = 0; b < q->job->batches; b++) {
        (void)snprintf(heading[b], sizeof heading[b], "%zu", q->job->sequences_per_gpu[b]);
        columns[2 + b] = (spw_column){heading[b], heading[b]};
    }
    columns[2 + q->job->batches] = (spw_column){"dropped", spw_plan_any_drops(v->result) ? "dropped" : NULL};
    columns[3 + q->job->batches] = (spw_column){NULL, NULL};
    SPW_TRY(spw_table_create(columns, &table));
    for (size_t s = 0; s < q->schemes; s++) {
        for (size_t e = 0; e < splits; e++) {
            const size_t expert = q->splits > 0 ? q->expert[e] : q->job->expert;
            bool any = false;
            for (size_t b = 0; b < q->job->batches; b++)
                any = any || find(v->result, q->scheme[s].text, expert, q->job->sequences_per_gpu[b]) != NULL;
            if (!any) continue;
            spw_table_text(table, q->scheme[s].text);
            spw_table_count(table, expert);
            for (size_t b = 0; b < q->job->batches; b++)
                speed_cell(table, find(v->result, q->scheme[s].text, expert, q->job->sequences_per_gpu[b]));
            drop_cell(table, v, q->scheme[s].text, expert);
        }
    }
    fprintf(
        out,
        "%s by sequences per GPU (oom N: needs N GiB; ?: the interval of memory reaches over the budget)\n",
        spw_plan_any_timed(v->result) ? "tokens/s per GPU" : "GiB per GPU");
    status = spw_table_print(table, SPW_FORMAT_TABLE, out);

cleanup:
    spw_table_destroy(table);
    return status;
}

/* --- Answers --- */

static void print_misfit(const spw_plan_view *v, const spw_plan_misfit_advice *m, FILE *out) {
    const spw_result_row *r = &v->result->row[m->row];
    char drops[48];
    spw_plan_drops_text(r, drops, sizeof drops);
    fprintf(out, "  %-26s expert %zu, %zu sequence%s%s%s: ", r->scheme.text, r->expert, r->sequences,
            r->sequences == 1 ? "" : "s", drops[0] != '\0' ? ", " : "", drops);
    if (r->reserved.there) {
        fprintf(out, "%zu of %zu steps run out of memory; ", r->reserved.as_set.failed_steps,
                r->reserved.steps);
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
    spw_status status = SPW_OK;
    bool *front = NULL;
    if (v->result->rows == 0)
        return spw_fail(SPW_ECONFIG, "no point of this plan can be; EP %zu: %s", v->result->refusal[0].expert,
                        v->result->refusal[0].reason);
    SPW_TRY(SPW_ALLOC(v->result->rows, &front));
    spw_plan_front(v->result, front);
    if (format == SPW_FORMAT_JSON) {
        status = spw_plan_print_json(v, front, out);
        goto cleanup;
    }
    if (format == SPW_FORMAT_CSV) {
        status = print_points(v, front, format, out);
        goto cleanup;
    }
    spw_plan_print_heading(v, out);
    SPW_TRY(print_speeds(v, out));
    spw_plan_print_legend(v, out);
    fprintf(out, "\n");
    spw_plan_print_answers(v, out);
    if (v->tries->misfits > 0) fprintf(out, "does not fit, and the smallest change\n");
    for (size_t i = 0; i < v->tries->misfits; i++) print_misfit(v, &v->tries->misfit[i], out);
    bool any = v->all;
    for (size_t i = 0; i < v->result->rows; i++) any = any || front[i];
    if (!any) goto cleanup; /* nothing fits */
    fprintf(out, v->all ? "\nevery point\n" : "\npoints that no other beats in memory, speed and drops\n");
    SPW_TRY(print_points(v, front, format, out));

cleanup:
    spw_free(front);
    return status;
}
