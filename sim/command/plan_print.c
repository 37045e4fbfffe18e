#include "sim/command/plan_print.h"

#include "base/memory.h"
#include "sim/command/plan_json.h"
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
    {"peak_bytes", "GiB/GPU"},
    {"low_bytes", NULL},
    {"high_bytes", NULL},
    {"budget_bytes", NULL},
    {"oom_probability", NULL},
    {"drop_fraction", "dropped"},
    {"max_over_mean", "max/mean"},
    {"step_s", "step s"},
    {"balanced_step_s", NULL},
    {"real_over_balanced", "real/balanced"},
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
    const double mean = r->traffic.rows_mean;
    spw_table_text(t, r->scheme.text);
    spw_table_count(t, r->expert);
    spw_table_count(t, r->fsdp);
    spw_table_count(t, r->sequences);
    spw_table_text(t,
                   spw_verdict_name(spw_footprint_verdict(r->memory.max_bytes, r->footprint.budget_bytes)));
    spw_table_scaled(t, (double)r->memory.max_bytes, GIB, "%.1f");
    spw_table_count(t, r->footprint.low_bytes);
    spw_table_count(t, r->footprint.high_bytes);
    spw_table_count(t, r->footprint.budget_bytes);
    spw_table_real(t, r->memory.oom_probability, NULL);
    spw_table_scaled(t, spw_point_drop_fraction(r), 0.01, "%.2f %%");
    spw_table_real(t, mean > 0.0 ? (double)r->traffic.rows_max / mean : 0.0, "%.2f");
    add_real(t, r->timed ? r->time.step_s : NAN, "%.2f");
    add_real(t, r->timed ? r->balanced_step_s : NAN, NULL);
    add_real(t, r->timed ? r->time.step_s / r->balanced_step_s : NAN, "%.3f");
    add_real(t, r->timed ? r->time.tokens_per_s_per_gpu : NAN, "%.0f");
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

/* The front, fastest first, or all points in their order. */
static spw_status print_points(const spw_plan_view *v, const bool *front, spw_format format, FILE *out) {
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    spw_column columns[sizeof point_columns / sizeof *point_columns];
    const spw_result_row **row = NULL;
    size_t rows = 0;
    memcpy(columns, point_columns, sizeof columns);
    for (size_t i = 0; columns[i].key != NULL && !(v->tokens > 0.0); i++) {
        if (strcmp(columns[i].key, "gpu_hours") == 0) columns[i].heading = NULL;
    }
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

enum { MOST_COLUMNS = 3 + SPW_JOB_MAX_BATCHES };

static void speed_cell(spw_table *t, const spw_result_row *r) {
    char text[48];
    if (r == NULL) {
        spw_table_none(t);
        return;
    }
    if (!spw_point_fits(r)) {
        (void)snprintf(text, sizeof text, "oom %.0f", (double)r->memory.max_bytes / GIB);
    } else if (r->timed) {
        (void)snprintf(text, sizeof text, "%.0f%s", r->time.tokens_per_s_per_gpu,
                       r->footprint.high_bytes > r->footprint.budget_bytes ? "?" : "");
    } else {
        (void)snprintf(text, sizeof text, "fits %.0f", (double)r->memory.max_bytes / GIB);
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
    columns[2 + q->job->batches] = (spw_column){NULL, NULL};
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
        }
    }
    fprintf(
        out,
        "tokens/s per GPU by sequences per GPU (oom N: needs N GiB; ?: the interval of memory reaches over "
        "the budget)\n");
    status = spw_table_print(table, SPW_FORMAT_TABLE, out);

cleanup:
    spw_table_destroy(table);
    return status;
}

/* --- Answers --- */

static void print_choice(const char *what, const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    if (r == NULL) {
        fprintf(out, "%-17s none of the points that fit\n", what);
        return;
    }
    fprintf(out, "%-17s %s, expert %zu x fsdp %zu, %zu sequences: %.0f tokens/s a GPU, step %.2f s, %.1f GiB",
            what, r->scheme.text, r->expert, r->fsdp, r->sequences, r->time.tokens_per_s_per_gpu,
            r->time.step_s, (double)r->memory.max_bytes / GIB);
    if (spw_point_drops(r)) fprintf(out, ", drops %.2f %%", 100.0 * spw_point_drop_fraction(r));
    fprintf(out, "\n");
    if (v->tokens > 0.0) {
        const spw_plan_cost cost = spw_plan_cost_of(r, (double)spw_job_gpus(v->request->job), v->tokens);
        fprintf(out, "%-17s %.3g tokens: %.3g tokens a day, %.1f days, %.3g GPU-hours\n", "", v->tokens,
                cost.tokens_per_day, cost.days, cost.gpu_hours);
    }
}

