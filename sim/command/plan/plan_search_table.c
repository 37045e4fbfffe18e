#include "sim/command/plan/plan_search_table.h"
#include "base/memory.h"
#include "sim/job/trainer.h"
#include "sim/result/row_cost_print.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

enum { FRONT_LINES = 12, LABEL = 10 };

static const spw_column columns[] = {
    {"scheme", "scheme"},
    {"gpus", "GPUs"},
    {"expert_parallel", "EP"},
    {"fsdp", "FSDP"},
    {"pipeline", "PP"},
    {"tensor", "TP"},
    {"context", "CP"},
    {"expert_tensor", "ETP"},
    {"virtual_stages", "VPP"},
    {"micro_batches", "micro"},
    {"sequences_per_gpu", "seq"},
    {"remat", "remat"},
    {"verdict", NULL},
    {"memory_kind", NULL},
    {"peak_bytes", "GiB"},
    {"low_bytes", NULL},
    {"high_bytes", NULL},
    {"budget_bytes", NULL},
    {"surely_fits", NULL},
    {"drop_fraction", "dropped"},
    {"step_s", "step s"},
    {"low_s", "low-high"},
    {"high_s", NULL},
    {"tokens_per_s_per_gpu", "tok/s/GPU"},
    {"tokens_per_s_low", NULL},
    {"tokens_per_s_high", NULL},
    {"faster_than_next", "faster"},
    SPW_ROW_COST_LIST(SPW_ROW_COST_COLUMN) /* a figure and its ends */
    {"step_tokens", NULL},
    {"outside_fit", NULL},
    {"balanced_step_s", NULL},
    {"balanced_tokens_per_s_per_gpu", NULL},
    {"balanced_peak_bytes", NULL},
    {"balanced_drop_fraction", NULL},
    {NULL, NULL},
};

/* Columns that a person does not need where the space has one value. */
static const struct {
    size_t dimension, column;
} optional[] = {{SPW_SEARCH_GPUS, 1}, {SPW_SEARCH_TENSOR, 5}, {SPW_SEARCH_CONTEXT, 6}};

static const size_t of_time[] = {20, 21, 23}; /* step, interval, speed */

static void set_heading(spw_column *column, const char *key, const char *heading) {
    while (strcmp(column->key, key) != 0) column++;
    column->heading = heading;
}

/* A figure and its ends; a person sees the figure. */
static void add_cost(spw_table *t, const spw_cost_figure *f) {
    char text[SPW_SPAN_TEXT];
    if (!isfinite(f->value)) {
        for (int i = 0; i < 3; i++) spw_table_none(t);
        return;
    }
    spw_table_real_shown(t, f->value, spw_amount_text(f->value, text));
    spw_table_real(t, f->low, NULL);
    spw_table_real(t, f->high, NULL);
}

static void add_times(spw_table *t, const spw_search_view *v, const spw_search_point *p) {
    char text[SPW_SPAN_TEXT];
    spw_named_cost costs[SPW_ROW_COSTS];
    const spw_row_cost cost = spw_search_cost(v, p);
    spw_row_cost_list(&cost, costs);
    spw_table_real_shown(t, p->step.step_s, spw_figure_text(p->step.step_s, text));
    spw_table_interval(t, p->step.low_s, p->step.high_s);
    spw_table_real(t, p->tokens_per_s_per_gpu, p->tokens_per_s_per_gpu < 10.0 ? "%.2f" : "%.0f");
    spw_table_real(t, p->tokens_per_s_low, NULL);
    spw_table_real(t, p->tokens_per_s_high, NULL);
    double chance = NAN;
    if (spw_search_front_next(&v->outcome->front, p, &chance) != NULL)
        spw_table_real_shown(t, chance, spw_search_chance_text(chance, text));
    else
        spw_table_none(t);
    for (size_t i = 0; i < SPW_ROW_COSTS; i++) add_cost(t, &costs[i].figure);
}

