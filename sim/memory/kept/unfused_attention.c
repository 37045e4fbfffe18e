#include "sim/memory/kept/unfused_attention.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/model/attention.h"

#define CORE "megatron/core/transformer/dot_product_attention.py (7.4)"

enum {
    FP32 = 4,
    AT_WORK =
        FP32 + 3 * FP32, /* a score: its softmax; the gradients behind and before it, and their product */
};

static bool repeats_core(const spw_job *job) { return spw_remat_repeats(job->remat, SPW_MODULE_CORE_ATTN); }

spw_unfused_attention spw_unfused_attention_of(const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const size_t query = m->heads * m->head_dim, key = m->kv_heads * m->head_dim;
    const bool groups = m->kv_heads < m->heads && !repeats_core(job);
    const double length = (double)job->sequence_length,
                 heads = (double)(s->sequences * m->heads) / (double)spw_grid_of(job).tensor;
    /* Keys and values that heads share are repeated: their copies stay, and the fused projection goes. */
    return (spw_unfused_attention){.scores = heads * length * length,
                                   .elements = 3 * m->hidden + (groups ? 4 * query : 3 * query + 3 * key)};
}

/* Of a core that is repeated its inputs wait for its end: the fused projection, and keys before they are copied. */
static size_t inputs_elements(const spw_job *job) {
    const spw_model *m = &job->model;
    const size_t query = m->heads * m->head_dim, key = m->kv_heads * m->head_dim;
    return m->hidden + 2 * query +
           (repeats_core(job) ? query + 2 * key + (m->kv_heads < m->heads ? key : 0) : 0);
}

void spw_unfused_attention_add(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const spw_unfused_attention a = spw_unfused_attention_of(job, s);
    const spw_term T = TERM("T", s->tokens), b = TERM("b", s->element_bytes);
    const spw_term scores = TERM("p heads / TP S^2", a.scores), head_dim = TERM("head_dim", m->head_dim);
    spw_component *buffer = SPW_COMPONENT(f, "scores_buffer", "Megatron's global memory buffer, kept: " CORE,
                                          "2 'p heads / TP S^2'", scores);
    spw_component *inputs =
        SPW_COMPONENT(f, "attention_mask", "the mask, and the angles of the positions: " CORE,
                      "S^2 + 4 S head_dim", TERM("S", job->sequence_length), head_dim);
    buffer->argument = inputs->argument = true;
    LIVE(buffer, ALWAYS);
    LIVE(inputs, ALWAYS);
    if (!repeats_core(job))
        LIVE(SPW_COMPONENT(f, "attention_scores", "the softmax in fp32 and in bf16: " CORE,
                           "= kept 'p heads / TP S^2'", TERM("kept", SPW_SCORES_KEPT), scores),
             AT_LAYERS);
    LIVE(SPW_COMPONENT(f, "scores_at_work", "the softmax, two gradients and a product, in fp32: " CORE,
                       "= work 'p heads / TP S^2'", TERM("work", AT_WORK), scores),
         AT_ATTENTION);
    LIVE(SPW_COMPONENT(f, "attention_inputs", "normed input, queries and keys: " CORE,
                       "at the gradient of the softmax: T (A b + 4) + 4 'p S' head_dim b", T,
                       TERM("A", inputs_elements(job)), b, TERM("p S", s->sequences * job->sequence_length),
                       head_dim),
         AT_ATTENTION);
    LIVE(SPW_COMPONENT(f, "attention_gradients", "of the residual stream and of the values: " CORE,
                       "T (H + heads head_dim) b", T, TERM("H", m->hidden), TERM("heads", m->heads), head_dim,
                       b),
         AT_ATTENTION);
}
