#include "sim/score/runs/run_score.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/live/footprint.h"
#include "sim/replay/replay_time.h"
#include "sim/score/runs/run_routed.h"
#include "sim/score/score_tables.h"
#include "sim/statistics/quantiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

const char *spw_run_status_name(spw_run_status status) {
    static const char *const names[] = {"fits", "oom", ""};
    return names[status];
}

/* --- Published figures --- */

/* A word of another kind, as of a run that ended for another reason, says nothing of memory. */
static spw_status read_published(const spw_csv *csv, size_t row, spw_run_row *out) {
    static const struct {
        const char *word;
        spw_run_status status;
    } words[] = {{"OK", SPW_RUN_FITS}, {"fits", SPW_RUN_FITS}, {"OOM", SPW_RUN_OOM}};
    const char *text = spw_csv_field(csv, row, "published_status");
    out->true_status = SPW_RUN_UNKNOWN;
    for (size_t i = 0; i < sizeof words / sizeof *words && text != NULL; i++)
        if (strcasecmp(text, words[i].word) == 0) out->true_status = words[i].status;
    const spw_status status = spw_score_figure(csv, row, "published_tokens_s_gpu", 1.0, "published",
                                               &out->true_tokens_per_s_per_gpu);
    return status == SPW_OK
               ? spw_score_figure(csv, row, "published_memory_gib", 1.0, "published", &out->true_memory_gib)
               : status;
}

/* --- One row --- */

typedef struct workplace {
    const char *stack;
    spw_job job;
    spw_scheme scheme;
    spw_software software;
} workplace;

static spw_status choose_software(workplace *w) {
    const spw_scheme_type *type = w->scheme.type;
    if (w->stack == NULL)
        return spw_software_newest(&w->job, spw_scheme_program(&w->scheme) != NULL,
                                   spw_scheme_asks_megatron(type), &w->software);
    const spw_status status = spw_software_read(w->stack, &w->software);
    return status == SPW_OK ? spw_software_suits(w->stack, &w->job.cluster) : status;
}

static spw_status predict_memory(workplace *w, const spw_point *point, spw_run_row *row) {
    spw_footprint *footprint = NULL;
    char outside[SPW_OUTSIDE_TEXT];
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &footprint));
    row->live = !w->software.compiled || !spw_compiled_footprint_covers(&w->job, &w->scheme);
    if (row->live)
        SPW_TRY(spw_footprint_compute(point, NULL, footprint));
    else
        SPW_TRY(spw_compiled_footprint_compute(&w->software.stack, &w->job, &w->scheme, point->sequences,
                                               footprint, outside));
    row->peak_bytes = footprint->peak_bytes;
    row->budget_bytes = footprint->budget_bytes;
    row->verdict = spw_footprint_verdict(row->peak_bytes, row->budget_bytes);

cleanup:
    spw_free(footprint);
    return status;
}

static spw_status predict_time(workplace *w, const spw_point *point, spw_run_row *row) {
    const spw_software *s = &w->software;
    const spw_fits fits = {s->compiled ? &s->stack : NULL, s->timed ? &s->time_stack : NULL,
                           s->megatron ? &s->megatron_coefficients : NULL};
    const spw_replay_time_request request = {.stack = fits.time_stack,
                                             .megatron = fits.megatron,
                                             .point = *point,
                                             .layers = 1,
                                             .groups = 1,
                                             .micro_batches = 1};
    spw_replay_time time = {.steps = 0};
    spw_status status = SPW_OK;
    if (row->question.refused != NULL) {
        (void)snprintf(row->no_time, sizeof row->no_time, "%s", row->question.refused);
    } else if (!spw_replay_time_covers(&request)) {
        (void)snprintf(row->no_time, sizeof row->no_time, "%s", spw_why_no_time(&w->job, &w->scheme, &fits));
    } else {
        SPW_TRY(spw_replay_time_create(&request, &time));
        SPW_TRY(spw_replay_time_balanced(&time, &row->time));
    }
    if (spw_run_is_timed(row) && row->question.routing != NULL) {
        SPW_TRY(spw_run_routed(point, s, row->question.routing, &row->time, &row->peak_bytes));
        row->verdict = spw_footprint_verdict(row->peak_bytes, row->budget_bytes);
    }

cleanup:
    spw_replay_time_destroy(&time);
    return status;
}

