#include "sim/job/grid.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/trainer.h"
#include "sim/memory/kept/attention_offload.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/megatron_kept.h"
#include "sim/memory/kept/mixer_kept.h"
#include "sim/memory/kept/repeated_modules.h"
#include "sim/memory/kept/residual_streams.h"
#include "sim/memory/kept/torchtitan_kept.h"
#include "sim/memory/kept/transformers_job.h"
#include "sim/memory/kept/unfused_attention.h"
#include "sim/memory/live/footprint_waiting.h"
#include "sim/model/attention.h"
#include "sim/weights/fp8_memory.h"

/* Of a frozen block without adapters: what is there for the gradients of weights alone, the normed inputs of its products.
 * Adapters keep the inputs, and A x of every product. */
static size_t attention_unneeded(const spw_job *job) {
    const spw_model *m = &job->model;
    const bool adapts = spw_finetune_adapts(&job->finetune, SPW_LORA_ATTENTION);
    if (job->finetune.frozen != SPW_FROZEN_BASE || adapts) return 0;
    return m->hidden + spw_attention_widths_of(m).latent;
}

static size_t attention_adapter_elements(const spw_job *job) {
    const size_t tensor = spw_grid_of(job).tensor, rank = job->finetune.lora_rank;
    const bool frozen = job->finetune.frozen == SPW_FROZEN_BASE;
    if (!spw_finetune_adapts(&job->finetune, SPW_LORA_ATTENTION)) return 0;
    /* a tensor group gathers A x, and the normed input beside what a trained product keeps of it (7.13) */
    const size_t gathered = tensor == 1 ? 0 : (tensor - (frozen ? 1 : 0)) * job->model.hidden;
    return tensor * rank * spw_attention_products(&job->model) + gathered;
}

/* Elements A a token of one attention block keeps between its recomputation and its gradient, without the [S,
 * S] scores, which flash attention never forms; plus one fp32 log-sum-exp a head (7.4). copies: values are copied out of the up
 * projection of a latent as keys are, or out of the fused product of grouped queries, whose output goes. */
static size_t attention_elements(const spw_model *m, bool copies) {
    const spw_attention_widths w = spw_attention_widths_of(m);
    return copies ? w.kept_copied : w.kept;
}

/* What grows where several GPUs share a key and value head: the product of queries, keys and values is gathered whole, and stays
 * as values are a view of it; and each GPU has one head's rotated keys. A token of the TP T has what a GPU's T share elsewhere. */
static size_t shared_heads_elements(const spw_job *job) {
    const spw_model *m = &job->model;
    const size_t tensor = spw_grid_of(job).tensor, wide = spw_model_query_key_value(m);
    if (!spw_grid_shares_heads(job)) return 0;
    return tensor * wide - (m->heads + 2 * m->kv_heads) * m->head_dim + (tensor - m->kv_heads) * m->head_dim;
}

/* What a product that is cut by columns reads is gathered along the sequence, and so is the gradient that it gives back
 * before that is scattered; of the dense FFN and of the head, whose passes are moments here. */
static void add_gathered_sequence(spw_footprint *f, const spw_job *job, const spw_stage *stage,
                                  const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const size_t tensor = spw_grid_of(job).sequence_tensor;
    const spw_term TP = TERM("TP", tensor), T = TERM("T", s->tokens), H = TERM("H", m->hidden),
                   b = TERM("b", s->element_bytes);
    const bool dense = stage->moe_layers < stage->layers, fp8 = job->precision.recipe != SPW_FP8_NONE,
               at[SPW_MOMENT_COUNT] = {
                   [SPW_MOMENT_DENSE_LAYER] = dense && !fp8, [SPW_MOMENT_LOSS] = stage->head};
    if (tensor == 1) return;
    if (fp8 && dense) {
        const double held = spw_fp8_gather_of(job, s->tokens, m->hidden).held;
        LIVE(SPW_COMPONENT(f, "gathered_dense_sequence",
                           spw_fp8_recipe_is_fp4(job->precision.recipe)
                               ? "fp4 input of a dense FFN, gathered, and its gradient in bf16 (5.10)"
                               : "fp8 input of a dense FFN, gathered, and its gradient in bf16 (5.10)",
                           "TP T H ({held} + b)", TP, T, H, TERM("held", held), b),
             AT_DENSE_LAYER);
    }
    const size_t held = job->finetune.frozen == SPW_FROZEN_BASE ? 1 : 2; /* a frozen product needs no input */
    spw_component_live(
        SPW_COMPONENT(
            f, "gathered_sequence",
            held == 1 ? "gradient of a frozen column-parallel product's input, all of the tensor group (7.13)"
                      : "input of a column-parallel product and its gradient, all of the tensor group (5.10)",
            "{held} TP T H b", TERM("held", held), TP, T, H, b),
        at);
}

