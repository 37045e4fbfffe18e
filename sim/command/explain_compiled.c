#include "sim/command/explain_compiled.h"

#include "sim/command/explain_points.h"
#include "sim/command/job_options.h"
#include "sim/memory/compiled_memory.h"
#include "sim/memory/footprint.h"

#include <stdio.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const spw_column columns[] = {
    {"scheme", NULL},      {"sequences_per_gpu", NULL}, {"stack", NULL},     {"component", "component"},
    {"bytes", "GiB"},      {"upto_bytes", "sum"},       {"low_bytes", NULL}, {"high_bytes", NULL},
    {"outside_fit", NULL}, {"formula", "formula"},      {NULL, NULL},
};

static void add_row(spw_table *t, const spw_scheme *scheme, size_t sequences, const spw_stack *stack,
                    const spw_compiled_memory *m, const char *part, double bytes, double sum,
                    const char *formula) {
    spw_table_text(t, scheme->text);
    spw_table_count(t, sequences);
    spw_table_text(t, stack->name);
    spw_table_text(t, part);
    spw_table_scaled(t, bytes, GIB, "%.3f");
    spw_table_scaled(t, sum, GIB, "%.3f");
    spw_table_real(t, m->argument_bytes + m->low_bytes, NULL);
    spw_table_real(t, m->argument_bytes + m->high_bytes, NULL);
    spw_table_text(t, m->outside);
    spw_table_text(t, formula);
}

#define PART_HELP(name, text, help) help,
static void add_parts(spw_table *t, const spw_scheme *scheme, size_t sequences, const spw_stack *stack,
                      const spw_compiled_memory *m) {
    static const char *const helps[] = {SPW_COMPILED_PART_LIST(PART_HELP)};
    double sum = m->argument_bytes;
    add_row(t, scheme, sequences, stack, m, "arguments", sum, sum, "P (w + 2 o) / G: weights and optimizer");
    for (int i = 0; i < SPW_COMPILED_PARTS; i++) {
        const double bytes = i == SPW_COMPILED_RECOVERED ? -m->part_bytes[i] : m->part_bytes[i];
        if (bytes == 0.0) continue;
        sum += bytes;
        add_row(t, scheme, sequences, stack, m, spw_compiled_part_name((spw_compiled_part)i), bytes, sum,
                helps[i]);
    }
}

static void print_heading(const spw_job *job, const spw_scheme *scheme, size_t sequences,
                          const spw_stack *stack, const spw_compiled_memory *m, double budget) {
    const double peak = m->argument_bytes + m->temporary_bytes;
    printf("%s, %s on %s, expert %zu x fsdp %zu, %zu x %zu tokens a GPU, remat %s, compiled by %s\n",
           scheme->text, job->model.name, job->cluster.name, job->expert, job->fsdp, sequences,
           job->sequence_length, spw_remat_name(job->remat), stack->name);
    spw_print_model_doubts(&job->model, "not here: ", stdout);
    printf("peak %.1f GiB, between %.1f and %.1f, of %.1f GiB: %s\n", peak / GIB,
           (m->argument_bytes + m->low_bytes) / GIB, (m->argument_bytes + m->high_bytes) / GIB, budget / GIB,
           spw_verdict_name(spw_footprint_verdict((uint64_t)peak, (uint64_t)budget)));
    if (m->outside[0] != '\0') {
        printf("beyond what was fitted: %s; the interval is that of the fitted tables\n\n", m->outside);
    } else {
        printf("coefficients fitted to %s\n\n", stack->tables);
    }
}

typedef struct explained {
    spw_stack stack;
    double budget;
    spw_compiled_memory memory; /* of the point added last */
} explained;

static spw_status add(void *state, const spw_explain_point *p, spw_table *table) {
    explained *e = state;
    const spw_status status =
        spw_compiled_memory_predict(&e->stack, p->job, p->scheme, p->sequences, e->budget, &e->memory);
    if (status == SPW_OK) add_parts(table, p->scheme, p->sequences, &e->stack, &e->memory);
    return status;
}

static void head(void *state, const spw_explain_point *p) {
    const explained *e = state;
    print_heading(p->job, p->scheme, p->sequences, &e->stack, &e->memory, e->budget);
}

spw_status spw_explain_compiled(const spw_job_options *o, const char *name) {
    explained e = {.budget = o->job.memory_fraction * o->job.cluster.hbm_gib.value * GIB};
    const spw_explanation what = {columns, &e, add, head};
    spw_status status = SPW_OK;
    SPW_TRY(spw_job_is_whole(&o->job, "--stack"));
    SPW_TRY(spw_stack_read(name, NULL, &e.stack));
    SPW_TRY(spw_explain_points(o, &what));

cleanup:
    return status;
}
