#include "sim/traffic/weight_families.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/state_law.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/muon_dealing.h"
#include "sim/weights/muon_packing.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/pipeline.h"

#include <math.h>

size_t spw_weight_families(const spw_job *job, bool all_experts, spw_weight_family out[SPW_WEIGHT_FAMILIES]) {
    const spw_model *m = &job->model;
    const spw_parameters p = spw_model_parameters(m);
    uint64_t routed = spw_model_routed(m);
    const uint64_t linear = p.mixers + (p.shared_per_layer + p.latent_per_layer) * m->moe_layers +
                            p.dense_ffn_per_layer * spw_model_dense_layers(m);
    const size_t matrices = spw_expert_matrices(m) * m->moe_layers;
    const spw_grid g = spw_grid_of(job);
    const size_t groups = g.expert * g.expert_tensor;
    const spw_replicated_parameters kept = spw_replicated_parameters_of(m);
    const uint64_t linear_whole =
                       (uint64_t)spw_fp8_whole_parameters(m, (double)m->layers, (double)m->moe_layers),
                   linear_held = g.tensor > 1 ? (linear - linear_whole) / g.tensor + linear_whole : linear;
    uint64_t rest = p.total - routed;
    uint64_t whole =
        g.tensor > 1 ? kept.norms * m->layers + kept.mixers + kept.moe_layer * m->moe_layers + kept.head : 0;
    const spw_finetune *tuned = &job->finetune;
    size_t count = 0;
    if (tuned->frozen != SPW_FROZEN_NONE) routed = 0;
    if (tuned->frozen == SPW_FROZEN_BASE) rest = whole = 0;
    routed += (uint64_t)((double)(m->moe_layers * m->experts) * spw_expert_adapter(m, tuned));
    rest += (uint64_t)((double)m->layers * spw_layer_adapter(m, tuned));
    out[count++] = (spw_weight_family){SPW_PURPOSE_EXPERT_WEIGHTS,
                                       SPW_GROUP_FSDP,
                                       g.expert_data,
                                       groups,
                                       routed / groups,
                                       routed / groups,
                                       matrices};
    out[count++] =
        (spw_weight_family){SPW_PURPOSE_OTHER_WEIGHTS,         SPW_GROUP_ALL, g.data * g.context, g.tensor,
                            (rest - whole) / g.tensor + whole, linear_held,   m->layers};
    if (all_experts)
        out[count++] = (spw_weight_family){
            SPW_PURPOSE_EXPERT_WEIGHTS, SPW_GROUP_EXPERT, job->expert, 1, routed, routed, matrices};
    return count;
}

double spw_weight_gathered_bytes(const spw_job *job, const spw_weight_family *family) {
    const spw_precision *p = &job->precision;
    const double linear = (double)family->linear / (double)family->elements;
    if (!p->fp8_param_gather || p->recipe == SPW_FP8_MXFP8) return (double)spw_precision_gathered(job);
    const double each = spw_fp8_recipe_is_fp4(p->recipe) ? 0.5 : 1.0;
    return linear * each + (1.0 - linear) * (double)p->weights;
}

void spw_weight_traffic_add(const spw_job *job, const spw_weight_family *family, double passes, double size,
                            spw_weight_traffic *out) {
    const double members = (double)family->members, stride = (double)family->stride;
    const double node = (double)job->cluster.gpus_per_node;
    const double bytes = passes * size * (double)family->elements / (double)job->pipeline;
    const double received = bytes * (members - 1.0) / members;
    if (family->members < 2) return;
    if (members * stride > node) {
        out->nic_bytes += received * fmin(1.0, stride / node);
    } else {
        out->link_bytes += received;
    }
    out->hops += passes * (double)family->tensors * (members - 1.0);
    out->seen_hops += passes * (double)family->tensors * (fmin(members, SPW_RING_SEEN) - 1.0);
}

spw_status spw_weight_padding(const spw_job *job, uint64_t out[2]) {
    double sum[2] = {0.0, 0.0};
    const size_t stages = spw_muon_packs(job) ? spw_pipeline_of(job).stages : 0;
    for (size_t s = 0; s < stages; s++) {
        spw_muon_packing packing;
        const spw_status status = spw_muon_packing_of(job, s, &packing);
        if (status != SPW_OK) return status;
        for (int i = 0; i < 2; i++) sum[i] += packing.buffers[i] - packing.matrices[i];
    }
    for (int i = 0; i < 2; i++) out[i] = (uint64_t)llround(sum[i]);
    return SPW_OK;
}

/* Leaves a family the replicas of one instance of the optimizer, or of HSDP one group that holds the state once; returns who sums
 * what each of its GPUs has over the instances. */
static spw_weight_family take_instances(const spw_job *job, spw_weight_family *family) {
    const size_t instances = spw_state_copies(job);
    spw_weight_family between = *family;
    family->members /= instances;
    between.members = instances;
    between.stride = family->stride * family->members;
    between.elements = (family->elements + family->members - 1) / family->members;
    return between;
}

double spw_weight_repeats(const spw_job *job) {
    const spw_pipeline p = spw_pipeline_of(job);
    return spw_state_law_of(job)->by_units && p.stages == 1 ? (double)p.micro_batches : 1.0;
}

spw_status spw_weight_step(const spw_job *job, spw_weight_traffic *scatters, spw_weight_traffic *gathers) {
    const spw_state_law *law = spw_state_law_of(job);
    const bool summed = law->sums_gradients || spw_muon_is_dealt(job); /* by an all-reduce */
    const bool kept = law->by_units && spw_fsdp2_keeps(job);           /* from the forward pass on */
    const double each = spw_weight_repeats(job),
                 scattered = (double)job->precision.gradients * (summed ? 2.0 : 1.0),
                 gathers_a_step = kept ? 1.0 : (double)law->gathers_a_step;
    spw_weight_family family[SPW_WEIGHT_FAMILIES];
    const size_t families = spw_weight_families(job, false, family);
    uint64_t padding[2];
    const spw_status status = spw_weight_padding(job, padding);
    *scatters = *gathers = (spw_weight_traffic){0.0, 0.0, 0.0};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < families; i++) {
        family[i].elements += padding[family[i].purpose == SPW_PURPOSE_EXPERT_WEIGHTS ? 0 : 1];
        const spw_weight_family between = take_instances(job, &family[i]);
        spw_weight_traffic_add(job, &family[i], each, scattered, scatters);
        spw_weight_traffic_add(job, &between, each, 2.0 * (double)job->precision.gradients, scatters);
        spw_weight_traffic_add(job, &family[i], each,
                               gathers_a_step * spw_weight_gathered_bytes(job, &family[i]), gathers);
    }
    return SPW_OK;
}