/* Routers that limit a token to groups of experts do so when their logits are random, too. */
static spw_point point_of(const workplace *w) {
    spw_point point = spw_point_of(&w->job, &w->scheme, w->job.sequences_per_gpu[0]);
    const spw_model *m = &w->job.model;
    if (m->groups > 1 && m->groups_kept >= 1 && m->groups_kept < m->groups && m->experts % m->groups == 0) {
        point.shape.groups = m->groups;
        point.shape.groups_kept = m->groups_kept;
    }
    return point;
}

static spw_status predict(workplace *w, spw_run_row *row) {
    spw_status status = spw_run_question_job(&row->question, &w->job, &w->scheme);
    if (status == SPW_OK) status = choose_software(w);
    if (status != SPW_OK) return status;
    (void)snprintf(row->stack, sizeof row->stack, "%s", w->software.names);
    const spw_point point = point_of(w);
    status = predict_memory(w, &point, row);
    return status == SPW_OK ? predict_time(w, &point, row) : status;
}

static spw_status read_row(const spw_csv *csv, size_t row, workplace *w, spw_run_row *out) {
    out->table = spw_csv_where(csv);
    out->line = spw_csv_line(csv, row);
    spw_status status = spw_run_question_read(csv, row, &out->question, out->no_job);
    if (status == SPW_OK) status = read_published(csv, row, out);
    if (status != SPW_OK || out->no_job[0] != '\0') return status;
    status = predict(w, out);
    if (status != SPW_ECONFIG && status != SPW_EARG && status != SPW_EIO) return status;
    (void)snprintf(out->no_job, sizeof out->no_job, "%s", spw_last_error());
    out->time = (spw_timeline){.components = 0};
    return SPW_OK;
}

/* --- All rows --- */

spw_status spw_run_score_open(const char *const *tables, size_t count, const char *stack,
                              spw_run_score *out) {
    spw_status status = SPW_OK;
    workplace *w = NULL;
    size_t rows = 0;
    *out = (spw_run_score){.rows = 0};
    SPW_TRY(SPW_ALLOC(1, &w));
    SPW_TRY(SPW_ALLOC(count, &out->csv));
    w->stack = stack;
    SPW_TRY(spw_score_read_tables(tables, count, out->csv, &out->tables, &rows));
    SPW_TRY(SPW_ALLOC(rows, &out->row));
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < spw_csv_rows(out->csv[t]); i++)
            SPW_TRY(read_row(out->csv[t], i, w, &out->row[out->rows++]));

cleanup:
    spw_free(w);
    if (status != SPW_OK) spw_run_score_close(out);
    return status;
}

void spw_run_score_close(spw_run_score *score) {
    for (size_t i = 0; i < score->rows; i++) spw_run_question_close(&score->row[i].question);
    for (size_t t = 0; t < score->tables; t++) spw_csv_close(score->csv[t]);
    spw_free(score->csv);
    spw_free(score->row);
    *score = (spw_run_score){.rows = 0};
}

bool spw_run_is_timed(const spw_run_row *row) { return row->time.components > 0; }

double spw_run_throughput_error(const spw_run_row *row) {
    return spw_run_is_timed(row) ? row->time.tokens_per_s_per_gpu / row->true_tokens_per_s_per_gpu - 1.0
                                 : NAN;
}

double spw_run_memory_error(const spw_run_row *row) {
    return row->no_job[0] == '\0' ? (double)row->peak_bytes / GIB / row->true_memory_gib - 1.0 : NAN;
}

bool spw_run_is_inside(const spw_run_row *row) {
    if (!spw_run_is_timed(row)) return false;
    const double step_s = row->time.step_s * row->time.tokens_per_s_per_gpu / row->true_tokens_per_s_per_gpu;
    return step_s >= row->time.low_s && step_s <= row->time.high_s;
}

