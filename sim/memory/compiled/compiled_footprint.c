#include "sim/memory/compiled/compiled_footprint.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/machine/stack.h"
#include "sim/machine/stack_defaults.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/memory/compiled/compiled_memory.h"
#include "sim/memory/live/footprint.h"
#include "sim/schemes/layer.h"

#include <stdio.h>
#include <string.h>

bool spw_compiled_footprint_covers(const spw_job *job, const spw_scheme *scheme) {
    return spw_scheme_program(scheme) != NULL && spw_compiled_memory_check(job, scheme) == SPW_OK;
}

static void compiled_footprint_add(spw_footprint *f, const char *name, double bytes, bool argument,
                                   const char *formula) {
    if (f->components == SPW_COMPONENTS) return;
    spw_component *c = &f->component[f->components++];
    *c = (spw_component){.bytes = bytes > 0.0 ? (uint64_t)(bytes + 0.5) : 0,
                         .argument = argument,
                         .live = {true, true, true},
                         .source = "lists of compiled programs (docs/validation_memory.md)"};
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    (void)snprintf(c->formula, sizeof c->formula, "%s", formula);
}

/* The tensors of the fullest moment; the layer's rows without what is recovered. */
static spw_status add_tensors(const spw_stack *stack, const spw_job *job, const spw_scheme *scheme,
                              size_t sequences, const spw_compiled_memory *m, spw_footprint *out) {
    spw_compiled_tensor *tensor = NULL;
    size_t count = 0;
    const spw_status status =
        spw_compiled_memory_list(stack, job, scheme, sequences, &m->fullest, &tensor, &count);
    const double left = m->recovered_bytes > 0.0 ? 1.0 - m->recovered_bytes / m->fullest.rows_bytes : 1.0;
    for (size_t i = 0; i < count; i++)
        compiled_footprint_add(out, tensor[i].name, tensor[i].bytes * (tensor[i].recoverable ? left : 1.0),
                               false, tensor[i].formula);
    spw_free(tensor);
    return status;
}

void spw_compiled_footprint_bytes(double budget_bytes, const spw_compiled_memory *m, spw_footprint *out) {
    out->budget_bytes = (uint64_t)(budget_bytes + 0.5);
    out->argument_bytes = (uint64_t)(m->argument_bytes + 0.5);
    out->temporary_bytes = (uint64_t)(m->temporary_bytes + 0.5);
    out->peak_bytes = out->argument_bytes + out->temporary_bytes;
    out->low_bytes = (uint64_t)(m->argument_bytes + m->low_bytes);
    out->high_bytes = (uint64_t)(m->argument_bytes + m->high_bytes);
}

bool spw_compiled_share_note(const spw_stack *stack, const spw_job *job, char out[SPW_SHARE_TEXT]) {
    const double jax = stack->jax_memory_fraction.value;
    const double assumed = spw_default_outside_fraction.value; /* where the job does not say */
    if (job->cluster.gpu_generation == SPW_GPU_NONE || !job->fraction_unsaid || assumed <= jax) return false;
    (void)snprintf(
        out, SPW_SHARE_TEXT,
        "memory_fraction %g, which XLA_PYTHON_CLIENT_MEM_FRACTION=%g gives a run; where nothing sets it JAX "
        "takes %g, here %.1f GiB: --memory-fraction %g",
        assumed, assumed, jax, jax * job->cluster.hbm_gib.value, jax);
    return true;
}

spw_status spw_compiled_footprint_compute(const spw_stack *stack, const spw_job *job,
                                          const spw_scheme *scheme, size_t sequences, spw_footprint *out,
                                          char outside[SPW_OUTSIDE_TEXT]) {
    const spw_device_budget device = spw_device_budget_of(job, scheme);
    const double budget = (double)spw_device_budget_bytes(&device);
    spw_compiled_memory m;
    spw_compiled_cut cut;
    spw_layer layer;
    spw_status status = spw_compiled_memory_predict(stack, job, scheme, sequences, budget, &m);
    if (status == SPW_OK) status = spw_compiled_cut_of(job, sequences, &cut);
    if (status != SPW_OK) return status;
    const spw_layer_shape shape = spw_compiled_cut_shape(job, &cut);
    status = spw_layer_build(scheme, &shape, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    spw_footprint_clear(out);
    out->moment = SPW_MOMENT_MOE_LAYER;
    spw_compiled_footprint_bytes(budget, &m, out);
    out->live_set = spw_layer_live_set(&layer, NULL);
    spw_layer_destroy(&layer);
    compiled_footprint_add(out, "arguments", m.argument_bytes, true,
                           spw_compiled_arguments_formula(job, cut.stages));
    status = add_tensors(stack, job, scheme, sequences, &m, out);
    if (status != SPW_OK) return status;
    (void)snprintf(outside, SPW_OUTSIDE_TEXT, "%s", m.outside);
    return SPW_OK;
}
