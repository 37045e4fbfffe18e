#include "sim/memory/live/footprint.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/machine/compiled_layer.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/megatron_job.h"
#include "sim/memory/kept/megatron_kept.h"
#include "sim/memory/kept/mesh_memory.h"
#include "sim/memory/kept/mixer_kept.h"
#include "sim/memory/kept/page_pool.h"
#include "sim/memory/kept/repeated_modules.h"
#include "sim/memory/kept/residual_streams.h"
#include "sim/memory/kept/transformers_job.h"
#include "sim/memory/kept/unfused_attention.h"
#include "sim/memory/live/footprint_state.h"
#include "sim/memory/live/footprint_waiting.h"
#include "sim/model/attention.h"
#include "sim/print/formula.h"
#include "sim/schemes/layer.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const double TIGHT = 0.95; /* of the budget */
enum { AFTER_SCHEME = 25 };       /* components that may follow those of the scheme */

const char *spw_moment_name(spw_moment moment) {
    static const char *const names[] = {"backward of a MoE layer", "backward of a dense layer", "loss",
                                        "backward of attention", "optimizer's step"};
    return names[moment];
}

const char *spw_verdict_name(spw_verdict verdict) {
    static const char *const names[] = {"fits", "tight", "oom"};
    return names[verdict];
}

const char *spw_verdict_text(spw_verdict verdict, bool live) {
    static const char *const bounds[] = {"live fits", "live tight", "oom"};
    return live ? bounds[verdict] : spw_verdict_name(verdict);
}

bool spw_verdict_is_sure(spw_verdict verdict, double most_bytes, double budget_bytes) {
    return verdict != SPW_VERDICT_OOM && most_bytes <= budget_bytes;
}

const char *spw_verdict_sentence(spw_verdict verdict, bool surely) {
    static const char *const sentences[][2] = {{"may not fit", "surely fits"},
                                               {"is tight, and may not fit", "is tight, and surely fits"},
                                               {"does not fit", "does not fit"}};
    return sentences[verdict][surely];
}

spw_verdict spw_interval_verdict(double bytes, double high_bytes, double budget_bytes) {
    if (bytes > budget_bytes) return SPW_VERDICT_OOM;
    return high_bytes <= budget_bytes ? SPW_VERDICT_FITS : SPW_VERDICT_TIGHT;
}

spw_verdict spw_footprint_verdict(uint64_t peak_bytes, uint64_t budget_bytes) {
    if (peak_bytes > budget_bytes) return SPW_VERDICT_OOM;
    return (double)peak_bytes > TIGHT * (double)budget_bytes ? SPW_VERDICT_TIGHT : SPW_VERDICT_FITS;
}

/* --- Activations
 * ------------------------------------------------------------------------------------------------ */

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
 * S] scores, which flash attention never forms; plus one fp32 log-sum-exp a head (7.4). joins_keys: values are copied out of the up
 * projection of a latent as keys are, and its output goes; copies: so are those of grouped queries out of their fused product. */
