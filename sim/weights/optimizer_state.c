#include "sim/weights/optimizer_state.h"
#include "sim/job/state_law.h"
#include "sim/weights/fsdp2.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/model/matrices.h"
#include "sim/weights/stage.h"

/* p: the model's parameters. */
static spw_replicated_parameters replicated_of(const spw_model *m, const spw_parameters *p) {
    spw_matrices attention, shared;
    spw_matrices_of_mixer(m, 0, &attention);
    spw_matrices_of_shared(m, &shared);
    spw_replicated_parameters out = {.norms = p->norms_per_layer,
                                     .attention = spw_matrices_sum_whole(&attention),
                                     .moe_layer = p->router_per_layer + spw_matrices_sum_whole(&shared),
                                     .head = p->final_norm};
    const size_t attending = m->layers - m->other_layers, indexers = spw_model_indexer_layers(m);
    out.mixers = attending * (out.attention - p->indexer_per_layer) + indexers * p->indexer_per_layer;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++)
        out.mixers += m->mixer[k].layers * spw_matrices_whole(m, SPW_IN_MIXER, k);
    out.layer = (double)out.norms + (double)out.mixers / (double)m->layers;
    return out;
}

spw_replicated_parameters spw_replicated_parameters_of(const spw_model *m) {
    const spw_parameters p = spw_model_parameters(m);
    return replicated_of(m, &p);
}

double spw_stage_shared_indexers(const spw_model *m, const spw_stage *stage) {
    if (stage->shared_indexers == 0) return 0.0;
    return (double)stage->shared_indexers * (double)spw_model_parameters(m).indexer_per_layer;
}

/* Elements of biases of the choice that a stage's hash layers lack. */
static double stage_unbiased(const spw_model *m, const spw_stage *stage) {
    return m->selection_bias ? (double)stage->hash_layers * (double)(m->experts - m->replicas) : 0.0;
}

/* Of the mixers of a stage's layers: all, and what tensor parallelism does not share, of attention `each_whole`. */
static void stage_mixers(const spw_model *m, const spw_parameters *p, double each_whole,
                         const spw_stage *stage, double *all, double *whole) {
    size_t attending = stage->layers;
    *all = *whole = 0.0;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        const double layers = (double)stage->mixer_layers[k];
        attending -= stage->mixer_layers[k];
        *all += layers * (double)p->mixer_per_layer[k];
        *whole += layers * (double)spw_matrices_whole(m, SPW_IN_MIXER, k);
    }
    const double less = spw_stage_shared_indexers(m, stage);
    *all += (double)attending * (double)p->attention_per_layer - less;
    *whole += (double)attending * each_whole - less;
}

spw_held_parameters spw_stage_parameters(const spw_model *model, const spw_stage *stage) {
    const spw_parameters p = spw_model_parameters(model);
    const double layers = (double)stage->layers, moe = (double)stage->moe_layers;
    const double lacking = (double)stage->lacking_experts,
                 columns = lacking * (double)spw_model_router_column(model);
    spw_held_parameters held = {.routed = moe * (double)p.routed_per_layer - lacking * (double)p.expert};
    const spw_replicated_parameters whole = replicated_of(model, &p);
    double mixers = 0.0, whole_mixers = 0.0;
    stage_mixers(model, &p, (double)whole.attention, stage, &mixers, &whole_mixers);
    held.rest = mixers + layers * (double)p.norms_per_layer +
                moe * (double)(p.shared_per_layer + p.router_per_layer) +
                (layers - moe - (double)stage->bare_layers) * (double)p.dense_ffn_per_layer -
                stage_unbiased(model, stage) - columns;
    held.replicated = layers * (double)whole.norms + whole_mixers + moe * (double)whole.moe_layer -
                      stage_unbiased(model, stage) - columns;
    const spw_mtp_parameters mtp =
        stage->predictions > 0 ? spw_mtp_parameters_of(model) : (spw_mtp_parameters){0, 0};
    const double predictions = (double)stage->predictions;
    held.routed += predictions * (double)mtp.routed;
    held.rest += predictions * (double)mtp.rest;
    held.replicated +=
        predictions * (double)(whole.norms + whole.attention + whole.moe_layer + 3 * model->hidden);
    if (stage->predictions > 0 && !stage->embedding) held.rest += (double)p.embedding;
    if (stage->head) held.replicated += (double)whole.head;
    if (stage->embedding) held.rest += (double)(p.embedding + p.tables);
    if (stage->head) held.rest += (double)(p.final_norm + p.head);
    if (stage->head && !stage->embedding && stage->predictions == 0 && model->tied_embeddings)
        held.rest += (double)p.embedding;
    return held;
}

