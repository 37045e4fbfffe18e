#include "sim/memory/fp8_memory.h"

static spw_fp8_facts facts_of(const spw_job *job) {
    spw_fp8_facts facts;
    const spw_status status = spw_fp8_facts_of(job->precision.recipe, job->cluster.gpu_generation,
                                               &facts); /* checked with the job */
    return status == SPW_OK ? facts : (spw_fp8_facts){.align = 1};
}

/* --- Weights --- */

double spw_fp8_linear_parameters(const spw_job *job, const spw_stage *stage) {
    const spw_parameters p = spw_model_parameters(&job->model);
    const double layers = (double)stage->layers, moe = (double)stage->moe_layers;
    const double rest = layers * (double)p.attention_per_layer + moe * (double)p.shared_per_layer +
                        (layers - moe) * (double)p.dense_ffn_per_layer;
    return (moe * (double)p.routed_per_layer / (double)job->expert + rest) / (double)job->tensor;
}

double spw_fp8_weight_bytes(const spw_job *job, const spw_stage *stage) {
    return spw_fp8_linear_parameters(job, stage) * facts_of(job).weight_bytes;
}

double spw_fp8_replaced_bytes(const spw_job *job, const spw_stage *stage) {
    return job->precision.fp8_param_gather
               ? spw_fp8_linear_parameters(job, stage) * (double)job->precision.weights
               : 0.0;
}

size_t spw_fp8_products(const spw_job *job, const spw_stage *stage) {
    const spw_model *m = &job->model;
    const size_t attention = m->attention == SPW_ATTENTION_GQA ? 2 : m->q_lora_rank > 0 ? 5 : 4;
    const size_t experts = 2 * (m->experts / job->expert), shared = m->shared_ffn > 0 ? 2 : 0;
    return stage->layers * attention + stage->moe_layers * (experts + shared) +
           (stage->layers - stage->moe_layers) * 2;
}

/* --- Inputs --- */

static double value_elements(const spw_model *m) {
    return (double)(m->heads * (m->attention == SPW_ATTENTION_MLA ? m->v_head_dim : m->head_dim));
}

spw_fp8_inputs spw_fp8_inputs_of(const spw_job *job) {
    const spw_fp8_facts facts = facts_of(job);
    const spw_model *m = &job->model;
    const double b = (double)job->precision.activations, c = facts.scaled ? 1.0 + 1.0 / 32.0 : 1.0,
                 hidden = (double)m->hidden, shared = (double)m->shared_ffn;
    spw_fp8_inputs in = {0.0, 0.0, 0.0};
    if (job->precision.recipe == SPW_FP8_NONE) return in;
    in.attention = hidden * (c - b) + value_elements(m) * c;
    if (m->attention == SPW_ATTENTION_MLA)
        in.attention += hidden * c + (double)(m->q_lora_rank + m->kv_lora_rank) * (c - b);
    if (m->shared_ffn > 0) in.shared = hidden * c + shared * (c - b);
    in.dense = (double)m->dense_ffn * (c - b);
    return in;
}

/* --- Casts --- */

static double cast(const spw_job *job, double inputs, double gradients, bool again) {
    return facts_of(job).cast_bytes * (inputs * (again ? 2.0 : 1.0) + gradients);
}

double spw_fp8_attention_cast_bytes(const spw_job *job, bool again) {
    const spw_model *m = &job->model;
    const double hidden = (double)m->hidden, value = value_elements(m), heads = (double)m->heads;
    if (m->attention == SPW_ATTENTION_GQA) {
        const double projected = (heads + 2.0 * (double)m->kv_heads) * (double)m->head_dim;
        return cast(job, hidden + value, projected + hidden, again);
    }
    const double query = heads * (double)(m->nope_dim + m->rope_dim), q = (double)m->q_lora_rank,
                 kv = (double)m->kv_lora_rank, down = q + kv + (double)m->rope_dim,
                 up = query + heads * (double)m->nope_dim + value;
    return cast(job, 2.0 * hidden + q + kv + value, down + up + hidden, again);
}

double spw_fp8_moe_cast_bytes(const spw_job *job, bool again) {
    const spw_model *m = &job->model;
    const double hidden = (double)m->hidden, rows = (double)m->top_k, ffn = (double)m->expert_ffn,
                 shared = (double)m->shared_ffn, own = m->shared_ffn > 0 ? hidden : 0.0;
    return cast(job, rows * (hidden + ffn) + own + shared, rows * (hidden + 2.0 * ffn) + own + 2.0 * shared,
                again);
}

double spw_fp8_dense_cast_bytes(const spw_job *job, bool again) {
    const double hidden = (double)job->model.hidden, ffn = (double)job->model.dense_ffn;
    return cast(job, hidden + ffn, hidden + 2.0 * ffn, again);
}
