#include "sim/time/model_work.h"

#include "sim/input/precision.h"
#include "sim/input/token_work.h"

static const double PASSES_ONCE = 3.0;    /* the head is not recomputed */
static const double LOGITS_TOUCHES = 6.0; /* fp32 */

/* Elements a token that a layer's attention and FFN outside the experts write once a forward pass (docs/schemes.md,
 * section 7.4, and three tensors of the FFN's width). */
static double layer_elements(const spw_model *m) {
    const double hidden = (double)m->hidden, heads = (double)m->heads;
    const double plain =
        2.0 * hidden + (3.0 * heads + 4.0 * (double)m->kv_heads) * (double)m->head_dim + hidden;
    if (m->attention != SPW_ATTENTION_MLA) return plain;
    const double key = (double)(m->nope_dim + m->rope_dim), value = (double)m->v_head_dim;
    const double latent = (double)m->kv_lora_rank;
    return 2.0 * hidden + 2.0 * (double)m->q_lora_rank + 2.0 * heads * key + (latent + (double)m->rope_dim) +
           latent + heads * ((double)m->nope_dim + value) + heads * value + hidden;
}

/* Of one layer: weights of MLA's up projections, and the elements a token that they and the rotation write. */
static double up_weights(const spw_model *m) {
    const double key = (double)(m->nope_dim + m->rope_dim), heads = (double)m->heads;
    if (m->attention != SPW_ATTENTION_MLA) return 0.0;
    return (double)(m->q_lora_rank > 0 ? m->q_lora_rank : m->hidden) * heads * key +
           (double)m->kv_lora_rank * heads * (double)(m->nope_dim + m->v_head_dim);
}
static double up_elements(const spw_model *m) {
    if (m->attention != SPW_ATTENTION_MLA) return 0.0;
    return (double)m->heads * (double)(2 * (m->nope_dim + m->rope_dim) + m->nope_dim + m->v_head_dim);
}

/* What modules that run again write beside `layers` passes, all layers. */
static double again_elements(const spw_model *m, const spw_model_passes *passes) {
    const double moe = (double)m->moe_layers, dense = (double)spw_model_dense_layers(m),
                 matrices = (double)spw_ffn_matrices(m);
    const double norms = moe + (m->attention != SPW_ATTENTION_MLA ? 0.0 : (double)m->layers);
    return (passes->up - passes->layers) * (double)m->layers * up_elements(m) +
           (passes->dense - passes->layers) * matrices * dense * (double)m->dense_ffn +
           (passes->shared - passes->layers) * matrices * moe * (double)m->shared_ffn +
           passes->norms * norms * (double)m->hidden;
}

void spw_model_work_count(const spw_job *job, size_t sequences, const spw_model_passes *passes,
                          spw_model_work *out) {
    const spw_model *m = &job->model;
    const spw_parameters p = spw_model_parameters(m);
    const double layers = (double)m->layers, moe = (double)m->moe_layers,
                 dense = (double)spw_model_dense_layers(m), attending = spw_model_like_attention(m);
    const double matrices = (double)spw_ffn_matrices(m);
    const double hidden = (double)m->hidden, b = (double)job->precision.activations;
    const bool mla = m->attention == SPW_ATTENTION_MLA;
    const double key = (double)(mla ? m->nope_dim + m->rope_dim : m->head_dim);
    const double value = (double)(mla ? m->v_head_dim : m->head_dim);
    const double length = (double)job->sequence_length;
    const double tokens = (double)sequences * length;
    *out = (spw_model_work){.tokens = tokens};
    out->projections = passes->layers * 2.0 * tokens * (double)p.mixers +
                       (passes->up - passes->layers) * 2.0 * tokens * layers * up_weights(m);
    out->indexer =
        passes->layers * 2.0 * tokens * (double)spw_model_indexer_layers(m) * (double)p.indexer_per_layer;
    out->attention = passes->attention * attending * (double)sequences * length * length * (double)m->heads *
                     (key + value);
    out->attention += passes->attention * tokens * spw_model_own_scores(m, job->sequence_length);
    out->dense_ffn = passes->dense * 2.0 * matrices * tokens * dense * hidden * (double)m->dense_ffn;
    out->shared_expert = passes->shared * 2.0 * matrices * tokens * moe * hidden * (double)m->shared_ffn;
    out->router = m->listed_router ? 0.0 : passes->layers * 2.0 * tokens * moe * hidden * (double)m->experts;
    out->latent = passes->layers * 2.0 * tokens * moe * (double)p.latent_per_layer;
    out->head = PASSES_ONCE * 2.0 * tokens * hidden * (double)m->vocab;
    const double elements = layers * layer_elements(m) +
                            matrices * (moe * (double)m->shared_ffn + dense * (double)m->dense_ffn) +
                            moe * (double)(m->latent > 0 ? 2 * m->latent + m->hidden : 0);
    out->layer_bytes = 2.0 * tokens * (passes->layers * elements + again_elements(m, passes)) * b;
    out->logit_bytes = LOGITS_TOUCHES * tokens * (double)m->vocab * 4.0;
    out->optimizer_bytes = (double)p.total / (double)spw_job_gpus(job) *
                           (double)(2 * (job->precision.weights + spw_precision_moments(&job->precision)) +
                                    job->precision.gradients);
}