spw_held_parameters spw_adam_parameters(const spw_model *model, const spw_stage *stage) {
    const spw_parameters p = spw_model_parameters(model);
    const double predictions = (double)stage->predictions,
                 norms = ((double)stage->layers + predictions) * (double)p.norms_per_layer +
                         predictions * (double)(3 * model->hidden) +
                         (stage->head ? (double)p.final_norm : 0.0);
    const bool table = stage->embedding || stage->predictions > 0 || (stage->head && model->tied_embeddings);
    return (spw_held_parameters){.rest = norms + (table ? (double)p.embedding : 0.0) +
                                         (stage->embedding ? (double)p.tables : 0.0) +
                                         (stage->head ? (double)p.head : 0.0),
                                 .replicated = norms};
}

spw_held_parameters spw_job_parameters(const spw_job *job, const spw_stage *stage) {
    spw_held_parameters held = spw_stage_parameters(&job->model, stage);
    held.routed_adapters = (double)stage->moe_layers * (double)job->model.experts *
                           spw_expert_adapter(&job->model, &job->finetune);
    held.rest_adapters = (double)stage->layers * spw_layer_adapter(&job->model, &job->finetune);
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

size_t spw_state_copies(const spw_job *job) {
    const bool instances = job->optimizer == SPW_OPTIMIZER_DISTRIBUTED && job->optimizer_instances > 1;
    return instances ? job->optimizer_instances : spw_fsdp2_copies(job);
}

spw_cut_parameters spw_cut_parameters_of(const spw_job *job, const spw_held_parameters *held) {
    const spw_grid g = spw_grid_of(job);
    return (spw_cut_parameters){.routed = held->routed / (double)(g.expert * g.expert_tensor),
                                .rest =
                                    (held->rest - held->replicated) / (double)g.tensor + held->replicated};
}

spw_optimizer_state spw_optimizer_state_of(const spw_job *job, const spw_held_parameters *held) {
    const spw_grid g = spw_grid_of(job);
    const double copies = (double)spw_state_copies(job);
    const double replicas = (double)g.expert_data / copies,
                 rest_replicas = (double)(g.data * g.context) / copies;
    const spw_state_law *law = spw_state_law_of(job);
    const double gradient = (double)(law->by_units ? job->precision.weights : job->precision.gradients);
    const double on_gpu = 1.0 - job->optimizer_on_host;
    const double master = (double)spw_master_kept_bytes(job),
                 moments = (double)spw_precision_moments(&job->precision);
    const spw_held_parameters trained = spw_trained_parameters(job, held),
                              own = spw_optimized_parameters(job, held);
    const spw_held_parameters *part[] = {held, &trained, &own};
    double count[3]; /* on one GPU: weights, gradients, moments */
    for (size_t i = 0; i < 3; i++) {
        const bool shared = i < 2 ? law->shares_weights : law->shares_moments;
        const spw_cut_parameters cut = spw_cut_parameters_of(job, part[i]);
        count[i] = shared ? cut.routed / replicas + cut.rest / rest_replicas : cut.routed + cut.rest;
    }
    return (spw_optimizer_state){.weights = count[0] * (double)job->precision.weights,
                                 .gradients = count[1] * gradient,
                                 .master = count[2] * master * on_gpu,
                                 .moments = count[2] * moments * on_gpu,
                                 .updated = count[2],
                                 .routed_replicas = replicas,
                                 .rest_replicas = rest_replicas};
}