static size_t attention_elements(const spw_model *m, bool joins_keys, bool copies) {
    const spw_attention_widths w = spw_attention_widths_of(m);
    return (w.latents > 0 ? joins_keys : copies) ? w.kept_copied : w.kept;
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

/* The log-sum-exp is all that flash attention keeps of its core: its output is an input of the next product. */
static double add_flash(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                        const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const bool megatron = spw_scheme_around(scheme, job)->keeps_modules ||
                          spw_remat_repeats(job->remat, SPW_MODULE_MLA_UP_PROJ);
    /* TransformerEngine's get_qkv_layout() makes values contiguous; a core that runs again does so within. */
    const bool copies = spw_megatron_has_te(job, scheme) && !m->query_gate && !spw_grid_shares_heads(job) &&
                        !spw_remat_repeats(job->remat, SPW_MODULE_CORE_ATTN);
    const size_t elements = attention_elements(m, megatron, copies) - attention_unneeded(job) +
                            attention_adapter_elements(job) + shared_heads_elements(job);
    const spw_term T = TERM("T", s->tokens), b = TERM("b", s->element_bytes);
    spw_component *mixer = SPW_COMPONENT(
        f, "attention", "attention of the recomputed layer (7.4)",
        "T (A b + 4 heads [+ 'cast inputs']) [+ norms] [- 'modules that run again']", T, TERM("A", elements),
        b, TERM("heads", m->heads), TERM("cast inputs", spw_fp8_inputs_of(job).attention),
        TERM("norms", spw_megatron_norms_kept(job, scheme, s)),
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

static double add_activations(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
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
    const double attention =
        job->attention == SPW_ATTENTION_UNFUSED ? add_unfused(f, job, s) : add_flash(f, job, scheme, s);
    if (stage->head) spw_cross_entropy_add(f, job, scheme, s, m);
    spw_megatron_kept_add(f, job, scheme, stage, s);
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

/* The tensors that are live at the peak of the layer, one component each. */
static spw_status add_scheme(spw_footprint *f, const spw_scheme *scheme, const spw_layer_shape *s,
                             const spw_rank_rows *rows) {
    const spw_scheme_type *type = scheme->type;
    spw_layer layer;
    spw_status status = spw_layer_build(scheme, s, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    f->live_set = spw_layer_live_set(&layer, rows);
    f->rows = *rows;
    f->follows_routing = spw_layer_is_dynamic(&layer);
    (void)snprintf(f->step, sizeof f->step, "%s", spw_layer_step(&layer, f->live_set.backward_event));
    for (size_t i = 0; i < layer.tensors && f->live_set.backward_event != SIZE_MAX; i++) {
        if (!spw_layer_is_live(&layer, rows, i, f->live_set.backward_event)) continue;
        if (f->components + AFTER_SCHEME >= SPW_COMPONENTS) {
            SPW_TRY(spw_fail(SPW_EARG,
                             "scheme '%s': %zu tensors in a layer are too many; a footprint has room for %d "
                             "components",
                             scheme->text, layer.tensors, (int)SPW_COMPONENTS));
        }
        char name[48];
        (void)snprintf(name, sizeof name, "moe.%s", layer.tensor[i].name);
        const spw_formula shape = spw_layer_formula(&layer.tensor[i], rows);
        spw_component *c =
            spw_component_of(f, name, type->about.section, shape.words, shape.term, shape.terms);
        c->routed = true;
        LIVE(c, AT_MOE_LAYER);
    }
    if (type->memory.communication_bytes != NULL) {
        const char *source = type->memory.communication_source, *note = type->memory.communication_formula;
        spw_component *c =
            SPW_COMPONENT(f, "communication_buffers", source != NULL ? source : "DeepEP buffer hints (4.3)",
                          "= {bytes}", TERM("bytes", type->memory.communication_bytes(scheme, s)));
        c->expression.note = note != NULL ? note : "rings of the channels, independent of T";
        LIVE(c, ALWAYS);
    }

cleanup:
    spw_layer_destroy(&layer);
    return status;
}

/* Pages for all layers in flight, and the layer whose backward pass follows its forward pass at once: it is not moved. */
static void add_pool(spw_footprint *f, const spw_point *p, const spw_stage *stage) {
    const spw_scheme_memory *memory = &p->scheme->type->memory;
    const spw_pipeline pipeline = spw_pipeline_of(p->job);
    const char *source = p->scheme->type->about.section;
    spw_page_pool pool;
    uint64_t stays = 0;
    if (memory->pool == NULL || !memory->pool(p->scheme, &p->shape, &pool)) return;
    const spw_stage_pages pages = spw_stage_pages_of(&pool, &pipeline, &p->job->model, stage->index);
    for (size_t t = 0; t < pool.tensors; t++) stays += spw_pool_tensor_bytes(&pool, t, pool.buffer_rows);
    LIVE(SPW_COMPONENT(
             f, "stash_pages", source,
             "{buffers} buffers, pages of {page} rows, {factor} x {mean} rows a layer in flight: = {bytes}",
             TERM("buffers", pool.buffers), TERM("page", pool.page_rows), TERM("factor", pool.factor),
             TERM("mean", pool.mean_rows), TERM("bytes", pages.gpu_bytes)),
         ALWAYS);
    if (stage->moe_layers + stage->predictions > 0)
        LIVE(SPW_COMPONENT(f, "unstashed_layer", source, "{rows} rows of the last MoE layer: = {bytes}",
                           TERM("rows", pool.buffer_rows), TERM("bytes", stays)),
             AT_LOSS);
}

/* Of offloading, the groups on the GPU between the passes: the last MoE layer's of the pass that runs backward next. */
static void add_staying(spw_footprint *f, const spw_job *job, const spw_layer_shape *shape,
                        const spw_stage *stage, uint64_t stays) {
    if (job->offload.modules == 0 || stage->moe_layers + stage->predictions == 0) return;
    spw_component *c = SPW_COMPONENT(
        f, "staying_groups", "offloading leaves the last layer's on the GPU (7.17)",
        "{rows} rows of one layer: = {bytes}", TERM("rows", f->rows.held), TERM("bytes", stays));
    c->expression.note = spw_offload_name(&job->offload);
    c->routed = true;
    LIVE(c, {[SPW_MOMENT_LOSS] = true, [SPW_MOMENT_DENSE_LAYER] = shape->offload_ahead});
    f->stays_in_dense = shape->offload_ahead;
}

/* What the dataset gives for a token: tokens, labels and positions of 8 bytes, and a mask of the loss of 4. Of all micro-batches,
 * on the stages that read them; a graph reads them where they were when it was captured. */
static void add_graph_inputs(spw_footprint *f, const spw_point *p, const spw_stage *stage) {
    enum { TOKEN_BYTES = 3 * 8 + 4 };
    if (!spw_scheme_option_is(p->scheme, "graph", "full") || !(stage->embedding || stage->head)) return;
    LIVE(SPW_COMPONENT(f, "graph_inputs", p->scheme->type->about.section, "= token p S",
                       TERM("token", TOKEN_BYTES), TERM("p", p->sequences),
                       TERM("S", p->job->sequence_length)),
         ALWAYS);
}

/* Stays at the end of 63 bits. */
static uint64_t plus(uint64_t a, uint64_t b) {
    const uint64_t room = (uint64_t)INT64_MAX - a;
    return a + (b < room ? b : room);
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

uint64_t spw_footprint_peak(const spw_footprint *f, bool saves, const spw_live_set *live,
                            spw_saved_rows kept) {
    if (f->whole_step) return f->peak_bytes;
    const uint64_t saved = saves ? kept.all : 0, others = less(saved, live->saved_bytes),
                   stays = saves ? kept.stays : 0;
    const uint64_t at[SPW_MOMENT_COUNT] = {
        [SPW_MOMENT_MOE_LAYER] =
            plus(plus(f->fixed_bytes[SPW_MOMENT_MOE_LAYER], plus(0, live->backward_bytes)), others),
        [SPW_MOMENT_DENSE_LAYER] =
            plus(plus(f->fixed_bytes[SPW_MOMENT_DENSE_LAYER], saved), f->stays_in_dense ? stays : 0),
        [SPW_MOMENT_LOSS] = plus(plus(f->fixed_bytes[SPW_MOMENT_LOSS], saved), stays),
        [SPW_MOMENT_ATTENTION] = plus(f->fixed_bytes[SPW_MOMENT_ATTENTION], less(saved, kept.last)),
    };
    uint64_t peak = 0;
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) peak = at[m] > peak ? at[m] : peak;
    return peak;
}

uint64_t spw_footprint_walked_peak(const spw_footprint *f, const spw_stage_peaks *peaks, uint64_t stays) {
    if (f->whole_step) return f->peak_bytes;
    const uint64_t beside[SPW_MOMENT_COUNT] = {
        [SPW_MOMENT_LOSS] = stays, [SPW_MOMENT_DENSE_LAYER] = f->stays_in_dense ? stays : 0};
    uint64_t peak = 0;
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        if (!peaks->at[m].there) continue;
        const uint64_t at = plus(plus(f->beside_bytes[m], peaks->at[m].bytes), beside[m]);
        peak = at > peak ? at : peak;
    }
    return peak;
}

bool spw_footprint_frees(const spw_scheme *scheme) {
    return spw_scheme_trainer(scheme)->memory == SPW_MEMORY_MODEL_FREED;
}

/* Moments that do not come are not the peak. */
static void leave_out(spw_footprint *f, uint64_t total[SPW_MOMENT_COUNT]) {
    const size_t predictions = f->stage.predictions;
    bool never[SPW_MOMENT_COUNT] = {[SPW_MOMENT_MOE_LAYER] = f->stage.moe_layers + predictions == 0,
                                    [SPW_MOMENT_DENSE_LAYER] = f->stage.layers + predictions == 0};
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        if (f->frees) never[m] = !f->waiting.at[m].there;
        if (never[m]) total[m] = f->fixed_bytes[m] = 0;
    }
}

static void find_peak(spw_footprint *f) {
    uint64_t total[SPW_MOMENT_COUNT] = {0};
    for (size_t i = 0; i < f->components; i++) {
        const spw_component *c = &f->component[i];
        if (c->argument) f->argument_bytes += c->bytes;
        for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
            if (!c->live[m]) continue;
            total[m] = plus(total[m], c->bytes);
            if (!c->routed) f->fixed_bytes[m] = plus(f->fixed_bytes[m], c->bytes);
            if (!c->routed && !c->waits) f->beside_bytes[m] = plus(f->beside_bytes[m], c->bytes);
        }
    }
    leave_out(f, total);
    f->moment = SPW_MOMENT_MOE_LAYER;
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        if (total[m] > total[f->moment]) f->moment = (spw_moment)m;
    }
    f->peak_bytes = total[f->moment];
    if (f->argument_bytes > f->peak_bytes) f->argument_bytes = f->peak_bytes; /* both at their end */
    f->temporary_bytes = f->peak_bytes - f->argument_bytes;
    f->low_bytes = f->high_bytes = f->peak_bytes;
}

/* What waits at every moment: as it was found, or of layers that are all alike. */
static spw_status find_waiting(spw_footprint *f, const spw_job *job, const spw_routed_memory *routed) {
    const spw_pipeline pipeline = spw_pipeline_of(job);
    const uint64_t saved = routed != NULL ? routed->saved.last : f->live_set.saved_bytes;
    const spw_layer_use use = {f->live_set.backward_bytes, spw_remat_keeps_experts(job->remat) ? saved : 0};
    const spw_layer_uses uses = {&use, 1, 1, use};
    spw_stage_walk *walk = NULL;
    if (routed != NULL && routed->walked) {
        f->waiting = routed->peaks;
        return SPW_OK;
    }
    const spw_status status = spw_stage_walk_create(&pipeline, &job->model, f->stage.index, f->keeps, &walk);
    if (status == SPW_OK) spw_stage_walk_run(walk, &uses, &f->waiting);
    spw_stage_walk_destroy(walk);
    return status;
}

static uint64_t budget_of(const spw_job *job, const spw_scheme *scheme) {
    const spw_device_budget budget = spw_device_budget_of(job, scheme);
    return spw_device_budget_bytes(&budget);
}

/* Of a job whose steps are known tensor by tensor; what its layer's list says stands beside. */
static spw_status listed_steps(const spw_point *p, const spw_transformers_shape *steps, spw_footprint *out) {
    const spw_rank_rows rows = spw_balanced_rows(p->scheme, &p->shape);
    const spw_pipeline pipeline = spw_pipeline_of(p->job);
    spw_layer layer;
    spw_status status = spw_layer_build(p->scheme, &p->shape, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    *out = (spw_footprint){.stage = spw_pipeline_stage(&pipeline, &p->job->model, 0),
                           .rows = rows,
                           .live_set = spw_layer_live_set(&layer, &rows),
                           .follows_routing = spw_layer_is_dynamic(&layer)};
    (void)snprintf(out->step, sizeof out->step, "%s", spw_layer_step(&layer, out->live_set.backward_event));
    spw_layer_destroy(&layer);
    out->budget_bytes = budget_of(p->job, p->scheme);
    status = spw_transformers_footprint(steps, out);
    find_peak(out);
    return status;
}

spw_status spw_footprint_of_stage(const spw_point *p, size_t index, const spw_routed_memory *routed,
                                  spw_footprint *out) {
    spw_transformers_shape steps;
    if (spw_transformers_is_listed(p, &steps, NULL)) return listed_steps(p, &steps, out);
    spw_job room;
    const spw_job *job = spw_fsdp2_job(p->job, p->scheme, &room);
    const spw_scheme *scheme = p->scheme;
    const spw_layer_shape own = spw_offload_shape(job, &p->shape, index), *shape = &own;
    const spw_pipeline pipeline = spw_pipeline_of(job);
    const spw_stage stage = spw_pipeline_stage(&pipeline, &job->model, index);
    *out = (spw_footprint){.stage = stage};
    out->budget_bytes = budget_of(job, scheme);
    out->frees = spw_footprint_frees(scheme);
    const bool whole = job->part == SPW_PART_WHOLE;
    double attention = 0.0;
    size_t carries = SIZE_MAX; /* the component */
    spw_job cut;               /* with the widths of one GPU of a tensor group */
    const spw_job *part = job;
    if (spw_grid_mesh_tensor(job) > 1) {
        cut = *job;
        spw_mesh_cut_model(job, &cut.model);
        part = &cut;
    }
    const spw_state_law *law = spw_state_law_of(job);
    const spw_compiled_layer *program = spw_scheme_program(scheme);
    if (whole) {
        const spw_status held = spw_footprint_add_state(out, job, &stage);
        if (held != SPW_OK) return held;
        if (law->by_units)
            spw_footprint_add_fsdp2(out, job, &stage, shape);
        else if (law->shares_weights)
            spw_footprint_add_gathered(out, job, &stage, program != NULL && program->all_experts);
        carries = out->components;
        attention = add_activations(out, part, scheme, &stage, shape);
        spw_mesh_add(job, &stage, shape, out);
    } else {
        const spw_parameters parameters = spw_model_parameters(&job->model);
        spw_footprint_add_expert_layers(out, job, &parameters, shape);
    }
    const spw_rank_rows balanced = spw_balanced_rows(scheme, shape);
    spw_status status = add_scheme(out, scheme, shape, routed != NULL ? &routed->rows : &balanced);
    if (status != SPW_OK) return status;
    if (whole && scheme->type->memory.whole_steps) spw_transformers_add_wrapped(out, job, &stage);
    if (whole)
        spw_footprint_layer_keeps(part, scheme, &stage, shape, attention + spw_mesh_gathered_keys(job, shape),
                                  out->keeps);
    if (whole) spw_footprint_add_summed(out, job, &stage);
    const double left = whole ? spw_megatron_left_by_layer(job, scheme, shape) : 0.0;
    if (left > 0.0) {
        out->keeps[1].left = left;
        out->keeps[1].stays = true;
    }
    if (out->frees) status = find_waiting(out, job, routed);
    if (status != SPW_OK) return status;
    if (spw_remat_keeps_layers(job->remat)) {
        const uint64_t one = out->live_set.saved_bytes;
        const spw_saved_rows balanced_rows = {stage.kept_moe_layers * one, one, out->live_set.to_host_bytes},
                             *saved = routed != NULL ? &routed->saved : &balanced_rows;
        if (!out->frees) spw_footprint_add_stacked(out, part, saved);
        if (spw_remat_keeps_experts(job->remat)) out->saved = *saved;
        if (out->frees) out->saved.all = out->waiting.at[SPW_MOMENT_LOSS].rows;
    }
    if (out->frees) spw_footprint_add_waiting(out, job, carries);
    if (spw_remat_keeps_layers(job->remat)) add_staying(out, job, shape, &stage, out->saved.stays);
    add_pool(out, p, &stage);
    add_graph_inputs(out, p, &stage);
    if (whole && !out->frees) spw_footprint_add_policy(out, part, shape);
    find_peak(out);
    return SPW_OK;
}

spw_status spw_footprint_compute(const spw_point *p, const spw_routed_memory *routed, spw_footprint *out) {
    const size_t stages = spw_pipeline_of(p->job).stages;
    for (size_t s = 0; s < stages; s++) {
        spw_footprint here;
        const spw_status status = spw_footprint_of_stage(p, s, routed, &here);
        if (status != SPW_OK) return status;
        if (s == 0 || here.peak_bytes > out->peak_bytes) *out = here;
    }
    return SPW_OK;
}