/* What one attention block keeps until its backward pass where its layer waits; 2 H of norms of the layer's FFN are in it. */
static double add_unfused(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const spw_unfused_attention a = spw_unfused_attention_of(job, s);
    const double scores =
        spw_remat_repeats(job->remat, SPW_MODULE_CORE_ATTN) ? 0.0 : SPW_SCORES_KEPT * a.scores;
    spw_component *kept =
        SPW_COMPONENT(f, "attention", "attention of a layer, without its scores (7.4)",
                      "T (A b + 8) + 4 'p S' head_dim b [- 'modules that run again']", TERM("T", s->tokens),
                      TERM("A", a.elements), TERM("b", s->element_bytes),
                      TERM("p S", s->sequences * job->sequence_length), TERM("head_dim", job->model.head_dim),
                      TERM("modules that run again", spw_repeated_modules_of(job, s).attention));
    LIVE(kept, AT_LAYERS);
    spw_unfused_attention_add(f, job, s);
    return (double)kept->bytes + scores;
}

/* Where a layer of a kind of its own, such as a recurrence, has more at work than one of attention, it is that one which is there. */
static void use_recurrence(const spw_job *job, const spw_layer_shape *s, spw_component *attention,
                           double bytes) {
    const bool experts = !job->model.half_layers && job->model.moe_layers > 0;
    const spw_mixers_kept kept = spw_mixers_kept_of(job, s, experts, bytes);
    if (kept.most <= bytes) return;
    attention->source = "a layer of the kind that keeps most (7.18)";
    SPW_COMPONENT_BECOMES(attention, "T {each}", TERM("T", s->tokens),
                          TERM("each", kept.most / (double)s->tokens));
}

/* TransformerEngine's get_qkv_layout() makes values contiguous; a core that runs again does so within. Those of a latent are
 * copied wherever modules keep what they keep. */
static bool copies_values(const spw_job *job, const spw_scheme *scheme) {
    const spw_model *m = &job->model;
    if (spw_attention_widths_of(m).latents > 0)
        return spw_scheme_around(scheme, job)->keeps_modules ||
               spw_remat_repeats(job->remat, SPW_MODULE_MLA_UP_PROJ);
    return spw_megatron_has_te(job, scheme) && !m->query_gate && !spw_grid_shares_heads(job) &&
           !spw_remat_repeats(job->remat, SPW_MODULE_CORE_ATTN);
}

/* The log-sum-exp is all that flash attention keeps of its core: its output is an input of the next product. */
static double add_flash(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                        const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const size_t elements = attention_elements(m, copies_values(job, scheme)) - attention_unneeded(job) +
                            attention_adapter_elements(job) + shared_heads_elements(job);
    const spw_term T = TERM("T", s->tokens), b = TERM("b", s->element_bytes);
    spw_component *mixer = SPW_COMPONENT(
        f, "attention", "attention of the recomputed layer (7.4)",
        "T (A b + 4 heads [+ 'cast inputs']) [+ norms] [- 'modules that run again']", T, TERM("A", elements),
        b, TERM("heads", m->heads), TERM("cast inputs", spw_fp8_inputs_of(job).attention),
        TERM("norms", spw_megatron_norms_kept(job, scheme, s) + spw_torchtitan_layer_kept(job, scheme, s)),
        TERM("modules that run again", spw_repeated_modules_of(job, s).attention));
    const double bytes = spw_formula_value(&mixer->expression);
    use_recurrence(job, s, mixer, bytes);
    if (m->half_layers) {
        LIVE(mixer, AT_DENSE_LAYER);
        LIVE(SPW_COMPONENT(f, "expert_layer_input",
                           "what the norm of a layer of experts alone reads and gives (7.18)", "2 T H b", T,
                           TERM("H", m->hidden), b),
             AT_MOE_LAYER);
    } else {
        LIVE(mixer, AT_LAYERS);
    }
    spw_repeated_modules_add(f, job, s);
    return spw_remat_repeats(job->remat, SPW_MODULE_CORE_ATTN)
               ? bytes - T.value * (double)(m->heads * sizeof(float))
               : bytes;
}

