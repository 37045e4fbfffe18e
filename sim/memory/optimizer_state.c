#include "sim/memory/optimizer_state.h"

spw_held_parameters spw_stage_parameters(const spw_model *model, const spw_stage *stage) {
    const spw_parameters p = spw_model_parameters(model);
    const double layers = (double)stage->layers, moe = (double)stage->moe_layers;
    spw_held_parameters held = {.routed = moe * (double)p.routed_per_layer};
    const double mixer =
        (double)p.mixers / (double)model->layers; /* of a layer, on average where layers differ */
    held.rest = layers * (mixer + (double)p.norms_per_layer) +
                moe * (double)(p.shared_per_layer + p.router_per_layer) +
                (layers - moe) * (double)p.dense_ffn_per_layer;
    if (stage->embedding) held.rest += (double)p.embedding;
    if (stage->head) held.rest += (double)(p.final_norm + p.head);
    if (stage->head && !stage->embedding && model->tied_embeddings) held.rest += (double)p.embedding;
    return held;
}

size_t spw_master_bytes(const spw_job *job) {
    if (job->master_bytes != SPW_MASTER_AUTO) return job->master_bytes;
    return job->optimizer != SPW_OPTIMIZER_SHARDED && job->precision.weights < sizeof(float) ? sizeof(float)
                                                                                             : 0;
}

spw_optimizer_state spw_optimizer_state_of(const spw_job *job, const spw_held_parameters *held) {
    const double expert = (double)job->expert, fsdp = (double)job->fsdp, tensor = (double)job->tensor;
    const double master = (double)spw_master_bytes(job), moments = 2.0 * (double)job->precision.optimizer;
    const double routed = held->routed / (expert * tensor),
                 rest = held->rest / tensor; /* whole, on one GPU */
    const double routed_shared = routed / fsdp, rest_shared = rest / (expert * fsdp);
    const bool weights_shared = job->optimizer == SPW_OPTIMIZER_SHARDED;
    const bool optimizer_shared = job->optimizer != SPW_OPTIMIZER_REPLICATED;
    const double weights = weights_shared ? routed_shared + rest_shared : routed + rest;
    const double optimized = optimizer_shared ? routed_shared + rest_shared : routed + rest;
    return (spw_optimizer_state){.weights = weights * (double)job->precision.weights,
                                 .gradients = weights * (double)job->precision.gradients,
                                 .master = optimized * master,
                                 .moments = optimized * moments,
                                 .routed_replicas = fsdp,
                                 .rest_replicas = expert * fsdp};
}
