#include "sim/command/plan/plan_search_notes.h"

#include "sim/job/trainer.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/time_stack.h"
#include "sim/memory/live/assumed_layout.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/print/plural.h"
#include "sim/replay/smallest_factor.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { LETTERS = 26 };

static double out_of_hundred(double chance) { return fmin(round(100.0 * chance), 99.0); }

const char *spw_search_chance_text(double chance, char out[SPW_SPAN_TEXT]) {
    (void)snprintf(out, SPW_SPAN_TEXT, "%.0f %%", out_of_hundred(chance));
    return out;
}

const char *spw_search_next_text(const spw_search_view *v, const spw_search_point *p,
                                 char out[SPW_SEARCH_NEXT_TEXT]) {
    char text[SPW_SEARCH_POINT_TEXT];
    double chance = NAN;
    const spw_search_point *next = spw_search_front_next(&v->outcome->front, p, &chance);
    out[0] = '\0';
    if (next == NULL) return out;
    spw_search_point_text(v, next->value, next->sequences, next->scheme, text);
    (void)snprintf(out, SPW_SEARCH_NEXT_TEXT, "; faster than the next below, %s, in %.0f of 100", text,
                   out_of_hundred(chance));
    return out;
}

spw_row_cost spw_search_cost(const spw_search_view *v, const spw_search_point *p) {
    const spw_cost_figure speed = {p->tokens_per_s_per_gpu, p->tokens_per_s_low, p->tokens_per_s_high};
    return spw_cost_of_speed(speed, p->step.step_s, v->request->plan->job, p->gpus, v->request->cost_tokens);
}

void spw_search_options_text(const spw_search_view *v, const spw_search_point *p,
                             char out[SPW_SEARCH_OPTIONS_TEXT]) {
    char value[SPW_REMAT_TEXT];
    size_t used = (size_t)snprintf(out, SPW_SEARCH_OPTIONS_TEXT, "--scheme %.200s --sequences-per-gpu %zu",
                                   v->request->plan->scheme[p->scheme].text, p->sequences);
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++)
        used += (size_t)snprintf(out + used, SPW_SEARCH_OPTIONS_TEXT - used, " --%s %s",
                                 spw_search_dimension_name(d), spw_search_value_text(d, p->value[d], value));
    const spw_imbalance_law *law = v->request->plan->imbalance;
    if (law != NULL) /* the option would speak of the point's own size */
        (void)snprintf(out + used, SPW_SEARCH_OPTIONS_TEXT - used, " --imbalance %.17g,ep=%zu",
                       law->max_over_mean, law->ranks);
}

/* The first reason of the same words: memory and time may have the same. */
static size_t first_of(const spw_search_reasons *all, size_t reason) {
    size_t first = 0;
    while (strcmp(all->item[first].feature, all->item[reason].feature) != 0) first++;
    return first;
}

static bool has(const spw_search_reasons *all, const spw_search_point *p, size_t reason) {
    for (size_t i = 0; i < p->outside.count; i++)
        if (first_of(all, p->outside.reason[i]) == reason) return true;
    return false;
}

static void append(char *out, size_t size, const char *between, const char *text) {
    const size_t used = strlen(out);
    (void)snprintf(out + used, size - used, "%s%s", used > 0 ? between : "", text);
}

const char *spw_search_outside_text(const spw_search_reasons *all, const spw_search_point *p,
                                    char out[SPW_SEARCH_OUTSIDE_TEXT]) {
    out[0] = '\0';
    for (size_t i = 0; i < all->count; i++)
        if (first_of(all, i) == i && has(all, p, i))
            append(out, SPW_SEARCH_OUTSIDE_TEXT, "; ", all->item[i].feature);
    return out;
}

void spw_search_legend_make(const spw_search_reasons *all, const spw_search_point *point, size_t points,
                            spw_search_legend *out) {
    *out = (spw_search_legend){.all = all};
    for (size_t i = 0; i < all->count; i++) {
        size_t rows = 0;
        if (first_of(all, i) != i) continue;
        for (size_t p = 0; p < points; p++) rows += has(all, &point[p], i);
        out->shared[i] = rows > 0 && rows == points;
        if (rows > 0 && rows < points) out->letter[i] = ++out->letters;
    }
}

