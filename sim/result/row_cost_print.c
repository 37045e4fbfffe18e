#include "sim/result/row_cost_print.h"

#include "sim/job/job.h"
#include "sim/print/plural.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const double TERA = 1e12, PERCENT = 0.01;

void spw_row_cost_add(spw_table *table, const spw_row_cost *cost) {
    spw_named_cost list[SPW_ROW_COSTS];
    spw_row_cost_list(cost, list);
    for (size_t i = 0; i < SPW_ROW_COSTS; i++) {
        spw_table_real(table, list[i].figure.value, NULL);
        spw_table_real(table, list[i].figure.low, NULL);
        spw_table_real(table, list[i].figure.high, NULL);
    }
}

/* "6.8 B (6.4 B to 7.2 B)" */
static void print_figure(const spw_cost_figure *f, double unit, const char *of, FILE *out) {
    char text[3][SPW_SPAN_TEXT];
    fprintf(out, "%s (%s to %s)%s", spw_amount_text(f->value / unit, text[0]),
            spw_amount_text(f->low / unit, text[1]), spw_amount_text(f->high / unit, text[2]), of);
}

void spw_row_cost_training(const spw_row_cost *cost, double tokens, int indent, FILE *out) {
    char number[SPW_SPAN_TEXT];
    if (!isfinite(cost->days.value)) return;
    fprintf(out, "%*s%s tokens: ", indent, "", spw_amount_text(tokens, number));
    print_figure(&cost->days, 1.0, " days, ", out);
    print_figure(&cost->gpu_hours, 1.0, " GPU-hours", out);
    if (isfinite(cost->money.value)) {
        fprintf(out, ", cost ");
        print_figure(&cost->money, 1.0, "", out);
    }
    fprintf(out, "\n");
}

void spw_row_cost_lines(const spw_row_cost *cost, double tokens, int indent, FILE *out) {
    char number[SPW_SPAN_TEXT];
    if (!isfinite(cost->tokens_per_day.value)) return;
    fprintf(out, "%*s", indent, "");
    if (isfinite(cost->mfu.value)) {
        fprintf(out, "MFU ");
        print_figure(&cost->mfu, PERCENT, " %, ", out);
        fprintf(out, "%s TFLOP/s a GPU, ", spw_amount_text(cost->flops_per_s_per_gpu.value / TERA, number));
    }
    print_figure(&cost->tokens_per_day, 1.0, " tokens a day\n", out);
    spw_row_cost_training(cost, tokens, indent, out);
}

/* --- The table of a replay --- */

static const spw_column columns[] = {{"scheme", "scheme"},
                                     {"first_step", "step"},
                                     {"sequences_per_gpu", "seq/GPU"},
                                     {"mfu", "MFU %"},
                                     {"mfu_low", "low-high"},
                                     {"mfu_high", NULL},
                                     {"flops_per_s_per_gpu", "TFLOP/s/GPU"},
                                     {"tokens_per_day", "tokens/day"},
                                     {"tokens_per_day_low", "low-high"},
                                     {"gpu_hours", "GPU-hours"},
                                     {"gpu_hours_low", "low-high"},
                                     {"money", "cost"},
                                     {"money_low", "low-high"},
                                     {NULL, NULL}};
enum {
    COLUMNS = sizeof columns / sizeof *columns,
    STEP = 1,
    SEQUENCES,
    MFU,
    TERAFLOPS = 6,
    HOURS = 9,
    MONEY = 11
};

static void add_figure(spw_table *t, const spw_cost_figure *f, double unit) {
    char text[SPW_SPAN_TEXT], low[SPW_SPAN_TEXT], high[SPW_SPAN_TEXT];
    if (!isfinite(f->value)) {
        spw_table_none(t);
        spw_table_none(t);
        return;
    }
    spw_table_real_shown(t, f->value, spw_amount_text(f->value / unit, text));
    (void)snprintf(text, sizeof text, "%.20s-%.20s", spw_amount_text(f->low / unit, low),
                   spw_amount_text(f->high / unit, high));
    spw_table_real_shown(t, f->low, text);
}

static void add_row(spw_table *t, const spw_result_row *r, const spw_run_settings *s) {
    const spw_row_cost cost = spw_row_cost_of(r, s->job, s->tokens);
    char text[64];
    (void)snprintf(text, sizeof text, r->steps == 1 ? "%" PRId64 : "%" PRId64 "-%" PRId64, r->first_step,
                   r->last_step);
    spw_table_text(t, r->scheme.text);
    spw_table_shown(t, (uint64_t)r->first_step, text);
    spw_table_count(t, r->sequences);
    add_figure(t, &cost.mfu, PERCENT);
    spw_table_none(t);
    spw_table_scaled(t, cost.flops_per_s_per_gpu.value, TERA, "%.0f");
    add_figure(t, &cost.tokens_per_day, 1.0);
    add_figure(t, &cost.gpu_hours, 1.0);
    add_figure(t, &cost.money, 1.0);
}

spw_status spw_row_costs_print(const spw_result *result, const spw_run_settings *s, bool steps,
                               bool sequences, FILE *out) {
    spw_column shown[COLUMNS];
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    size_t timed = 0;
    for (size_t i = 0; i < result->rows; i++) timed += result->row[i].timed;
    if (timed == 0) return SPW_OK;
    memcpy(shown, columns, sizeof shown);
    if (!steps) shown[STEP].heading = NULL;
    if (!sequences) shown[SEQUENCES].heading = NULL;
    for (int c = MFU; c <= TERAFLOPS && s->job->part != SPW_PART_WHOLE; c++) shown[c].heading = NULL;
    for (int c = HOURS; c < MONEY && !(s->tokens > 0.0); c++) shown[c].heading = NULL;
    for (int c = MONEY; c < COLUMNS && !(s->tokens > 0.0 && spw_job_price(s->job) > 0.0); c++)
        shown[c].heading = NULL;
    SPW_TRY(spw_table_create(shown, &table));
    for (size_t i = 0; i < result->rows; i++)
        if (result->row[i].timed) add_row(table, &result->row[i], s);
    fprintf(out, "\nwhat that makes of %zu GPU%s", spw_job_gpus(s->job), spw_plural(spw_job_gpus(s->job)));
    if (s->tokens > 0.0) fprintf(out, ", and what %g tokens take", s->tokens);
    fprintf(out, "\n");
    SPW_TRY(spw_table_print(table, SPW_FORMAT_TABLE, out));

cleanup:
    spw_table_destroy(table);
    return status;
}
