#include "sim/memory/optimizer_state.h"
#include "sim/memory/fsdp2.h"

#include "sim/input/grid.h"
#include "sim/input/precision.h"

spw_replicated_parameters spw_replicated_parameters_of(const spw_model *m) {
    const spw_parameters p = spw_model_parameters(m);
    const uint64_t kv_down = m->kv_lora_rank + m->rope_dim, rank = m->q_lora_rank, hidden = m->hidden;
    spw_replicated_parameters out = {.norms = p.norms_per_layer,
                                     .attention = (m->output_bias ? hidden : 0) + p.indexer_per_layer,
                                     .moe_layer = p.router_per_layer + (m->shared_gate ? hidden : 0),
                                     .head = p.final_norm};
    if (m->attention == SPW_ATTENTION_MLA) {
        out.attention += (rank + kv_down) * hidden + rank + m->kv_lora_rank;
        out.attention += m->attention_bias ? rank + kv_down : 0;
    } else if (m->qk_norm && m->qk_norm_per_head) {
        out.attention += 2 * m->head_dim;
    }
    out.mixers = (m->layers - m->other.layers) * out.attention + m->other.layers * m->other.replicated;
    out.layer = (double)out.norms + (double)out.mixers / (double)m->layers;
    return out;
}

spw_held_parameters spw_stage_parameters(const spw_model *model, const spw_stage *stage) {
    const spw_parameters p = spw_model_parameters(model);
    const double layers = (double)stage->layers, moe = (double)stage->moe_layers;
    spw_held_parameters held = {.routed = moe * (double)p.routed_per_layer};
    const double mixer =
        (double)p.mixers / (double)model->layers; /* of a layer, on average where layers differ */
    held.rest = layers * (mixer + (double)p.norms_per_layer) +
                moe * (double)(p.shared_per_layer + p.router_per_layer) +
                (layers - moe) * (double)p.dense_ffn_per_layer;
    const spw_replicated_parameters whole = spw_replicated_parameters_of(model);
    held.replicated = layers * whole.layer + moe * (double)whole.moe_layer;
    const spw_mtp_parameters mtp = spw_mtp_parameters_of(model);
    const double predictions = (double)stage->predictions;
    held.routed += predictions * (double)mtp.routed;
    held.rest += predictions * (double)mtp.rest;
    held.replicated +=
        predictions * (double)(whole.norms + whole.attention + whole.moe_layer + 3 * model->hidden);
    if (stage->predictions > 0 && !stage->embedding) held.rest += (double)p.embedding;
    if (stage->head) held.replicated += (double)whole.head;
    if (stage->embedding) held.rest += (double)p.embedding;
    if (stage->head) held.rest += (double)(p.final_norm + p.head);
    if (stage->head && !stage->embedding && stage->predictions == 0 && model->tied_embeddings)
        held.rest += (double)p.embedding;
    return held;
}

spw_held_parameters spw_adam_parameters(const spw_model *model, const spw_stage *stage) {
    const spw_parameters p = spw_model_parameters(model);
    const double predictions = (double)stage->predictions,
                 norms = ((double)stage->layers + predictions) * (double)p.norms_per_layer +
                         (stage->head ? (double)p.final_norm : 0.0);
    const bool table = stage->embedding || stage->predictions > 0 || (stage->head && model->tied_embeddings);
    return (spw_held_parameters){.rest = norms + (table ? (double)p.embedding : 0.0) +
                                         (stage->head ? (double)p.head : 0.0),
                                 .replicated = norms};
}

spw_held_parameters spw_job_parameters(const spw_job *job, const spw_stage *stage) {
    spw_held_parameters held = spw_stage_parameters(&job->model, stage);
    held.routed_adapters = (double)stage->moe_layers * (double)job->model.experts *
                           spw_expert_adapter(&job->model, &job->finetune);
    held.rest_adapters = (double)stage->layers * spw_attention_adapter(&job->model, &job->finetune);
    held.routed += held.routed_adapters;
    held.rest += held.rest_adapters;
    return held;
}

spw_held_parameters spw_trained_parameters(const spw_job *job, const spw_held_parameters *held) {
    spw_held_parameters trained = *held;
    if (job->finetune.frozen != SPW_FROZEN_NONE) trained.routed = held->routed_adapters;
    if (job->finetune.frozen == SPW_FROZEN_BASE) {
        trained.rest = held->rest_adapters;
        trained.replicated = 0.0;
    }
    return trained;
}

spw_held_parameters spw_optimized_parameters(const spw_job *job, const spw_held_parameters *held) {
    const spw_model *model = &job->model;
    spw_held_parameters optimized = spw_trained_parameters(job, held);
    if (model->replicas > 0)
        optimized.routed *= (double)(model->experts - model->replicas) / (double)model->experts;
    return optimized;
}

size_t spw_master_bytes(const spw_job *job) {
    if (job->master_bytes != SPW_MASTER_AUTO) return job->master_bytes;
    return job->optimizer != SPW_OPTIMIZER_SHARDED && job->precision.weights < sizeof(float) ? sizeof(float)
                                                                                             : 0;
}

size_t spw_state_copies(const spw_job *job) {
    const bool instances = job->optimizer == SPW_OPTIMIZER_DISTRIBUTED && job->optimizer_instances > 1;
    return instances ? job->optimizer_instances : spw_fsdp2_copies(job);
}

spw_optimizer_state spw_optimizer_state_of(const spw_job *job, const spw_held_parameters *held) {
    const spw_grid g = spw_grid_of(job);
    const double copies = (double)spw_state_copies(job);
    const double experts = (double)(g.expert * g.expert_tensor), replicas = (double)g.expert_data / copies,
                 rest_replicas = (double)(g.data * g.context) / copies;
    const bool fsdp2 = spw_fsdp2_is_on(job);
    const double gradient = (double)(fsdp2 ? job->precision.weights : job->precision.gradients);
    const double on_gpu = 1.0 - job->optimizer_on_host;
    const double master = (double)spw_master_bytes(job),
                 moments = (double)spw_precision_moments(&job->precision);
    const spw_held_parameters trained = spw_trained_parameters(job, held),
                              own = spw_optimized_parameters(job, held);
    const bool weights_shared = job->optimizer == SPW_OPTIMIZER_SHARDED;
    const bool optimizer_shared = job->optimizer != SPW_OPTIMIZER_REPLICATED;
    const spw_held_parameters *part[] = {held, &trained, &own};
    double count[3]; /* on one GPU: weights, gradients, moments */
    for (size_t i = 0; i < 3; i++) {
        const bool shared = i < 2 ? weights_shared : optimizer_shared;
        const double routed = part[i]->routed / experts,
                     rest = (part[i]->rest - part[i]->replicated) / (double)g.tensor + part[i]->replicated;
        count[i] = shared ? routed / replicas + rest / rest_replicas : routed + rest;
    }
    return (spw_optimizer_state){.weights = count[0] * (double)job->precision.weights,
                                 .gradients = count[1] * gradient,
                                 .master = count[2] * master * on_gpu,
                                 .moments = count[2] * moments * on_gpu,
                                 .updated = count[2],
                                 .routed_replicas = replicas,
                                 .rest_replicas = rest_replicas};
}

double spw_moment_bytes(const spw_job *job, const spw_stage *stage, const spw_held_parameters *held) {
    const double all = spw_optimizer_state_of(job, held).moments;
    const spw_held_parameters adam = spw_adam_parameters(&job->model, stage);
    return job->muon ? (all + spw_optimizer_state_of(job, &adam).moments) / 2.0 : all;
}
