#include "sim/weights/fp8_memory.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/model/attention.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/stage.h"

static spw_fp8_facts facts_of(const spw_job *job) {
    return spw_fp8_facts_known(job->precision.recipe, job->cluster.gpu_generation);
}

/* --- Weights --- */

double spw_fp8_whole_parameters(const spw_model *m, double layers, double moe_layers) {
    const spw_parameters p = spw_model_parameters(m);
    spw_matrices shared;
    spw_matrices_of_shared(m, &shared);
    const double gate = (double)spw_matrices_sum_whole(&shared);
    return layers * (spw_replicated_parameters_of(m).layer - (double)p.norms_per_layer) +
           moe_layers * (gate + (double)p.latent_per_layer);
}

double spw_fp8_linear_parameters(const spw_job *job, const spw_stage *stage) {
    const spw_parameters p = spw_model_parameters(&job->model);
    const double predictions = (double)stage->predictions, layers = (double)stage->layers + predictions,
                 moe = (double)stage->moe_layers + predictions, hidden = (double)job->model.hidden;
    const spw_grid g = spw_grid_of(job);
    double mixers = layers * (double)p.attention_per_layer - spw_stage_shared_indexers(&job->model, stage);
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++)
        mixers +=
            (double)stage->mixer_layers[k] * ((double)p.mixer_per_layer[k] - (double)p.attention_per_layer);
    const double rest = mixers + moe * (double)(p.shared_per_layer + p.latent_per_layer) +
                        (layers - moe - (double)stage->bare_layers) * (double)p.dense_ffn_per_layer +
                        predictions * 2.0 * hidden * hidden,
                 whole = spw_fp8_whole_parameters(&job->model, layers, moe);
    const double routed =
        moe * (double)p.routed_per_layer - (double)stage->lacking_experts * (double)p.expert;
    return routed / (double)(g.expert * g.expert_tensor) + (rest - whole) / (double)g.tensor + whole;
}

double spw_fp8_weight_bytes(const spw_job *job, const spw_stage *stage) {
    const double each = facts_of(job).weight_bytes;
    return each > 0.0 ? spw_fp8_linear_parameters(job, stage) * each : 0.0;
}

double spw_fp8_replaced_bytes(const spw_job *job, const spw_stage *stage) {
    return job->precision.fp8_param_gather
               ? spw_fp8_linear_parameters(job, stage) * (double)job->precision.weights
               : 0.0;
}

static size_t mixer_products(const spw_model *m, size_t k) {
    spw_matrices list;
    spw_matrices_of_mixer(m, k, &list);
    return spw_matrices_products(&list);
}

static size_t products_of(const spw_model *m, void (*of)(const spw_model *m, spw_matrices *out)) {
    spw_matrices list;
    of(m, &list);
    return spw_matrices_products(&list);
}

size_t spw_fp8_products(const spw_job *job, const spw_stage *stage) {
    const spw_model *m = &job->model;
    const size_t attention = mixer_products(m, 0);
    size_t attending = stage->layers, mixers = 0;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        attending -= stage->mixer_layers[k];
        mixers += stage->mixer_layers[k] * mixer_products(m, k);
    }
    const size_t experts = products_of(m, spw_matrices_of_expert) * (m->experts / job->expert),
                 shared = products_of(m, spw_matrices_of_shared);
    return mixers + (attending + stage->predictions) * attention +
           (stage->moe_layers + stage->predictions) * (experts + shared) + stage->predictions +
           (stage->layers - stage->moe_layers - stage->bare_layers) * products_of(m, spw_matrices_of_dense);
}

/* --- Inputs --- */

double spw_fp8_value_elements(const spw_model *m) { return (double)spw_attention_widths_of(m).context; }

/* Products of attention read its normed input each by itself: a copy each, in the place of one in bf16. */
static double attention_inputs(const spw_model *m, double c, double b) {
    spw_matrices list;
    spw_matrices_of_attention(m, &list);
    const double hidden = (double)m->hidden, input = (double)spw_matrices_inputs(&list, SPW_OF_INPUT),
                 latent = (double)spw_matrices_inputs(&list, SPW_OF_LATENT);
    return input * c - hidden * b + latent * (c - b);
}

spw_fp8_inputs spw_fp8_inputs_of(const spw_job *job) {
    const spw_fp8_facts facts = facts_of(job);
    const spw_model *m = &job->model;
    const double b = (double)job->precision.activations, c = facts.copy_bytes, hidden = (double)m->hidden,
                 shared = (double)m->shared_ffn;
    spw_fp8_inputs in = {0.0, 0.0, 0.0};
    if (job->precision.recipe == SPW_FP8_NONE) return in;
    in.attention = attention_inputs(m, c, b) + (facts.from_original ? 0.0 : spw_fp8_value_elements(m) * c);
    if (m->shared_ffn > 0) in.shared = (facts.from_original ? 0.0 : hidden * c) + shared * (c - b);
    in.dense = (hidden + (double)m->dense_ffn) * (c - b);
    return in;
}

double spw_fp8_input_bytes(const spw_job *job) {
    if (job->precision.recipe == SPW_FP8_NONE) return (double)job->precision.activations;
    return facts_of(job).copy_bytes;
}

/* Queries are projected up from the normed input itself. */
static bool up_reads_input(const spw_model *m) {
    spw_matrices list, up;
    spw_matrices_of_attention(m, &list);
    spw_matrices_of_module(&list, SPW_MODULE_MLA_UP_PROJ, &up);
    return spw_matrices_inputs(&up, SPW_OF_INPUT) > 0;
}

/* Under layernorm both down projections keep the norm's output in bf16, which is given up; a query projection without a rank
 * keeps its copy, and is one of the up projections: run again by mla_up_proj it has its bf16 input wait instead. */
double spw_fp8_norm_bytes(const spw_job *job, bool back) {
    const double b = (double)job->precision.activations, c = spw_fp8_input_bytes(job);
    const bool norms = spw_remat_repeats(job->remat, SPW_MODULE_LAYERNORM),
               up = spw_remat_repeats(job->remat, SPW_MODULE_MLA_UP_PROJ),
               down = !up_reads_input(&job->model);
    if (job->precision.recipe == SPW_FP8_NONE) return norms && !back ? 0.0 : b;
    const double keys = norms ? 0.0 : c,
                 queries = down          ? keys
                           : up && !back ? 0.0
                                         : c,
                 plain = norms         ? (back ? b : 0.0)
                         : up && !down ? b
                                       : 0.0;
    return keys + queries + plain;
}

/* --- Gathers of a tensor group --- */

spw_fp8_gather spw_fp8_gather_of(const spw_job *job, size_t tokens, size_t width) {
    const spw_fp8_facts facts = facts_of(job);
    const double b = (double)job->precision.activations, c = facts.copy_bytes;
    if (job->precision.recipe == SPW_FP8_NONE) return (spw_fp8_gather){b, b, b, 0.0};
    if (tokens % facts.gather_tile != 0 || width % facts.gather_tile != 0)
        return (spw_fp8_gather){b, b, b + c, b + c}; /* gathered in bf16, then cast */
    return (spw_fp8_gather){.input = c,
                            .gradient = facts.scaled ? 2.0 * c : c,
                            .held = facts.apart_bytes + c,
                            .settled = facts.settle_bytes};
}
