#include "sim/memory/compiled_footprint.h"

#include "sim/input/remat.h"
#include "sim/memory/compiled_memory.h"

#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

bool spw_compiled_footprint_covers(const spw_job *job, const spw_scheme *scheme) {
    return scheme->type->compiled != NULL && job->pipeline == 1 && job->tensor == 1 &&
           job->micro_batches <= 1 && !spw_remat_keeps_layers(job->remat);
}

static void add(spw_footprint *f, const char *name, double bytes, bool argument, const char *formula) {
    spw_component *c = &f->component[f->components++];
    *c = (spw_component){.bytes = bytes > 0.0 ? (uint64_t)(bytes + 0.5) : 0,
                         .argument = argument,
                         .live = {true, true, true},
                         .source = "fitted to compiled programs (docs/validation_memory.md)"};
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    (void)snprintf(c->formula, sizeof c->formula, "%s", formula);
}

#define PART_HELP(name, text, help) help,
spw_status spw_compiled_footprint_compute(const spw_stack *stack, const spw_job *job,
                                          const spw_scheme *scheme, size_t sequences, spw_footprint *out,
                                          char outside[SPW_OUTSIDE_TEXT]) {
    static const char *const helps[] = {SPW_COMPILED_PART_LIST(PART_HELP)};
    const double budget = job->memory_fraction * job->cluster.hbm_gib.value * GIB;
    spw_compiled_memory m;
    spw_status status = spw_compiled_memory_predict(stack, job, scheme, sequences, budget, &m);
    if (status != SPW_OK) return status;
    const spw_layer_shape shape = spw_layer_shape_of(job, sequences);
    *out = (spw_footprint){.budget_bytes = (uint64_t)(budget + 0.5), .moment = SPW_MOMENT_MOE_LAYER};
    spw_layer layer;
    status = spw_layer_build(scheme, &shape, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    out->live_set = spw_layer_live_set(&layer, NULL);
    spw_layer_destroy(&layer);
    add(out, "arguments", m.argument_bytes, true, "P (w + 2 o) / G: weights and optimizer");
    for (int i = 0; i < SPW_COMPILED_RECOVERED; i++) {
        double bytes = m.part_bytes[i];
        if (i == SPW_COMPILED_LAYER) bytes -= m.part_bytes[SPW_COMPILED_RECOVERED];
        if (bytes > 0.0) add(out, spw_compiled_part_name((spw_compiled_part)i), bytes, false, helps[i]);
    }
    out->argument_bytes = (uint64_t)(m.argument_bytes + 0.5);
    out->temporary_bytes = (uint64_t)(m.temporary_bytes + 0.5);
    out->peak_bytes = out->argument_bytes + out->temporary_bytes;
    out->low_bytes = (uint64_t)(m.argument_bytes + m.low_bytes);
    out->high_bytes = (uint64_t)(m.argument_bytes + m.high_bytes);
    (void)snprintf(outside, SPW_OUTSIDE_TEXT, "%s", m.outside);
    return SPW_OK;
}
