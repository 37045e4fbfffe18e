#include "sim/command/explain/explain_parts.h"

#include "base/memory.h"
#include "sim/command/explain/explain_points.h"
#include "sim/command/job_options.h"
#include "sim/job/software.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/memory/compiled/compiled_cut.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/memory/compiled/compiled_memory.h"
#include "sim/memory/kept/verdict.h"
#include "sim/memory/live/footprint.h"
#include "sim/schemes/point.h"

#include <math.h>
#include <stdio.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const spw_column columns[] = {
    {"scheme", NULL},      {"sequences_per_gpu", NULL}, {"stack", NULL},
    {"moment", "moment"},  {"component", "component"},  {"bytes", "GiB"},
    {"upto_bytes", "sum"}, {"low_bytes", NULL},         {"high_bytes", NULL},
    {"outside_fit", NULL}, {"formula", "formula"},      {NULL, NULL},
};

typedef struct explained {
    spw_stack stack;
    spw_compiled_memory memory; /* of the point added last */
} explained;

/* A tensor of a moment; sum: of it and all before. */
typedef struct moment_line {
    const char *moment, *component, *formula;
    double bytes, sum;
} moment_line;

static void add_row(const explained *e, const spw_explain_point *p, spw_table *t, const moment_line *line) {
    const spw_compiled_memory *m = &e->memory;
    spw_table_text(t, p->scheme->text);
    spw_table_count(t, p->sequences);
    spw_table_text(t, e->stack.name);
    spw_table_text(t, line->moment);
    spw_table_text(t, line->component);
    spw_table_scaled(t, line->bytes, GIB, "%.3f");
    spw_table_scaled(t, line->sum, GIB, "%.3f");
    spw_table_real(t, m->argument_bytes + m->low_bytes, NULL);
    spw_table_real(t, m->argument_bytes + m->high_bytes, NULL);
    spw_table_text(t, m->outside);
    spw_table_text(t, line->formula);
}

/* The tensors of one moment, largest first; `sum` begins with the arguments. */
static spw_status add_moment(const explained *e, const spw_explain_point *p, spw_table *t,
                             const spw_compiled_moment *moment, const char *name) {
    spw_compiled_tensor *tensor = NULL;
    size_t count = 0;
    double sum = e->memory.argument_bytes;
    const spw_status status =
        spw_compiled_memory_list(&e->stack, p->job, p->scheme, p->sequences, moment, &tensor, &count);
    const moment_line arguments = {name, "arguments", spw_compiled_arguments_formula(p->job, 1), sum, sum};
    add_row(e, p, t, &arguments);
    for (size_t i = 0; i < count; i++) {
        sum += tensor[i].bytes;
        const moment_line line = {name, tensor[i].name, tensor[i].formula, tensor[i].bytes, sum};
        add_row(e, p, t, &line);
    }
    const double recovered = e->memory.recovered_bytes;
    const moment_line past = {name, "recovered", "computed again past the limit", -recovered,
                              sum - recovered};
    if (moment == &e->memory.fullest && recovered > 0.0) add_row(e, p, t, &past);
    spw_free(tensor);
    return status;
}

static void print_moment(const char *which, const spw_compiled_moment *moment) {
    printf("%s: %s%s%s, %.2f GiB beside the arguments\n", which, spw_step_moment_name(moment->moment),
           moment->step[0] != '\0' ? ", " : "", moment->step, moment->bytes / GIB);
}

static void print_cut(const spw_job *job, const spw_scheme *scheme, size_t sequences) {
    char text[SPW_COMPILED_CUT_TEXT], step[SPW_POINT_STEP_TEXT];
    const spw_point point = spw_point_of(job, scheme, sequences);
    spw_compiled_cut cut;
    if (spw_compiled_cut_of(job, sequences, &cut) == SPW_OK && spw_compiled_cut_note(&cut, text))
        printf("%s\n", text);
    if (spw_point_step_note(&point, step)) printf("pipeline: %s\n", step);
}

static void print_heading(const spw_job *job, const spw_scheme *scheme, size_t sequences,
                          const spw_stack *stack, const spw_compiled_memory *m, double budget) {
    const double peak = m->argument_bytes + m->temporary_bytes;
    spw_footprint f;
    spw_compiled_footprint_bytes(budget, m, &f);
    char words[SPW_CLUSTER_WORDS];
    printf("%s, %s on %s (%s), expert %zu x fsdp %zu, %zu x %zu tokens a GPU, remat %s, compiled by %s\n",
           scheme->text, job->model.name, job->cluster.name, spw_cluster_words(&job->cluster, words),
           job->expert, job->fsdp, sequences, job->sequence_length, spw_remat_name(job->remat), stack->name);
    if (job->implied[0] != '\0') printf("split: %s\n", job->implied);
    spw_print_model_doubts(&job->model, "not here: ", stdout);
    print_cut(job, scheme, sequences);
    const double high = m->argument_bytes + m->high_bytes;
    const spw_verdict verdict = spw_interval_verdict((double)f.peak_bytes, high, budget);
    printf("peak %.1f GiB, between %.1f and %.1f, of %.1f GiB: %s\n", peak / GIB,
           (m->argument_bytes + m->low_bytes) / GIB, high / GIB, budget / GIB,
           spw_verdict_text(verdict, false));
    print_moment("fullest", &m->fullest);
    if (m->next.bytes > 0.0) print_moment("runner-up", &m->next);
    if (m->outside[0] != '\0') {
        printf("beyond what was seen: %s", m->outside);
        if (m->unseen > 0)
            printf("; the interval is wider by %.0f %% for that",
                   100.0 * expm1((double)m->unseen * stack->half_width_unseen.value));
        printf("\n\n");
    } else {
        printf("seen alike in %s\n\n", stack->tables);
    }
}

static double budget_of(const spw_explain_point *p) {
    const spw_device_budget budget = spw_device_budget_of(p->job, p->scheme);
    return (double)spw_device_budget_bytes(&budget);
}

static spw_status explain_compiled_add(void *state, const spw_explain_point *p, spw_table *table) {
    explained *e = state;
    const spw_status status =
        spw_compiled_memory_predict(&e->stack, p->job, p->scheme, p->sequences, budget_of(p), &e->memory);
    const spw_compiled_memory *m = &e->memory;
    if (status != SPW_OK) return status;
    const spw_status listed = add_moment(e, p, table, &m->fullest, "fullest");
    return listed == SPW_OK && m->next.bytes > 0.0 ? add_moment(e, p, table, &m->next, "runner-up") : listed;
}

static void head(void *state, const spw_explain_point *p) {
    const explained *e = state;
    print_heading(p->job, p->scheme, p->sequences, &e->stack, &e->memory, budget_of(p));
}

spw_status spw_explain_compiled(spw_job_options *o, const char *name) {
    explained e;
    const spw_explanation what = {columns, &e, explain_compiled_add, head};
    spw_status status = SPW_OK;
    SPW_TRY(spw_job_is_whole(&o->job, "--stack"));
    SPW_TRY(spw_software_suits(name, &o->job.cluster));
    SPW_TRY(spw_stack_read(name, NULL, &e.stack));
    SPW_TRY(spw_compiled_layouts_settle(&e.stack, o->scheme, o->job.schemes));
    SPW_TRY(spw_explain_points(o, &what));

cleanup:
    return status;
}