static void print_change(const spw_plan_view *v, const spw_result_row *r, FILE *out) {
    const spw_plan_change c = spw_plan_change_of(v->result, r, v->request->job->cluster.hbm_gib.value * GIB);
    fprintf(out, "  %-26s expert %zu, %zu sequences: %.0f GiB do not fit; ", r->scheme.text, r->expert,
            r->sequences, (double)r->memory.max_bytes / GIB);
    switch (c.kind) {
    case SPW_CHANGE_FRACTION:
        fprintf(out, "memory_fraction %.2f would do\n", ceil(100.0 * c.fraction) / 100.0);
        return;
    case SPW_CHANGE_SEQUENCES: fprintf(out, "%zu sequences do\n", c.to->sequences); return;
    case SPW_CHANGE_SPLIT: fprintf(out, "expert %zu x fsdp %zu does\n", c.to->expert, c.to->fsdp); return;
    default: fprintf(out, "no point of this plan does\n");
    }
}

/* Of every scheme the smallest batch of the job's own split (else the first) that does not fit. */
static void print_changes(const spw_plan_view *v, FILE *out) {
    bool headed = false;
    for (size_t s = 0; s < v->request->schemes; s++) {
        const spw_result_row *least = NULL;
        for (size_t i = 0; i < v->result->rows; i++) {
            const spw_result_row *r = &v->result->row[i];
            if (strcmp(r->scheme.text, v->request->scheme[s].text) != 0 || spw_point_fits(r)) continue;
            if (least == NULL || r->sequences < least->sequences ||
                (r->sequences == least->sequences && r->expert == v->request->job->expert))
                least = r;
        }
        if (least == NULL) continue;
        if (!headed) fprintf(out, "does not fit, and the smallest change\n");
        headed = true;
        print_change(v, least, out);
    }
}

static void print_answers(const spw_plan_view *v, FILE *out) {
    const spw_result_row *fastest = spw_plan_fastest(v->result, false),
                         *dropless = spw_plan_fastest(v->result, true);
    print_choice("fastest", v, fastest, out);
    if (dropless != fastest) print_choice("without drops", v, dropless, out);
    if (dropless == NULL) return;
    fprintf(out, "%-17s %s takes %.3f times its step with balanced routing (%.2f s)\n", "real routing",
            dropless->scheme.text, dropless->time.step_s / dropless->balanced_step_s,
            dropless->balanced_step_s);
    const double factor = spw_plan_break_even_factor(v->request, dropless);
    if (isfinite(factor))
        fprintf(out, "%-17s dense takes as long as %s at capacity factor %.2f\n", "break-even",
                dropless->scheme.text, factor);
}

/* How many points have which evidence, and how many sentences say what was assumed. */
static void print_evidence(const spw_result *result, FILE *out) {
    size_t rows[SPW_MATCH_COUNT] = {0};
    spw_assumptions all = {.count = 0};
    for (size_t i = 0; i < result->rows; i++) {
        rows[result->row[i].match]++;
        for (size_t a = 0; a < result->row[i].assumptions.count; a++)
            spw_assume(&all, "%s", result->row[i].assumptions.text[a]);
    }
    fprintf(out, "; evidence:");
    for (int match = 0; match < SPW_MATCH_COUNT; match++) {
        if (rows[match] > 0) fprintf(out, " %zu %s", rows[match], spw_match_name((spw_match)match));
    }
    fprintf(out, " (what is assumed: --format json)");
}

static void print_heading(const spw_plan_view *v, FILE *out) {
    const spw_job *job = v->request->job;
    size_t fit = 0;
    for (size_t i = 0; i < v->result->rows; i++) fit += spw_point_fits(&v->result->row[i]);
    fprintf(out,
            "plan      %s on %s (%zu GPUs), %zu tokens a sequence, remat %s, %.1f GiB a GPU may be used\n",
            job->model.name, job->cluster.name, spw_job_gpus(job), job->sequence_length,
            spw_remat_name(job->remat), job->memory_fraction * job->cluster.hbm_gib.value);
    fprintf(out, "routing   %s\n", v->routing);
    if (v->settings->stack != NULL)
        fprintf(out, "software  %s: memory of compiled programs and step times by its fitted coefficients\n",
                v->settings->stack);
    fprintf(out, "points    %zu, %zu fit", v->result->rows, fit);
    print_evidence(v->result, out);
    fprintf(out, "\n\n");
}

spw_status spw_plan_print(const spw_plan_view *v, spw_format format, FILE *out) {
    spw_status status = SPW_OK;
    bool *front = NULL;
    if (v->result->rows == 0)
        return spw_fail(SPW_ECONFIG, "no point of this plan can be: no scheme runs on any split");
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
    print_heading(v, out);
    SPW_TRY(print_speeds(v, out));
    fprintf(out, "\n");
    print_answers(v, out);
    print_changes(v, out);
    fprintf(out, v->all ? "\nevery point\n" : "\npoints that no other beats in memory, speed and drops\n");
    SPW_TRY(print_points(v, front, format, out));

cleanup:
    spw_free(front);
    return status;
}
