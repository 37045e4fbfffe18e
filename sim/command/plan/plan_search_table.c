#include "sim/command/plan/plan_search_table.h"
#include "base/memory.h"
#include "sim/job/trainer.h"
#include "sim/result/row_cost_print.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

enum { FRONT_LINES = 12, LABEL = 10 };

/* A figure and its ends; a person sees the figure, of those that were asked for. */
static void add_cost(spw_table *t, const spw_named_cost *c, bool timed, bool priced) {
    static const char *const headings[][2] = {
        {"tokens_per_day", "tokens/day"}, {"gpu_hours", "GPU-hours"}, {"money", "cost"}};
    const bool there = timed && isfinite(c->figure.value);
    const char *heading = NULL;
    for (size_t i = 0; i < sizeof headings / sizeof *headings && priced; i++)
        if (strcmp(c->name, headings[i][0]) == 0) heading = headings[i][1];
    spw_table_amount(spw_table_in(t, c->name, heading), there ? c->figure.value : NAN);
    spw_table_real(spw_table_in(t, c->low, NULL), there ? c->figure.low : NAN, NULL);
    spw_table_real(spw_table_in(t, c->high, NULL), there ? c->figure.high : NAN, NULL);
}

/* Tokens a day also where a search is for these. */
static bool is_asked(const spw_search_view *v, const char *name) {
    const bool priced = v->request->cost_tokens > 0.0;
    if (strcmp(name, "tokens_per_day") == 0) return priced || v->request->tokens_per_day > 0.0;
    return priced && (strcmp(name, "money") != 0 || spw_job_price(v->request->plan->job) > 0.0);
}

static void add_times(spw_table *t, const spw_search_view *v, const spw_search_front *front,
                      const spw_search_point *p) {
    char text[SPW_SPAN_TEXT];
    spw_named_cost costs[SPW_ROW_COSTS];
    const bool any = !v->outcome->untimed;
    const spw_row_cost cost = spw_search_cost(v, p);
    double chance = NAN;
    spw_row_cost_list(&cost, costs);
    spw_table_figure(spw_table_in(t, "step_s", any ? "step s" : NULL), p->timed ? p->step.step_s : NAN);
    spw_table_interval(t, (spw_column){"low_s", any ? "low-high" : NULL}, "high_s",
                       p->timed ? p->step.low_s : NAN, p->timed ? p->step.high_s : NAN);
    spw_table_real(spw_table_in(t, "tokens_per_s_per_gpu", any ? "tok/s/GPU" : NULL),
                   p->timed ? p->tokens_per_s_per_gpu : NAN,
                   p->tokens_per_s_per_gpu < 10.0 ? "%.2f" : "%.0f");
    spw_table_real(spw_table_in(t, "tokens_per_s_low", NULL), p->timed ? p->tokens_per_s_low : NAN, NULL);
    spw_table_real(spw_table_in(t, "tokens_per_s_high", NULL), p->timed ? p->tokens_per_s_high : NAN, NULL);
    const bool next = p->timed && spw_search_front_next(front, p, &chance) != NULL;
    spw_table_real_shown(spw_table_in(t, "faster_than_next", any && front->points != 1 ? "faster" : NULL),
                         next ? chance : NAN, next ? spw_search_chance_text(chance, text) : "-");
    for (size_t i = 0; i < SPW_ROW_COSTS; i++)
        add_cost(t, &costs[i], p->timed, any && is_asked(v, costs[i].name));
}

