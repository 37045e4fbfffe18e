#include "sim/time/megatron/megatron_hidden.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/megatron_keys.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/machine/stack.h"
#include "sim/model/attention.h"
#include "sim/schemes/list.h"
#include "sim/traffic/weight_families.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/stage.h"

#include <math.h>

/* PyTorch's rotation, t cos + rotate_half(t) sin and what was not rotated behind it, in passes over t: forward t cos 2, -x2 1, their
 * concatenation 2, sin 2, the sum 3, concatenation 2, and backward sin 2, -x2 1, the two halves 2, cos 2, the sum 3. One kernel reads t
 * and writes it, each way. */
enum { ROTATION_FORWARD = 12 - 2, ROTATION_BACKWARD = 10 - 2 };
static const double LEAST_BUCKET = 40e6, BUCKET_OF_A_RANK = 1e6; /* gradients */

static bool is_fused(const spw_megatron_coefficients *c) { return c->unfused_router_bytes.value > 0.0; }

void spw_megatron_kernels_said(const spw_job *job, spw_megatron_coefficients *c) {
    if (job->megatron.permute != SPW_FUSION_OFF) return;
    c->scatter_bytes_per_s.value *= c->unfused_unpermute_share.value;
    c->index_add_bytes_per_s.value *= c->unfused_permute_share.value;
}

double spw_unfused_router_s(const spw_megatron_coefficients *c, const spw_point *point,
                            double *forward_share) {
    const spw_job *job = point->job;
    const double passes = spw_remat_runs_again(job->remat, SPW_MODULE_MOE) ? 2.0 : 1.0;
    *forward_share = 1.0 / passes;
    if (job->megatron.router != SPW_FUSION_OFF) return 0.0;
    return passes * c->unfused_router_bytes.value * (double)point->shape.tokens * (double)job->model.hidden *
           (double)job->model.moe_layers / c->copy_bytes_per_s.value;
}

double spw_unfused_rotation_s(const spw_megatron_coefficients *c, const spw_point *point,
                              double *forward_share) {
    const spw_job *job = point->job;
    const spw_model *m = &job->model;
    const bool again = spw_remat_runs_again(job->remat, SPW_MODULE_MLA_UP_PROJ);
    const double forward = ROTATION_FORWARD, all = forward * (again ? 2.0 : 1.0) + ROTATION_BACKWARD,
                 rotated = (double)spw_attention_widths_of(m).rotated;
    *forward_share = forward / all;
    if (job->megatron.rope != SPW_FUSION_OFF || !is_fused(c)) return 0.0;
    return all * rotated * (double)point->shape.tokens * (double)point->shape.element_bytes *
           (double)(m->layers - m->other_layers) / c->copy_bytes_per_s.value;
}

/* --- Collectives --- */

/* Parts of a stage's buffers that travel one after the other. */
static double parts_of(const spw_prediction *p, size_t stage) {
    const spw_job *job = p->q->point->job;
    const spw_grid g = spw_grid_of(job);
    const spw_stage of = spw_pipeline_stage(&p->pipeline, &job->model, stage);
    if (spw_state_law_of(job)->by_units)
        return fmax((double)(of.layers + of.predictions), 1.0); /* a layer each */
    if (stage > 0) return (double)p->pipeline.chunks;
    const spw_held_parameters held = spw_job_parameters(job, &of);
    const double gradients = spw_optimizer_state_of(job, &held).gradients / (double)job->precision.gradients,
                 bucket = fmax(LEAST_BUCKET, BUCKET_OF_A_RANK * (double)g.data);
    return fmax(ceil(gradients / bucket), 1.0);
}

/* What travels for each micro-batch hides behind its passes; else passes of one micro-batch through all chunks of the stage, and through one chunk of every stage before it. */
static double hidden_of(const spw_prediction *p, size_t stage, double seconds, bool backward) {
    const spw_job *job = p->q->point->job;
    const size_t micro = backward ? p->pipeline.micro_batches - 1 : 0, chunks = p->pipeline.chunks;
    const double *pass_s = backward ? p->backward_s : p->forward_s, parts = parts_of(p, stage);
    const double repeats = spw_weight_repeats(job);
    double own = 0.0, others = 0.0, hidden = 0.0;
    for (size_t m = 0; m < p->pipeline.micro_batches && repeats > 1.0; m++)
        hidden += fmin(seconds / repeats * (1.0 - 1.0 / parts), pass_s[m * chunks]);
    if (repeats > 1.0) return hidden;
    for (size_t chunk = 0; chunk < chunks; chunk++)
        own += pass_s[(stage * p->pipeline.micro_batches + micro) * chunks + chunk];
    for (size_t before = 0; before < stage; before++)
        others += pass_s[(before * p->pipeline.micro_batches + micro) * chunks];
    hidden = fmin(seconds * (1.0 - 1.0 / parts), own);
    return hidden + fmin(seconds - hidden, others);
}

