#include "sim/time/megatron/torchtitan_time.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/machine/stack.h"
#include "sim/time/megatron/megatron_hidden.h"
#include "sim/weights/fsdp2.h"

bool spw_torchtitan_is_timed(const spw_job *said, const spw_scheme *scheme) {
    spw_job room;
    if (!scheme->type->megatron.by_parts || said->part != SPW_PART_WHOLE) return false;
    const spw_job *job = spw_fsdp2_job(said, scheme, &room);
    const spw_grid grid = spw_grid_of(job);
    const bool state = spw_state_law_of(job)->by_units && !job->fsdp2.on_host && !job->muon;
    const bool work = job->precision.recipe == SPW_FP8_NONE && spw_precision_gathered(job) == 2 &&
                      spw_precision_is_timed(job) &&
                      (spw_remat_goes_with_megatron(job->remat) || spw_remat_keeps_operations(job->remat)) &&
                      job->attention == SPW_ATTENTION_FLASH && job->offload.modules == 0 &&
                      spw_finetune_is_whole(&job->finetune);
    return state && work && grid.tensor * grid.context * grid.expert_tensor == 1;
}

spw_megatron_job_request spw_torchtitan_request(const spw_megatron_job_request *q,
                                                spw_torchtitan_twin *twin) {
    spw_megatron_job_request said = *q;
    const spw_job *job = spw_fsdp2_job(q->point->job, q->point->scheme, &twin->job);
    if (job != &twin->job) twin->job = *job;
    twin->job.precision.recipe = q->point->job->precision.recipe;
    if (spw_remat_keeps_operations(job->remat)) twin->job.remat = SPW_REMAT_FULL;
    twin->job.cross_entropy = SPW_CROSS_ENTROPY_UNFUSED;
    twin->job.megatron.permute = twin->job.megatron.router = SPW_FUSION_OFF;
    twin->job.megatron.overlap_gradients = twin->job.megatron.overlap_gathers = true;
    twin->point = *q->point;
    twin->point.job = &twin->job;
    twin->point.shape.remat = twin->job.remat;
    twin->coefficients = *q->coefficients;
    twin->coefficients.expert_gap_s.value = 0.0;
    spw_megatron_kernels_said(&twin->job, &twin->coefficients);
    said.point = &twin->point;
    said.coefficients = &twin->coefficients;
    return said;
}

/* A product runs four times under remat full: forward, again, and for two gradients. */
static double again_s(const spw_timeline *out, const char *name) {
    const spw_time_component *part = spw_timeline_find(out, name);
    return part != NULL ? part->exposed_s / 4.0 : 0.0;
}

void spw_torchtitan_doubt(const spw_megatron_job_request *twin, const spw_job *said, spw_timeline *out) {
    const spw_megatron_coefficients *c = twin->coefficients;
    const spw_precision *p = &twin->point->job->precision;
    const spw_time_component *loss = spw_timeline_find(out, "loss");
    const double fused = c->loss_fused_bytes.value / c->loss_unfused_bytes.value;
    if (loss != NULL && fused < 1.0) spw_timeline_widen(out, loss->exposed_s * (1.0 - fused), 0.0);
    if (spw_remat_keeps_operations(said->remat)) {
        spw_timeline_widen(out,
                           again_s(out, "attention") + again_s(out, "attention_projections") +
                               again_s(out, "dense_ffn") + again_s(out, "shared_expert"),
                           0.0);
        spw_outside_add(out->outside, "remat selective_op takes up to the time of full");
    }
    spw_outside_add(out->outside, "torchtitan by parts of Megatron-Core's step: no run of it was fitted");
    if (spw_fsdp2_copies(said) > 1)
        spw_outside_add(out->outside,
                        "sums of gradients over replicas (HSDP), of which there is no run, at the rates of "
                        "Megatron-Core's collectives");
    if (p->recipe != SPW_FP8_NONE)
        spw_outside_add(out->outside, "recipe %s by torchao with casts and products of TransformerEngine",
                        spw_fp8_recipe_name(p->recipe));
}