spw_run_status spw_run_predicted_status(const spw_run_row *row) {
    if (row->no_job[0] != '\0') return SPW_RUN_UNKNOWN;
    return row->verdict == SPW_VERDICT_OOM ? SPW_RUN_OOM : SPW_RUN_FITS;
}

static void count_row(const spw_run_row *row, spw_run_summary *out, double *error, double *width) {
    const spw_run_status predicted = spw_run_predicted_status(row);
    const double off = spw_run_throughput_error(row), memory = spw_run_memory_error(row);
    out->rows++;
    out->skipped += !spw_run_is_timed(row);
    out->untimed += !spw_run_is_timed(row) && row->no_job[0] == '\0';
    if (predicted != SPW_RUN_UNKNOWN && row->true_status != SPW_RUN_UNKNOWN) {
        out->verdicts++;
        out->verdicts_wrong += predicted != row->true_status;
    }
    if (!isnan(memory)) {
        out->memory_cells++;
        out->memory_mean += fabs(memory);
    }
    if (isnan(off)) return;
    error[out->throughput_cells] = fabs(off);
    width[out->throughput_cells++] = row->time.high_s / row->time.low_s;
    out->inside += spw_run_is_inside(row);
    out->throughput_mape += fabs(off);
    out->throughput_bias += off;
    out->throughput_max = fmax(out->throughput_max, fabs(off));
}

static bool is_measured(const spw_run_row *row) { return !isnan(spw_run_throughput_error(row)); }

static bool are_alike(const spw_run_row *a, const spw_run_row *b) {
    return strcmp(a->question.model, b->question.model) == 0 &&
           strcmp(a->question.hardware, b->question.hardware) == 0 &&
           a->question.size.gpus == b->question.size.gpus;
}

static void count_pair(const spw_run_row *a, const spw_run_row *b, spw_run_pairs *out) {
    const double predicted = a->time.tokens_per_s_per_gpu - b->time.tokens_per_s_per_gpu;
    const double published = a->true_tokens_per_s_per_gpu - b->true_tokens_per_s_per_gpu;
    if (published == 0.0) return;
    const bool right = predicted * published > 0.0;
    const double chance = spw_timeline_faster(&a->time, &b->time);
    const bool called = fmax(chance, 1.0 - chance) >= SPW_CALLED;
    out->pairs++;
    out->tied += predicted == 0.0;
    out->order_right += right;
    out->called += called;
    out->called_right += called && right;
}

spw_status spw_run_summarise(const spw_run_score *score,
                             bool (*with)(const spw_run_row *row, const void *state), const void *state,
                             spw_run_summary *out) {
    double *error = NULL, *width = NULL;
    spw_status status = SPW_OK;
    *out = (spw_run_summary){.rows = 0};
    SPW_TRY(SPW_ALLOC(score->rows, &error));
    SPW_TRY(SPW_ALLOC(score->rows, &width));
    for (size_t i = 0; i < score->rows; i++)
        if (with == NULL || with(&score->row[i], state)) count_row(&score->row[i], out, error, width);
    for (size_t i = 0; i < score->rows; i++)
        for (size_t j = 0; j < i; j++) {
            const spw_run_row *a = &score->row[i], *b = &score->row[j];
            if (with != NULL && !(with(a, state) && with(b, state))) continue;
            if (is_measured(a) && is_measured(b) && are_alike(a, b)) count_pair(a, b, &out->pairs);
        }
    const double cells = out->throughput_cells > 0 ? (double)out->throughput_cells : NAN;
    out->throughput_mape /= cells;
    out->throughput_bias /= cells;
    out->throughput_max = out->throughput_cells > 0 ? out->throughput_max : NAN;
    out->memory_mean /= out->memory_cells > 0 ? (double)out->memory_cells : NAN;
    out->throughput_median = spw_quantile(error, out->throughput_cells, 0.5);
    out->width_median = spw_quantile(width, out->throughput_cells, 0.5);

cleanup:
    spw_free(error);
    spw_free(width);
    return status;
}