double spw_hidden_gradients_s(const spw_prediction *p, size_t stage, double seconds) {
    return p->q->point->job->megatron.overlap_gradients ? hidden_of(p, stage, seconds, true) : 0.0;
}

double spw_hidden_gathers_s(const spw_prediction *p, size_t stage, double seconds) {
    return p->q->point->job->megatron.overlap_gathers ? hidden_of(p, stage, seconds, false) : 0.0;
}

/* --- Doubt --- */

static double hidden_part(const spw_timeline *t, const char *name) {
    const spw_time_component *c = spw_timeline_find(t, name);
    return c != NULL ? c->seconds - c->exposed_s : 0.0;
}

/* The activation of the experts, of the rows of balanced routing, in all passes of the stage with most layers. */
static double activation_s(const spw_prediction *p, const spw_timeline *t) {
    const spw_megatron_coefficients *c = p->q->coefficients;
    const spw_layer_shape *s = &p->q->point->shape;
    const spw_time_component *experts = spw_timeline_find(t, "expert_products");
    size_t layers = 0;
    for (size_t stage = 0; stage < p->pipeline.stages; stage++) {
        const spw_stage of = spw_pipeline_stage(&p->pipeline, &p->q->point->job->model, stage);
        if (of.moe_layers + of.predictions > layers) layers = of.moe_layers + of.predictions;
    }
    const double rows = (double)(s->tokens * s->top_k),
                 bytes =
                     rows * (double)s->ffn * (c->activation_bytes.value + c->activation_gradient_bytes.value);
    return fmin(bytes * (double)(layers * p->pipeline.micro_batches) / c->copy_bytes_per_s.value,
                experts != NULL ? experts->exposed_s : 0.0);
}

/* Kernels that are said and that the stack has no other figures of, and those that were measured, or counted. */
static void name_kernels(const spw_prediction *p, spw_timeline *t) {
    const spw_megatron_keys *k = &p->q->point->job->megatron;
    const struct {
        const char *key, *off;
        spw_fusion said;
    } kernels[] = {{"moe_permute_fusion", "PyTorch's permutation as it was measured alone", k->permute},
                   {"moe_router_fusion", "PyTorch's router as it was measured alone", k->router},
                   {"apply_rope_fusion",
                    "PyTorch's rotation counted, not measured: the interval has it take no longer", k->rope}};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (kernels[i].said == SPW_FUSION_AUTO) continue;
        if (kernels[i].said == (is_fused(p->q->coefficients) ? SPW_FUSION_ON : SPW_FUSION_OFF))
            spw_outside_add(t->outside, "%s changes no time: the stack's runs had it so", kernels[i].key);
        else if (kernels[i].said == SPW_FUSION_ON)
            spw_outside_add(t->outside,
                            "%s changes no time: the stack has figures of PyTorch's kernels alone",
                            kernels[i].key);
        else
            spw_outside_add(t->outside, "%s", kernels[i].off);
    }
}

void spw_megatron_hidden_doubt(const spw_prediction *p, spw_timeline *t) {
    const spw_job *job = p->q->point->job;
    const spw_megatron_keys *k = &job->megatron;
    const double collectives = hidden_part(t, "gradient_scatters") + hidden_part(t, "weight_gathers"),
                 shared = k->overlap_shared ? hidden_part(t, "shared_expert") : 0.0,
                 share = p->q->coefficients->overlap_share.value;
    const spw_time_component *rotation = spw_timeline_find(t, "unfused_rotation");
    double less = rotation != NULL ? rotation->exposed_s : 0.0;
    if (k->delay_weight_gradients && share > 0.0)
        less += fmin(hidden_part(t, "exchanges") * (1.0 / share - 1.0), t->step_s);
    if (spw_megatron_fuses_experts(job)) less += activation_s(p, t);
    spw_timeline_widen(t, less, collectives + shared);
    if (k->overlap_gradients)
        spw_outside_add(
            t->outside, "%s hidden as far as passes reach, not measured: the interval has them whole",
            k->overlap_gathers ? "collectives of gradients and weights" : "collectives of gradients");
    if (shared > 0.0)
        spw_outside_add(t->outside,
                        "moe_shared_expert_overlap: shared experts hidden as far as exchanges reach, not "
                        "measured: the interval has them whole");
    if (k->delay_weight_gradients)
        spw_outside_add(t->outside,
                        "delay_wgrad_compute: no run tells it from the overlap alone: the interval has all "
                        "exchanges hidden that have work to hide behind");
    if (spw_megatron_fuses_experts(job))
        spw_outside_add(t->outside,
                        "use_transformer_engine_op_fuser: not measured: the interval has the experts' "
                        "activation take no time");
    name_kernels(p, t);
}
