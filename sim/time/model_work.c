#include "sim/time/model_work.h"

#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/memory/kept/residual_streams.h"
#include "sim/model/attention.h"
#include "sim/model/token_work.h"

static const double PASSES_ONCE = 3.0;    /* the head is not recomputed */
static const double LOGITS_TOUCHES = 6.0; /* fp32 */

/* Of one layer's up projections, which a module of Megatron-Core runs again: their weights; the elements a token that they write. */
typedef struct again {
    double weights, elements;
} again;
static again up_of(const spw_model *m) {
    spw_matrices list, up;
    spw_matrices_of_attention(m, &list);
    spw_matrices_of_module(&list, SPW_MODULE_MLA_UP_PROJ, &up);
    if (up.rows == 0) return (again){0.0, 0.0};
    return (again){(double)spw_matrices_sum(&up), /* and rotated queries */
                   (double)(spw_matrices_outputs(&up) + spw_attention_widths_of(m).query)};
}

/* What modules that run again write beside `layers` passes, all layers. */
static double again_elements(const spw_model *m, const spw_model_passes *passes) {
    const double moe = (double)m->moe_layers, dense = (double)spw_model_dense_layers(m),
                 matrices = (double)spw_ffn_matrices(m);
    const double norms = moe + (spw_attention_is_latent(m) ? (double)m->layers : 0.0);
    return (passes->up - passes->layers) * (double)m->layers * up_of(m).elements +
           (passes->dense - passes->layers) * matrices * dense * (double)m->dense_ffn +
           (passes->shared - passes->layers) * matrices * moe * (double)m->shared_ffn +
           passes->norms * norms * (double)m->hidden +
           passes->mixing * (double)m->layers * spw_streams_moved_again(m) / 2.0;
}

void spw_model_work_count(const spw_job *job, size_t sequences, const spw_model_passes *passes,
                          spw_model_work *out) {
    const spw_model *m = &job->model;
    const spw_parameters p = spw_model_parameters(m);
    const double layers = (double)m->layers, moe = (double)m->moe_layers,
                 dense = (double)spw_model_dense_layers(m), attending = spw_model_like_attention(m);
    const double matrices = (double)spw_ffn_matrices(m);
    const double hidden = (double)m->hidden, b = (double)job->precision.activations;
    const spw_attention_widths w = spw_attention_widths_of(m);
    const double length = (double)job->sequence_length;
    const double tokens = (double)sequences * length;
    *out = (spw_model_work){.tokens = tokens};
    out->projections = passes->layers * 2.0 * tokens * (double)p.mixers +
                       (passes->up - passes->layers) * 2.0 * tokens * layers * up_of(m).weights;
    out->projections += passes->layers * 2.0 * tokens * layers * spw_streams_products(m);
    out->indexer =
        passes->layers * 2.0 * tokens * (double)spw_model_indexer_layers(m) * (double)p.indexer_per_layer;
    out->attention = passes->attention * attending * (double)sequences * length * length * (double)m->heads *
                     (double)(w.key_dim + w.value_dim);
    out->attention += passes->attention * tokens * spw_model_own_scores(m, job->sequence_length);
    out->dense_ffn = passes->dense * 2.0 * matrices * tokens * dense * hidden * (double)m->dense_ffn;
    out->shared_expert = passes->shared * 2.0 * matrices * tokens * moe * hidden * (double)m->shared_ffn;
    out->router = m->listed_router ? 0.0 : passes->layers * 2.0 * tokens * moe * hidden * (double)m->experts;
    out->latent = passes->layers * 2.0 * tokens * moe * (double)p.latent_per_layer;
    out->head = PASSES_ONCE * 2.0 * tokens * hidden * (double)m->vocab;
    const double elements = layers * ((double)w.written + spw_streams_moved(m) / 2.0) +
                            matrices * (moe * (double)m->shared_ffn + dense * (double)m->dense_ffn) +
                            moe * (double)(m->latent > 0 ? 2 * m->latent + m->hidden : 0);
    out->layer_bytes = 2.0 * tokens * (passes->layers * elements + again_elements(m, passes)) * b;
    out->logit_bytes = LOGITS_TOUCHES * tokens * (double)m->vocab * 4.0;
    out->optimizer_bytes = (double)p.total / (double)spw_job_gpus(job) *
                           (double)(2 * (job->precision.weights + spw_precision_moments(&job->precision)) +
                                    job->precision.gradients);
}