double spw_footprint_add_activations(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                                     const spw_stage *stage, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const spw_term T = TERM("T", s->tokens), b = TERM("b", s->element_bytes), H = TERM("H", m->hidden),
                   F_shared = TERM("F_shared", m->shared_ffn), F_dense = TERM("F_dense", m->dense_ffn);
    const double ffn = spw_footprint_ffn_kept(job);
    const spw_fp8_inputs fp8 = spw_fp8_inputs_of(job);
    const double kept = job->remat == SPW_REMAT_INPUT_OFFLOADED ? 1.0 : (double)stage->kept_layers;
    LIVE_BY_LAYER(SPW_COMPONENT(f, "carries",
                                kept < (double)stage->kept_layers ? "the input on its way to the host"
                                : stage->stages > 1
                                    ? "inputs of the layers, of the micro-batches in flight (7.9)"
                                    : "inputs of the layers, stacked by the scan (7.3)",
                                "L T $3 b", TERM("L", kept), T,
                                TERM(m->streams > 1 ? "(n H)" : "H", spw_model_carried(m)), b),
                  ALWAYS);
    double attention =
        job->attention == SPW_ATTENTION_UNFUSED ? add_unfused(f, job, s) : add_flash(f, job, scheme, s);
    attention -= spw_attention_offload_add(f, job, stage, s, copies_values(job, scheme));
    if (stage->head) spw_cross_entropy_add(f, job, scheme, s, m);
    spw_megatron_kept_add(f, job, scheme, stage, s);
    spw_torchtitan_kept_add(f, job, scheme, stage, s);
    add_gathered_sequence(f, job, stage, s);
    spw_streams_add(f, job, scheme, s);
    if (m->latent > 0)
        LIVE(SPW_COMPONENT(f, "latent",
                           "input of the projection to the experts' rows, and what they give (7.18)",
                           "T (H + L) b", T, H, TERM("L", m->latent), b),
             AT_MOE_LAYER);
    if (m->shared_ffn > 0 && !spw_remat_repeats(job->remat, SPW_MODULE_SHARED_EXPERTS)) {
        LIVE(SPW_COMPONENT(f, "shared_expert", "w0, w1, act of the shared expert (7.3)",
                           "{kept} T F_shared b [+ T 'cast inputs']", TERM("kept", ffn), T, F_shared, b,
                           TERM("cast inputs", fp8.shared)),
             AT_MOE_LAYER);
        if (job->megatron.overlap_shared)
            LIVE(SPW_COMPONENT(f, "shared_expert_beside",
                               "gradients of the shared expert beside the routed ones' (7.20)",
                               "T (2 F_shared + H) b", T, F_shared, H, b),
                 AT_MOE_LAYER);
    }
    if (stage->moe_layers + stage->bare_layers < stage->layers) {
        LIVE(SPW_COMPONENT(f, "dense_ffn", "w0, w1, act and one gradient of a dense FFN (7.3)",
                           "{kept} T F_dense b [+ T 'cast inputs']", TERM("kept", 1.0 + ffn), T, F_dense, b,
                           TERM("cast inputs", fp8.dense)),
             AT_DENSE_LAYER);
        if (job->megatron.weight_gradients == SPW_FUSION_OFF && spw_scheme_around(scheme, job)->keeps_modules)
            LIVE(SPW_COMPONENT(f, "dense_weight_gradient",
                               "of a dense FFN's first product, before it is added (7.19)",
                               "{matrices} H F_dense b / TP", TERM("matrices", spw_ffn_matrices(m) - 1), H,
                               F_dense, b, TERM("TP", spw_grid_of(job).tensor)),
                 AT_DENSE_LAYER);
    }
    return attention;
}