/* a, b, ... z, a1, b1, ... */
static void name_letter(size_t letter, char out[16]) {
    const size_t turn = (letter - 1) / LETTERS;
    (void)snprintf(out, 16, turn > 0 ? "%c%zu" : "%c", (int)('a' + (letter - 1) % LETTERS), turn);
}

const char *spw_search_legend_cell(const spw_search_legend *l, const spw_search_point *p,
                                   char out[SPW_SEARCH_OUTSIDE_TEXT]) {
    char name[16];
    out[0] = '\0';
    for (size_t i = 0; i < l->all->count; i++) {
        if (l->letter[i] == 0 || !has(l->all, p, i)) continue;
        name_letter(l->letter[i], name);
        append(out, SPW_SEARCH_OUTSIDE_TEXT, " ", name);
    }
    if (out[0] == '\0') append(out, SPW_SEARCH_OUTSIDE_TEXT, "", "-");
    return out;
}

void spw_search_legend_print(const spw_search_legend *l, FILE *out) {
    const char *begin = "outside the fit, every point: ";
    char name[16];
    for (size_t i = 0; i < l->all->count; i++) {
        if (!l->shared[i]) continue;
        fprintf(out, "%s%s", begin, l->all->item[i].feature);
        begin = "; ";
    }
    if (begin[0] == ';') fprintf(out, "\n");
    begin = "outside the fit by letter: ";
    for (size_t i = 0; i < l->all->count; i++) {
        if (l->letter[i] == 0) continue;
        name_letter(l->letter[i], name);
        fprintf(out, "%s%s = %s", begin, name, l->all->item[i].feature);
        begin = "; ";
    }
    if (begin[0] == ';') fprintf(out, "\n");
}

const char *spw_search_intervals_text(const spw_search_view *v, char out[SPW_SEARCH_INTERVALS_TEXT]) {
    const spw_plan_request *plan = v->request->plan;
    const spw_time_stack *compiled = plan->time_stack;
    out[0] = '\0';
    if (compiled != NULL)
        append(
            out, SPW_SEARCH_INTERVALS_TEXT, "",
            compiled->half_width.evidence == SPW_EVIDENCE_FITTED
                ? "those of compiled programs hold 95 % of the runs that were fitted, each predicted without "
                  "its own table"
                : "those of compiled programs are assumed, as no run of this software was fitted");
    if (plan->megatron != NULL)
        append(
            out, SPW_SEARCH_INTERVALS_TEXT, "; ",
            plan->megatron->part != SPW_MEGATRON_EXPERT_LAYERS
                ? "those of Megatron-Core hold eight tenths of the errors of published runs whose model "
                  "was left out of the fit"
                : "those of Megatron-Core hold nine tenths of the errors of expert layers whose routing was "
                  "left out of the fit");
    if (out[0] != '\0')
        append(
            out, SPW_SEARCH_INTERVALS_TEXT, ". ",
            "What is outside the fit widens them, in part by assumed widths: they are no confidence interval "
            "for a model, cluster or size that was never run");
    return out;
}

const char *spw_search_state_note(const spw_search_view *v) {
    const spw_plan_request *plan = v->request->plan;
    const char *note = NULL;
    for (size_t i = 0; i < plan->schemes && note == NULL; i++)
        note = spw_footprint_state_note(plan->job, &plan->scheme[i]);
    return note;
}

bool spw_search_share_note(const spw_search_view *view, char out[SPW_SHARE_TEXT]) {
    const spw_search_front *f = &view->outcome->front;
    const spw_plan_request *plan = view->request->plan;
    bool compiled = false;
    for (size_t i = 0; i < f->points; i++) compiled = compiled || f->point[i].kind == SPW_MEMORY_ARENA;
    return compiled && plan->stack != NULL && spw_compiled_share_note(plan->stack, plan->job, out);
}

