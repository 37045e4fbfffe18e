#include "sim/memory/unfused_attention.h"

#include "sim/input/attention.h"
#include "sim/input/grid.h"
#include "sim/input/job.h"
#include "sim/input/remat.h"
#include "sim/input/state_law.h"
#include "sim/memory/footprint_component.h"

#define CORE "megatron/core/transformer/dot_product_attention.py (7.4)"

enum {
    FP32 = 4,
    AT_WORK =
        FP32 + 3 * FP32, /* a score: its softmax; the gradients behind and before it, and their product */
    ANGLE_TABLES = 4,    /* cosine and sine, of the queries and of the keys */
};

static bool repeats_core(const spw_job *job) { return spw_remat_repeats(job->remat, SPW_MODULE_CORE_ATTN); }

/* Tokens of the whole sequences that the tensor group shares. */
static double tokens_of(const spw_job *job, const spw_layer_shape *s) {
    return (double)(s->sequences * job->sequence_length);
}

spw_unfused_attention spw_unfused_attention_of(const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const size_t query = m->heads * m->head_dim, key = m->kv_heads * m->head_dim;
    const bool groups = m->kv_heads < m->heads && !repeats_core(job);
    const double tokens = (double)s->tokens, b = (double)s->element_bytes,
                 length = (double)job->sequence_length;
    const double angles = ANGLE_TABLES * tokens_of(job, s) * (double)m->head_dim * b,
                 scores =
                     (double)(s->sequences * m->heads) / (double)spw_grid_of(job).tensor * length * length;
    spw_unfused_attention a = {.scores = scores};
    /* Keys and values that heads share are repeated: their copies stay, and the fused projection goes. */
    a.elements = 3 * m->hidden + (groups ? 4 * query : 3 * query + 3 * key);
    a.kept = tokens * ((double)a.elements * b + 2 * FP32) + angles; /* two norms' 1 / rms */
    if (!repeats_core(job)) a.kept += SPW_SCORES_KEPT * scores;
    a.inputs = tokens * ((double)(m->hidden + 2 * query) * b + FP32) + angles;
    /* The inputs of the core that is repeated wait for its end: the fused projection, and keys before they are copied. */
    if (repeats_core(job))
        a.inputs += tokens * (double)(query + 2 * key + (m->kv_heads < m->heads ? key : 0)) * b;
    a.gradients = tokens * (double)(m->hidden + query) * b;
    return a;
}

void spw_unfused_attention_add(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const spw_unfused_attention a = spw_unfused_attention_of(job, s);
    const size_t S = job->sequence_length;
    spw_component *buffer =
        spw_component_add(f, "scores_buffer", 2 * a.scores, "Megatron's global memory buffer, kept: " CORE,
                          "2 p heads / TP S^2 = 2 x %.6g", a.scores);
    spw_component *inputs =
        spw_component_add(f, "attention_mask", (double)S * (double)S + FP32 * (double)S * (double)m->head_dim,
                          "the mask, and the angles of the positions: " CORE,
                          "S^2 + 4 S head_dim = %zu^2 + 4 x %zu x %zu", S, S, m->head_dim);
    buffer->argument = inputs->argument = true;
    LIVE(buffer, ALWAYS);
    LIVE(inputs, ALWAYS);
    if (!repeats_core(job))
        LIVE(spw_component_add(f, "attention_scores", SPW_SCORES_KEPT * a.scores,
                               "the softmax in fp32 and in bf16: " CORE, "%d x %.6g", (int)SPW_SCORES_KEPT,
                               a.scores),
             AT_LAYERS);
    LIVE(spw_component_add(f, "scores_at_work", AT_WORK * a.scores,
                           "the softmax, two gradients and a product, in fp32: " CORE, "%d x %.6g",
                           (int)AT_WORK, a.scores),
         AT_ATTENTION);
    LIVE(spw_component_add(f, "attention_inputs", a.inputs, "normed input, queries and keys: " CORE,
                           "%.6g at the gradient of the softmax", a.inputs),
         AT_ATTENTION);
    LIVE(spw_component_add(f, "attention_gradients", a.gradients,
                           "of the residual stream and of the values: " CORE,
                           "T (H + heads head_dim) b = %zu x (%zu + %zu x %zu) x %zu", s->tokens, m->hidden,
                           m->heads, m->head_dim, s->element_bytes),
         AT_ATTENTION);
}
