#include "sim/result/row_cost_print.h"

#include "sim/job/job.h"
#include "sim/print/plural.h"

#include <math.h>

static const double TERA = 1e12, PERCENT = 0.01;

void spw_row_cost_add(spw_table *table, const spw_row_cost *cost) {
    spw_named_cost list[SPW_ROW_COSTS];
    spw_row_cost_list(cost, list);
    for (size_t i = 0; i < SPW_ROW_COSTS; i++) {
        spw_table_real(spw_table_in(table, list[i].name, NULL), list[i].figure.value, NULL);
        spw_table_real(spw_table_in(table, list[i].low, NULL), list[i].figure.low, NULL);
        spw_table_real(spw_table_in(table, list[i].high, NULL), list[i].figure.high, NULL);
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

/* A figure, and its ends in one cell. heading NULL: neither is shown. */
static void add_figure(spw_table *t, const spw_named_cost *c, const char *heading, double unit) {
    char text[2 * SPW_SPAN_TEXT], low[SPW_SPAN_TEXT], high[SPW_SPAN_TEXT];
    const spw_cost_figure *f = &c->figure;
    const bool there = isfinite(f->value);
    (void)snprintf(text, sizeof text, "%.20s-%.20s", spw_amount_text(f->low / unit, low),
                   spw_amount_text(f->high / unit, high));
    spw_table_real_shown(spw_table_in(t, c->name, heading), f->value,
                         there ? spw_amount_text(f->value / unit, low) : "-");
    spw_table_real_shown(spw_table_in(t, c->low, heading != NULL ? "low-high" : NULL), there ? f->low : NAN,
                         there ? text : "-");
}

/* step, sequences: these columns are shown. */
static void add_row(spw_table *t, const spw_result_row *r, const spw_run_settings *s, bool step,
                    bool sequences) {
    const spw_row_cost cost = spw_row_cost_of(r, s->job, s->tokens);
    const bool whole = s->job->part == SPW_PART_WHOLE, tokens = s->tokens > 0.0;
    char text[SPW_STEPS_TEXT];
    spw_table_text(spw_table_in(t, "scheme", "scheme"), r->scheme.text);
    spw_table_shown(spw_table_in(t, "first_step", step ? "step" : NULL), (uint64_t)r->first_step,
                    spw_result_steps_text(r, text));
    spw_table_count(spw_table_in(t, "sequences_per_gpu", sequences ? "seq/GPU" : NULL), r->sequences);
    add_figure(t, &(spw_named_cost){"mfu", "mfu_low", NULL, cost.mfu}, whole ? "MFU %" : NULL, PERCENT);
    spw_table_scaled(spw_table_in(t, "flops_per_s_per_gpu", whole ? "TFLOP/s/GPU" : NULL),
                     cost.flops_per_s_per_gpu.value, TERA, "%.0f");
    add_figure(t, &(spw_named_cost){"tokens_per_day", "tokens_per_day_low", NULL, cost.tokens_per_day},
               "tokens/day", 1.0);
    add_figure(t, &(spw_named_cost){"gpu_hours", "gpu_hours_low", NULL, cost.gpu_hours},
               tokens ? "GPU-hours" : NULL, 1.0);
    add_figure(t, &(spw_named_cost){"money", "money_low", NULL, cost.money},
               tokens && spw_job_price(s->job) > 0.0 ? "cost" : NULL, 1.0);
}

spw_status spw_row_costs_print(const spw_result *result, const spw_run_settings *s, bool steps,
                               bool sequences, FILE *out) {
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    size_t timed = 0;
    for (size_t i = 0; i < result->rows; i++) timed += result->row[i].timed;
    if (timed == 0) return SPW_OK;
    SPW_TRY(spw_table_create(NULL, &table));
    for (size_t i = 0; i < result->rows; i++)
        if (result->row[i].timed) add_row(table, &result->row[i], s, steps, sequences);
    fprintf(out, "\nwhat that makes of %zu GPU%s", spw_job_gpus(s->job), spw_plural(spw_job_gpus(s->job)));
    if (s->tokens > 0.0) fprintf(out, ", and what %g tokens take", s->tokens);
    fprintf(out, "\n");
    SPW_TRY(spw_table_print(table, SPW_FORMAT_TABLE, out));

cleanup:
    spw_table_destroy(table);
    return status;
}