bool spw_search_layout(const spw_search_view *v, const spw_search_point *p, char out[SPW_LAYOUT_TEXT]) {
    const spw_plan_request *plan = v->request->plan;
    spw_pipeline pipeline = spw_pipeline_of(plan->job);
    pipeline.stages = p->value[SPW_SEARCH_PIPELINE];
    pipeline.chunks = p->value[SPW_SEARCH_VIRTUAL_STAGES] > 0 ? p->value[SPW_SEARCH_VIRTUAL_STAGES] : 1;
    return spw_assumed_layout(&pipeline, plan->job, &plan->scheme[p->scheme], out);
}

const char *spw_search_point_text(const spw_search_view *v, const size_t *value, size_t sequences,
                                  size_t scheme, char out[SPW_SEARCH_POINT_TEXT]) {
    const size_t gpus = value[SPW_SEARCH_GPUS], pipeline = value[SPW_SEARCH_PIPELINE],
                 expert = value[SPW_SEARCH_EXPERT], parts = value[SPW_SEARCH_MICRO_BATCHES],
                 turns = value[SPW_SEARCH_VIRTUAL_STAGES], tensor = value[SPW_SEARCH_TENSOR],
                 context = value[SPW_SEARCH_CONTEXT];
    const size_t cut_experts = spw_search_expert_tensor(value);
    char remat[SPW_REMAT_TEXT], stages[96] = "", cut[64] = "", attention[80] = "", experts[48] = "";
    if (pipeline > 1 && turns > 0) {
        (void)snprintf(stages, sizeof stages, " x pipeline %zu (virtual stages %zu)", pipeline, turns);
    } else if (pipeline > 1) {
        (void)snprintf(stages, sizeof stages, " x pipeline %zu", pipeline);
    }
    if (parts > 1) (void)snprintf(cut, sizeof cut, " in %zu micro-batches", parts);
    if (value[SPW_SEARCH_EXPERT_TENSOR] > 0 && tensor * cut_experts > 1)
        (void)snprintf(experts, sizeof experts, ", expert tensor %zu", cut_experts);
    if (tensor * context * cut_experts > 1)
        (void)snprintf(attention, sizeof attention, " (tensor %zu x context %zu%s)", tensor, context,
                       experts);
    (void)snprintf(out, SPW_SEARCH_POINT_TEXT,
                   "%s, EP %zu x FSDP %zu%s%s on %zu GPU%s, %zu sequence%s%s, remat %s",
                   v->request->plan->scheme[scheme].text, expert, gpus / expert / cut_experts / pipeline,
                   stages, attention, gpus, spw_plural(gpus), sequences, spw_plural(sequences), cut,
                   spw_search_value_text(SPW_SEARCH_REMAT, value[SPW_SEARCH_REMAT], remat));
    return out;
}

const char *spw_search_hint(const spw_search_view *v) {
    const spw_plan_request *plan = v->request->plan;
    for (size_t i = 0; i < plan->schemes; i++)
        if (spw_scheme_trainer(&plan->scheme[i])->takes_splits) return NULL;
    return "Megatron-Core's are asked for, as by --scheme megatron-flex --optimizer distributed";
}

bool spw_search_absent_text(const spw_search_view *v, size_t scheme, bool *misfit,
                            char out[SPW_SEARCH_ABSENT_TEXT]) {
    const spw_search_outcome *o = v->outcome;
    const char *name = v->request->plan->scheme[scheme].text;
    char text[SPW_SEARCH_POINT_TEXT];
    const size_t size = SPW_SEARCH_ABSENT_TEXT;
    if (o->fits[scheme] > 0 || o->beaten[scheme] > 0) return false;
    *misfit = o->left_out[scheme] == 0;
    if (!*misfit && o->fails[scheme] > 0) {
        (void)snprintf(out, size,
                       "%s: those that were replayed do not keep to the budgets, the others can be no better "
                       "than a point found before",
                       name);
    } else if (!*misfit) {
        (void)snprintf(out, size, "%s: it %s, but no point of it can be better than one found before", name,
                       o->left_out_fit[scheme] > 0 ? "fits" : "may fit");
    } else if (o->nearest.least[scheme].need.bytes == 0) {
        (void)snprintf(out, size, "%s: none that %s", name,
                       spw_search_none_can_be(o) ? "can be" : "keeps to the budgets");
    } else {
        (void)snprintf(out, size, "%s needs least of those that do not fit: %.1f of %.1f GiB",
                       spw_search_point_text(v, o->nearest.least[scheme].value,
                                             o->nearest.least[scheme].sequences, scheme, text),
                       (double)o->nearest.least[scheme].need.bytes / GIB,
                       (double)o->nearest.least[scheme].need.budget_bytes / GIB);
    }
    return true;
}

