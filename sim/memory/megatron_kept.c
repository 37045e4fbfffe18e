#include "sim/memory/megatron_kept.h"

#include "sim/input/remat.h"
#include "sim/input/stack_defaults.h"
#include "sim/memory/footprint_component.h"
#include "sim/memory/megatron_job.h"

enum {
    FP32 = 4,
    INDEX = 8,
    LAYER_NORMS = 2, /* of the input, and before the FFN */
    WORKSPACES = 2,  /* of the thread of the forward pass, and of autograd's */
};

double spw_megatron_norms_kept(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const double tokens = (double)s->tokens, query = (double)(m->heads * m->head_dim);
    double bytes = LAYER_NORMS * FP32 * tokens;
    if (!spw_is_megatron_job(job, scheme)) return 0.0;
    if (m->attention == SPW_ATTENTION_MLA) return bytes + (m->q_lora_rank > 0 ? 2 : 1) * FP32 * tokens;
    /* Queries are copied out of the fused projection; keys are read where they are. */
    if (m->qk_norm)
        bytes += tokens * (query * (double)s->element_bytes +
                           FP32 * (double)(m->qk_norm_per_head ? m->heads + m->kv_heads : 2));
    return bytes;
}

double spw_megatron_left_by_layer(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *s) {
    if (!spw_is_megatron_job(job, scheme) || !scheme->type->megatron.splits ||
        spw_remat_keeps_experts(job->remat))
        return 0.0;
    return 2.0 * (double)s->tokens * (double)job->model.hidden * (double)s->element_bytes;
}

/* Bytes of one workspace: what PyTorch takes unless CUBLAS_WORKSPACE_CONFIG or HIPBLAS_WORKSPACE_CONFIG says otherwise. */
static double workspace(spw_gpu_generation generation) {
    static const spw_coefficient *const of[SPW_GPU_NONE + 1] = {
        [SPW_GPU_HOPPER] = &spw_default_workspace_hopper_bytes,
        [SPW_GPU_BLACKWELL] = &spw_default_workspace_blackwell_bytes,
        [SPW_GPU_CDNA3] = &spw_default_workspace_cdna3_bytes,
        [SPW_GPU_CDNA4] = &spw_default_workspace_cdna4_bytes};
    return of[generation] != NULL ? of[generation]->value : 0.0;
}

static void add_workspaces(spw_footprint *f, const spw_job *job) {
    const double each = workspace(job->cluster.gpu_generation);
    if (!(each > 0.0)) return;
    spw_component *c =
        spw_component_add(f, "cublas_workspaces", WORKSPACES * each, "PyTorch's, one a thread (7.19)",
                          "%d x %.0f", (int)WORKSPACES, each);
    c->argument = true;
    LIVE(c, ALWAYS);
}

/* Dispatchers hold probs, routing_map and permutation by name; where layers keep their rows these are the same tensors. */
static void add_dispatchers(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                            const spw_stage *stage, const spw_layer_shape *s) {
    const size_t layers = stage->moe_layers + stage->predictions;
    const double each = (double)s->tokens * ((double)((FP32 + 1) * s->experts) + (double)(INDEX * s->top_k));
    if (layers == 0 || !scheme->type->megatron.splits || spw_remat_keeps_experts(job->remat)) return;
    spw_component *others = spw_component_add(f, "dispatchers", (double)(layers - 1) * each,
                                              "what dispatchers keep until their next pass (7.19)",
                                              "(L - 1) T (5 E + 8 K) = %zu x %zu x (5 x %zu + 8 x %zu)",
                                              layers - 1, s->tokens, s->experts, s->top_k);
    LIVE(others, ALWAYS);
    LIVE(spw_component_add(f, "last_dispatcher", each, "the same of the layer that is not at work (7.19)",
                           "T (5 E + 8 K) = %zu x (5 x %zu + 8 x %zu)", s->tokens, s->experts, s->top_k),
         {[SPW_MOMENT_DENSE_LAYER] = true, [SPW_MOMENT_LOSS] = true, [SPW_MOMENT_ATTENTION] = true});
}

void spw_megatron_kept_add(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                           const spw_stage *stage, const spw_layer_shape *s) {
    const double hidden = (double)job->model.hidden;
    if (!spw_is_megatron_job(job, scheme)) return;
    add_workspaces(f, job);
    add_dispatchers(f, job, scheme, stage, s);
    if (!stage->head) return;
    const size_t norms = 1 + stage->predictions;
    LIVE(spw_component_add(f, "final_norm",
                           (double)norms * (double)s->tokens *
                               (2.0 * hidden * (double)s->element_bytes + FP32),
                           "what the last norm reads and gives, for it and for the head (7.19)",
                           "%zu T (2 H b + 4) = %zu x %zu x (2 x %.0f x %zu + 4)", norms, norms, s->tokens,
                           hidden, s->element_bytes),
         AT_LOSS);
}
