#include "sim/memory/compiled/compiled_cut.h"

#include "sim/job/job.h"

#include <stdio.h>

static size_t at_least_one(size_t count) { return count > 0 ? count : 1; }

static spw_status cut_layers(const spw_job *job, spw_compiled_cut *c) {
    const size_t unlike = at_least_one(job->model.layers_per_turn), units = job->model.moe_layers / unlike;
    const bool stated = job->virtual_stages > 0;
    const size_t blocks = c->stages * (stated ? job->virtual_stages : 1);
    if (units / blocks == 0)
        return spw_fail(
            SPW_ECONFIG,
            "pipeline %zu x virtual_stages %zu has no MoE layer for every stage: model '%s' has %zu "
            "in turns of %zu; use at most %zu together",
            c->stages, blocks / c->stages, job->model.name, job->model.moe_layers, unlike, units);
    c->repeats = stated ? job->virtual_stages : units / c->stages;
    c->layers = units / (c->stages * c->repeats) * unlike;
    c->piped = c->stages * c->repeats * c->layers;
    c->outside = job->model.moe_layers - c->piped;
    return SPW_OK;
}

spw_status spw_compiled_cut_of(const spw_job *job, size_t sequences, spw_compiled_cut *out) {
    const size_t said = at_least_one(job->micro_batches);
    *out = (spw_compiled_cut){.stages = at_least_one(job->pipeline),
                              .micro_batches = said,
                              .sequences = sequences / said,
                              .outside = job->model.moe_layers};
    if (out->stages > 1 && said == 1) out->micro_batches = out->stages;
    out->gpu_sequences = (double)(out->sequences * out->micro_batches) / (double)out->stages;
    if (out->stages == 1) return SPW_OK;
    if (out->micro_batches % out->stages != 0)
        return spw_fail(
            SPW_ECONFIG,
            "micro_batches %zu of a compiled program are no multiple of its pipeline of %zu, as MaxText's "
            "loop needs; use %zu",
            said, out->stages, (said / out->stages + 1) * out->stages);
    const spw_status status = cut_layers(job, out);
    if (status != SPW_OK) return status;
    out->turns = out->micro_batches * out->repeats + out->stages - 1;
    out->stores = out->repeats > 1 && out->micro_batches > out->stages;
    return SPW_OK;
}

bool spw_compiled_cut_note(const spw_compiled_cut *c, char text[SPW_COMPILED_CUT_TEXT]) {
    text[0] = '\0';
    if (c->stages > 1) {
        (void)snprintf(text, SPW_COMPILED_CUT_TEXT,
                       "MaxText's pipeline: %zu stages, %zu micro-batches of %zu sequences a GPU, %zu times "
                       "round, in %zu turns "
                       "of one loop, each of %zu MoE layers on every stage; %zu MoE layers are before the "
                       "loop; all stages "
                       "keep the same",
                       c->stages, c->micro_batches, c->sequences, c->repeats, c->turns, c->layers,
                       c->outside);
    } else if (c->micro_batches > 1) {
        (void)snprintf(
            text, SPW_COMPILED_CUT_TEXT,
            "%zu micro-batches of %zu sequences a GPU, one after the other, whose gradients are added up",
            c->micro_batches, c->sequences);
    }
    return text[0] != '\0';
}

spw_layer_shape spw_compiled_cut_shape(const spw_job *job, const spw_compiled_cut *c) {
    spw_layer_shape shape = spw_layer_shape_of(job, c->sequences);
    if (c->stages == 1) return shape;
    shape.looped = true;
    shape.gpus /= c->stages;
    shape.whole_weights = job->fsdp == 1 && c->repeats == 1;
    shape.waiting_layers = c->layers - 1;
    return shape;
}