/* A search takes other sizes of these axes only where somebody asks. */
static const char *untried_axes(const spw_search_space *s) {
    const bool tensor = s->values[SPW_SEARCH_TENSOR] > 1, context = s->values[SPW_SEARCH_CONTEXT] > 1;
    return tensor && context ? ""
           : tensor          ? "; not tried: --over context=1,2,4,8"
           : context         ? "; not tried: --over tensor=1,2,4,8"
                             : "; not tried: --over tensor=1,2,4,8, --over context=1,2,4,8";
}

/* Why no point keeps to the budgets, by what came nearest: the budgets are looked at in this order from the last that a point
 * meets to the first. */
const char *spw_search_nothing_text(const spw_search_view *v, char out[SPW_SEARCH_ABSENT_TEXT]) {
    const size_t size = SPW_SEARCH_ABSENT_TEXT;
    const spw_search_outcome *o = v->outcome;
    const size_t *fate = o->fate, slow = fate[SPW_SEARCH_SLOW] + fate[SPW_SEARCH_TOO_SLOW];
    const char *refused =
        o->nearest.refused[0] != '\0' || !spw_search_none_can_be(o) ? o->nearest.refused : o->nearest.no_job;
    char wanted[SPW_SPAN_TEXT], most[SPW_SPAN_TEXT];
    double bytes = 0.0, budget = 0.0;
    if (o->stopped) {
        (void)snprintf(out, size, "no point so far that keeps to the budgets");
        return out;
    }
    for (size_t i = 0; i < v->request->plan->schemes; i++) {
        if (o->nearest.least[i].need.bytes == 0 ||
            (bytes > 0.0 && (double)o->nearest.least[i].need.bytes >= bytes))
            continue;
        bytes = (double)o->nearest.least[i].need.bytes,
        budget = (double)o->nearest.least[i].need.budget_bytes;
    }
    if (slow > 0) {
        (void)snprintf(out, size, "no point reaches %s tokens a day: %zu may fit in memory and are too slow",
                       spw_amount_text(v->request->tokens_per_day, wanted), slow);
        if (o->nearest.slow_day_most > 0.0)
            (void)snprintf(out + strlen(out), size - strlen(out),
                           ", the fastest makes at most %s a day on %zu GPUs",
                           spw_amount_text(o->nearest.slow_day_most, most), o->nearest.slow_gpus);
    } else if (fate[SPW_SEARCH_DROPS] > 0) {
        const spw_search_point *least = &o->nearest.drops;
        const spw_scheme *scheme = &v->request->plan->scheme[least->scheme];
        const char *factor = spw_scheme_factor_name(scheme, SPW_FACTOR_ROWS);
        (void)snprintf(
            out, size,
            "no point drops as little as %g %%: %zu fit and drop more, the least %.2f %% (%.80s, EP %zu, "
            "%zu GPUs)%s%s%s",
            100.0 * v->request->drop_most, fate[SPW_SEARCH_DROPS], 100.0 * least->drops.fraction,
            scheme->text, least->value[SPW_SEARCH_EXPERT], least->gpus,
            factor != NULL ? "; a plan of it says the " : "", factor != NULL ? factor : "",
            factor != NULL ? " that it needs" : "");
    } else if (bytes > 0.0) {
        (void)snprintf(out, size, "no point fits in memory: the least that one needs is %.1f of %.1f GiB%s",
                       bytes / GIB, budget / GIB, untried_axes(v->request->space));
    } else if (fate[SPW_SEARCH_BATCH] > 0) {
        (void)snprintf(out, size,
                       "no point has so few tokens in a step: %zu have more (--global-batch-at-most)",
                       fate[SPW_SEARCH_BATCH]);
    } else if (refused[0] != '\0') {
        (void)snprintf(out, size, "no point can be: %s", refused);
    } else {
        (void)snprintf(out, size, "no point keeps to the budgets");
    }
    return out;
}