/* A column that says nothing for a person here has no heading: where the space has one value of it, say. */
static void add_split(spw_table *t, const spw_search_view *v, const spw_search_point *p) {
    const size_t *values = v->request->space->values, *value = p->value;
    const bool tensor = values[SPW_SEARCH_TENSOR] != 1;
    char remat[SPW_REMAT_TEXT];
    spw_table_text(spw_table_in(t, "scheme", "scheme"), v->request->plan->scheme[p->scheme].text);
    spw_table_count(spw_table_in(t, "gpus", values[SPW_SEARCH_GPUS] != 1 ? "GPUs" : NULL), p->gpus);
    spw_table_count(spw_table_in(t, "expert_parallel", "EP"), value[SPW_SEARCH_EXPERT]);
    spw_table_count(spw_table_in(t, "fsdp", "FSDP"), p->fsdp);
    spw_table_count(spw_table_in(t, "pipeline", "PP"), value[SPW_SEARCH_PIPELINE]);
    spw_table_count(spw_table_in(t, "tensor", tensor ? "TP" : NULL), value[SPW_SEARCH_TENSOR]);
    spw_table_count(spw_table_in(t, "context", values[SPW_SEARCH_CONTEXT] != 1 ? "CP" : NULL),
                    value[SPW_SEARCH_CONTEXT]);
    spw_table_count(
        spw_table_in(t, "expert_tensor", tensor || values[SPW_SEARCH_EXPERT_TENSOR] != 1 ? "ETP" : NULL),
        spw_search_expert_tensor(value));
    spw_table_count(spw_table_in(t, "virtual_stages", "VPP"), value[SPW_SEARCH_VIRTUAL_STAGES]);
    spw_table_count(spw_table_in(t, "micro_batches", "micro"), value[SPW_SEARCH_MICRO_BATCHES]);
    spw_table_count(spw_table_in(t, "sequences_per_gpu", "seq"), p->sequences);
    spw_table_text(spw_table_in(t, "remat", "remat"),
                   spw_search_value_text(SPW_SEARCH_REMAT, value[SPW_SEARCH_REMAT], remat));
}

void spw_search_row(spw_table *t, const spw_search_view *v, const spw_search_front *front,
                    const spw_search_point *p, const char *outside, bool letters) {
    add_split(t, v, p);
    spw_table_text(spw_table_in(t, "verdict", NULL), spw_verdict_name(p->verdict));
    spw_table_text(spw_table_in(t, "memory_kind", NULL), spw_memory_kind_name(p->kind));
    spw_table_count_of(spw_table_in(t, "peak_bytes", "GiB"), true, p->peak_bytes, GIB,
                       p->kind == SPW_MEMORY_LIVE ? (p->surely_fits ? "%.1f*" : "%.1f*?")
                       : p->surely_fits           ? "%.1f"
                                                  : "%.1f?");
    spw_table_count(spw_table_in(t, "low_bytes", NULL), p->low_bytes);
    spw_table_count(spw_table_in(t, "high_bytes", NULL), p->high_bytes);
    spw_table_count(spw_table_in(t, "budget_bytes", NULL), p->budget_bytes);
    spw_table_flag(spw_table_in(t, "surely_fits", NULL), p->surely_fits);
    spw_table_scaled(spw_table_in(t, "drop_fraction", "dropped"), p->drops.fraction, 0.01,
                     p->drops.at_least ? ">=%.2f %%" : "%.2f %%");
    add_times(t, v, front, p);
    spw_table_count(spw_table_in(t, "step_tokens", NULL), p->step_tokens);
    spw_table_text(spw_table_in(t, "outside_fit", letters ? "outside" : NULL), outside);
    spw_table_real(spw_table_in(t, "balanced_step_s", NULL), p->timed ? p->balanced.step.step_s : NAN, NULL);
    spw_table_real(spw_table_in(t, "balanced_tokens_per_s_per_gpu", NULL),
                   p->timed ? p->balanced.tokens_per_s_per_gpu : NAN, NULL);
    spw_table_count(spw_table_in(t, "balanced_peak_bytes", NULL), p->balanced.peak_bytes);
    spw_table_real(spw_table_in(t, "balanced_drop_fraction", NULL), p->balanced.drop_fraction, NULL);
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
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    spw_search_legend *legend = NULL;
    SPW_TRY(SPW_ALLOC(1, &legend));
    spw_search_legend_make(&v->outcome->reasons, f->point, lines, legend);
    SPW_TRY(spw_table_create(NULL, &table));
    if (lines == 0) { /* its columns alone */
        spw_search_row(table, v, f, &f->best, "", false);
        spw_table_empty(table);
    }
    for (size_t i = 0; i < lines; i++)
        spw_search_row(table, v, f, &f->point[i],
                       format == SPW_FORMAT_TABLE
                           ? spw_search_legend_cell(legend, &f->point[i], outside)
                           : spw_search_outside_text(&v->outcome->reasons, &f->point[i], outside),
                       legend->letters > 0);
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