static void add_point(spw_table *t, const spw_search_view *v, const spw_search_point *p,
                      const char *outside) {
    enum { OF_TIME = 7 + 3 * SPW_ROW_COSTS };
    char remat[SPW_REMAT_TEXT];
    spw_table_text(t, v->request->plan->scheme[p->scheme].text);
    spw_table_count(t, p->gpus);
    spw_table_count(t, p->value[SPW_SEARCH_EXPERT]);
    spw_table_count(t, p->fsdp);
    spw_table_count(t, p->value[SPW_SEARCH_PIPELINE]);
    spw_table_count(t, p->value[SPW_SEARCH_TENSOR]);
    spw_table_count(t, p->value[SPW_SEARCH_CONTEXT]);
    spw_table_count(t, spw_search_expert_tensor(p->value));
    spw_table_count(t, p->value[SPW_SEARCH_VIRTUAL_STAGES]);
    spw_table_count(t, p->value[SPW_SEARCH_MICRO_BATCHES]);
    spw_table_count(t, p->sequences);
    spw_table_text(t, spw_search_value_text(SPW_SEARCH_REMAT, p->value[SPW_SEARCH_REMAT], remat));
    spw_table_text(t, spw_verdict_name(p->verdict));
    spw_table_text(t, spw_memory_kind_name(p->kind));
    spw_table_scaled(t, (double)p->peak_bytes, GIB,
                     p->kind == SPW_MEMORY_LIVE ? (p->surely_fits ? "%.1f*" : "%.1f*?")
                     : p->surely_fits           ? "%.1f"
                                                : "%.1f?");
    spw_table_count(t, p->low_bytes);
    spw_table_count(t, p->high_bytes);
    spw_table_count(t, p->budget_bytes);
    spw_table_text(t, p->surely_fits ? "yes" : "no");
    spw_table_scaled(t, p->drops.fraction, 0.01, p->drops.at_least ? ">=%.2f %%" : "%.2f %%");
    for (int i = 0; i < OF_TIME && !p->timed; i++) spw_table_none(t);
    if (p->timed) add_times(t, v, p);
    spw_table_count(t, p->step_tokens);
    spw_table_text(t, outside);
    if (p->timed) {
        spw_table_real(t, p->balanced.step.step_s, NULL);
        spw_table_real(t, p->balanced.tokens_per_s_per_gpu, NULL);
    } else {
        spw_table_none(t);
        spw_table_none(t);
    }
    spw_table_count(t, p->balanced.peak_bytes);
    spw_table_real(t, p->balanced.drop_fraction, NULL);
}

/* A column that says nothing for a person here is left out, and so are costs that nobody asked for. */
static void choose_columns(const spw_search_view *v, bool letters, spw_column *own) {
    const bool priced = v->request->cost_tokens > 0.0 && !v->outcome->untimed;
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (v->request->space->values[optional[i].dimension] == 1) own[optional[i].column].heading = NULL;
    const size_t *values = v->request->space->values;
    if (values[SPW_SEARCH_TENSOR] == 1 && values[SPW_SEARCH_EXPERT_TENSOR] == 1)
        set_heading(own, "expert_tensor", NULL);
    for (size_t i = 0; i < sizeof of_time / sizeof *of_time && v->outcome->untimed; i++)
        own[of_time[i]].heading = NULL;
    if (v->outcome->untimed || v->outcome->front.points == 1) set_heading(own, "faster_than_next", NULL);
    if (letters) set_heading(own, "outside_fit", "outside");
    if (!priced) return;
    set_heading(own, "tokens_per_day", "tokens/day");
    set_heading(own, "gpu_hours", "GPU-hours");
    if (spw_job_price(v->request->plan->job) > 0.0) set_heading(own, "money", "cost");
}

/* Rows whose micro-batches MaxText's pipeline makes: their sequences are those of one. */
static void print_made(const spw_search_view *v, size_t lines, FILE *out) {
    const spw_search_front *f = &v->outcome->front;
    bool any = false;
    for (size_t i = 0; i < lines; i++) {
        const spw_search_point *p = &f->point[i];
        any = any || (spw_scheme_trainer(&v->request->plan->scheme[p->scheme])->has_turns &&
                      p->value[SPW_SEARCH_PIPELINE] > 1 && p->value[SPW_SEARCH_MICRO_BATCHES] <= 1);
    }
    if (any)
        fputs("micro 1 with PP above 1: MaxText has as many micro-batches as PP, each of seq sequences: a "
              "step is\n"
              "  that of micro = PP and PP times seq\n",
              out);
}

spw_status spw_search_print_front(const spw_search_view *v, spw_format format, FILE *out) {
    const spw_search_front *f = &v->outcome->front;
    const bool few = format == SPW_FORMAT_TABLE && f->points > FRONT_LINES;
    const size_t lines = few ? (size_t)FRONT_LINES : f->points;
    char outside[SPW_SEARCH_OUTSIDE_TEXT];
    spw_column own[sizeof columns / sizeof *columns];
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    spw_search_legend *legend = NULL;
    memcpy(own, columns, sizeof own);
    SPW_TRY(SPW_ALLOC(1, &legend));
    spw_search_legend_make(&v->outcome->reasons, f->point, lines, legend);
    choose_columns(v, legend->letters > 0, own);
    SPW_TRY(spw_table_create(own, &table));
    for (size_t i = 0; i < lines; i++)
        add_point(table, v, &f->point[i],
                  format == SPW_FORMAT_TABLE
                      ? spw_search_legend_cell(legend, &f->point[i], outside)
                      : spw_search_outside_text(&v->outcome->reasons, &f->point[i], outside));
    SPW_TRY(spw_table_print(table, format, out));
    if (format == SPW_FORMAT_TABLE && f->points > 1 && !v->outcome->untimed)
        fputs("faster: how sure it is that the point is faster than the next slower one on as many GPUs\n",
              out);
    if (format == SPW_FORMAT_TABLE) print_made(v, lines, out);
    if (few) fprintf(out, "... and %zu more that no other beats: --format csv\n", f->points - FRONT_LINES);
    if (format == SPW_FORMAT_TABLE) spw_search_legend_print(legend, out);

cleanup:
    spw_free(legend);
    spw_table_destroy(table);
    return status;
}
