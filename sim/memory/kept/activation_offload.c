#include "sim/memory/kept/activation_offload.h"

#include "sim/job/job.h"
#include "sim/job/recipe/megatron_keys.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

/* The passes of a stage, by their numbers in the order of the forward and of the backward passes. */
typedef struct schedule {
    spw_pipeline pipeline;
    const spw_model *model;
    size_t stage, units, warm;
    bool every_layer; /* has groups; else MoE layers */
} schedule;

/* Where passes stand among all: spw_pipeline_pass() the other way round. */
static size_t forward_at(const schedule *s, size_t number) {
    return number < s->warm ? number : 2 * number - s->warm;
}

static size_t backward_at(const schedule *s, size_t number) {
    const size_t steady = s->units - s->warm;
    return number < steady ? s->warm + 2 * number + 1 : s->units + number;
}

/* The number of a pass among the forward ones. */
static size_t forward_number(const schedule *s, spw_pass pass) {
    const size_t stages = s->pipeline.stages, group = pass.micro_batch / stages;
    return (group * s->pipeline.chunks + pass.chunk) * stages + pass.micro_batch % stages;
}

static spw_pass backward_pass(const schedule *s, size_t number) {
    return spw_pipeline_pass(&s->pipeline, s->stage, backward_at(s, number));
}

/* Layers with groups of a pass, those of multi-token prediction among them. */
static size_t layers_of(const schedule *s, spw_pass pass) {
    const spw_block block = spw_pipeline_block(&s->pipeline, s->model, s->stage, pass.chunk);
    return (s->every_layer ? block.layers : block.moe_layers) + block.predictions;
}

/* The first backward pass from `number` on that has groups; units: none has. */
static size_t next_with_groups(const schedule *s, size_t number) {
    while (number < s->units && layers_of(s, backward_pass(s, number)) == 0) number++;
    return number;
}

/* Has pass `number` of the backward ones run forward before position `at`? */
static bool is_forward_done(const schedule *s, size_t number, size_t at) {
    return number < s->units && forward_at(s, forward_number(s, backward_pass(s, number))) < at;
}

/* Does the last layer of pass `number` of the backward ones stay on the GPU? The first of the step's does, and that whose
 * predecessor has begun when it runs forward. */
static bool stays_of(const schedule *s, size_t number) {
    for (size_t before = number; before-- > 0;)
        if (layers_of(s, backward_pass(s, before)) > 0)
            return !is_forward_done(s, number, backward_at(s, before));
    return true;
}

typedef struct kept {
    size_t layers, moe_layers;
} kept;

static bool same(kept a, const spw_stage *stage) {
    return a.layers == stage->kept_layers && a.moe_layers == stage->kept_moe_layers;
}

/* Which groups are where at the passes at which the stage keeps most. */
static void look_at_most(const schedule *s, const spw_stage *stage, spw_offload_groups *out) {
    kept now = {0, 0};
    size_t gone = 0; /* backward passes */
    for (size_t i = 0; i < 2 * s->units; i++) {
        const spw_pass pass = spw_pipeline_pass(&s->pipeline, s->stage, i);
        const spw_block block = spw_pipeline_block(&s->pipeline, s->model, s->stage, pass.chunk);
        const size_t layers = block.layers + block.predictions,
                     moe_layers = block.moe_layers + block.predictions;
        if (pass.backward) {
            now.layers -= layers, now.moe_layers -= moe_layers;
            gone++;
            continue;
        }
        now.layers += layers, now.moe_layers += moe_layers;
        const size_t next = next_with_groups(s, gone);
        if (!same(now, stage) || !is_forward_done(s, next, i)) continue;
        out->ahead = true;
        out->back = out->back || !stays_of(s, next);
    }
}

/* One pass more, the `number`-th to run backward. Gives the layers whose groups are there; stays: do the last layer's? */
static size_t count_pass(const schedule *s, size_t number, spw_offload_groups *out, bool *stays) {
    const size_t layers = layers_of(s, backward_pass(s, number));
    *stays = layers > 0 && stays_of(s, number);
    out->layers += layers;
    out->staying += *stays;
    return layers;
}

spw_offload_stage spw_offload_stage_of(const spw_job *job, size_t index) {
    schedule experts = {.pipeline = spw_pipeline_of(job), .model = &job->model, .stage = index};
    experts.pipeline.pairs = false; /* groups go and come back pass by pass */
    const spw_stage stage = spw_pipeline_stage(&experts.pipeline, experts.model, index);
    const size_t of_experts = spw_offload_count(&job->offload, SPW_OFFLOAD_EXPERTS),
                 of_attention = spw_offload_count(&job->offload, SPW_OFFLOAD_ATTENTION);
    spw_offload_stage out = {.stops = false};
    experts.units = spw_pipeline_passes(&experts.pipeline) / 2;
    experts.warm = spw_pipeline_warm_up(&experts.pipeline, index);
    schedule attention = experts;
    attention.every_layer = true;
    for (size_t n = 0; n < experts.units; n++) {
        bool stays[2];
        const size_t moe_layers = count_pass(&experts, n, &out.experts, &stays[0]),
                     layers = count_pass(&attention, n, &out.attention, &stays[1]);
        const size_t groups = moe_layers * of_experts + layers * of_attention,
                     staying = (stays[0] ? of_experts : 0) + (stays[1] ? of_attention : 0);
        out.stops = out.stops || (groups > 1 && staying == groups);
    }
    look_at_most(&experts, &stage, &out.experts);
    look_at_most(&attention, &stage, &out.attention);
    return out;
}

spw_status spw_offload_check(const spw_job *job) {
    if (job->offload.modules == 0) return SPW_OK;
    for (size_t s = 0; s < spw_pipeline_of(job).stages; s++) {
        if (!spw_offload_stage_of(job, s).stops) continue;
        return spw_fail(
            SPW_ECONFIG,
            "offload_modules %s: stage %zu has a block with one layer, all of whose groups stay on "
            "the GPU, where Megatron-Core d98e8a64 stops (Chunk mismatch); offload one module, or "
            "give the block more layers",
            spw_offload_name(&job->offload), s);
    }
    return SPW_OK;
}

const char *spw_offload_outside(const spw_job *job) {
    if (spw_offload_stays(job))
        return "offload_modules expert_fc1 with mxfp8: copies and scales of all experts share one "
               "allocation, which "
               "is counted as staying on the GPU; it goes where every expert's scales are 2^20 or more, so "
               "this is "
               "an upper bound";
    return job->offload.modules != 0
               ? "offloading: tensors stay on the GPU until their copy has ended, and a step's first run, "
                 "before Megatron-Core knows its groups, offloads all of them; neither is counted"
               : NULL;
}

spw_layer_shape spw_offload_shape(const spw_job *job, const spw_layer_shape *shape, size_t stage) {
    spw_layer_shape out = *shape;
    if ((job->offload.modules & SPW_OFFLOAD_EXPERTS) == 0) return out;
    out.offload_ahead = spw_offload_stage_of(job, stage).experts.ahead;
    return out;
}
