#include "sim/memory/fsdp2.h"

#include <math.h>

size_t spw_fsdp2_gathered_bytes(const spw_job *job) {
    return job->fsdp2.gathered > 0 ? job->fsdp2.gathered : job->precision.weights;
}

size_t spw_fsdp2_copies(const spw_job *job) { return job->fsdp2.replicas > 1 ? job->fsdp2.replicas : 1; }

spw_fsdp2_bytes spw_fsdp2_layer(const spw_job *job, const spw_fsdp2_unit *unit, double layers,
                                double before) {
    const bool kept = job->fsdp2.reshard == SPW_RESHARD_NEVER;
    const double w = (double)spw_fsdp2_gathered_bytes(job), g = (double)job->precision.gradients,
                 ahead = fmin((double)job->fsdp2.prefetch, layers - 1.0);
    return (spw_fsdp2_bytes){.parameters = w * unit->parameters * (kept ? layers : 1.0),
                             .prefetched = kept ? 0.0 : w * ahead * (unit->parameters - unit->alone),
                             .gradients = w * unit->parameters,
                             .reduced = g * fmax(unit->parameters, before)};
}

double spw_fsdp2_shard(const spw_job *job, const spw_fsdp2_unit *unit) {
    const double all = (double)(job->expert * job->fsdp), replicas = (double)spw_fsdp2_copies(job);
    return replicas * (unit->routed / (double)job->fsdp + (unit->parameters - unit->routed) / all);
}

spw_fsdp2_unit spw_fsdp2_unit_of(const spw_job *job, bool experts) {
    const spw_parameters p = spw_model_parameters(&job->model);
    const double common = (double)(p.mixer_most + p.norms_per_layer);
    const double routed = (double)p.routed_per_layer / (double)job->expert;
    if (!experts) return (spw_fsdp2_unit){.parameters = common + (double)p.dense_ffn_per_layer};
    return (spw_fsdp2_unit){.parameters = common + (double)(p.shared_per_layer + p.router_per_layer) + routed,
                            .routed = routed,
                            .alone = job->fsdp > spw_fsdp2_copies(job) ? 0.0 : routed};
}

double spw_fsdp2_head(const spw_job *job) {
    const spw_parameters p = spw_model_parameters(&job->model);
    return (double)(job->model.tied_embeddings ? p.embedding : p.head) + (double)p.final_norm;
}
