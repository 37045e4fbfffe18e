#include "sim/memory/kept/transformers_job.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/model/attention.h"
#include "sim/model/compressed_attention.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/pipeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const SOURCE = "transformers, PEFT, DDP and FSDP2, tensor by tensor (6.8)";

/* Every GPU has all, as under DDP. */
static bool has_replicas(const spw_job *job) {
    return job->fsdp > 1 && job->optimizer == SPW_OPTIMIZER_REPLICATED;
}

/* What of a job no list describes; NULL: all of it is. */
static const char *job_lacks(const spw_job *job) {
    const spw_finetune *f = &job->finetune;
    const bool adapters = f->frozen == SPW_FROZEN_BASE && f->lora_rank > 0;
    const struct {
        bool lacks;
        const char *what;
    } rules[] = {
        {job->part != SPW_PART_WHOLE, "bare layers"},
        {!spw_grid_is_plain(job) || job->pipeline > 1 || job->expert > 1, "other parallelism than FSDP2's"},
        {job->remat != SPW_REMAT_NONE && job->remat != SPW_REMAT_FULL, "remat other than none and full"},
        {job->attention != SPW_ATTENTION_FLASH &&
             !(job->attention == SPW_ATTENTION_UNFUSED && job->model.attention_sinks),
         "attention other than flash, but for gpt-oss"},
        {job->cross_entropy != SPW_CROSS_ENTROPY_AUTO && job->cross_entropy != SPW_CROSS_ENTROPY_UNFUSED &&
             job->cross_entropy != SPW_CROSS_ENTROPY_FUSED,
         "losses other than transformers' own and Liger's"},
        {job->muon || job->offload.modules != 0 || job->fsdp2.on_host || job->optimizer_on_host > 0.0,
         "Muon, and what is in the host's memory"},
        {job->fsdp2.reshard == SPW_RESHARD_OFF, "fsdp2.reshard_after_forward: off"},
        {job->fsdp2.replicas > 1, "replicas"},
        {f->frozen != SPW_FROZEN_BASE &&
             job->precision.optimizer != job->precision.weights, /* adapters have the moments' */
         "moments in another format than the weights"},
        {job->master_bytes != 0 && job->master_bytes != SPW_MASTER_AUTO, "master weights"},
        {job->precision.recipe != SPW_FP8_NONE || job->precision.activations != 2 ||
             job->precision.weights < 2,
         "activations other than bf16"},
        {job->fsdp > 1 && job->optimizer != SPW_OPTIMIZER_SHARDED && !has_replicas(job),
         "several GPUs without DDP or FSDP; jobs with them have: --optimizer replicated or sharded"},
        {(job->fsdp == 1 || has_replicas(job)) && job->precision.weights > 2,
         "fp32 weights of one GPU (autocast)"},
        {!spw_finetune_is_whole(f) && !adapters, "frozen parts without adapters"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].lacks) return rules[i].what;
    return NULL;
}

/* Matrices beside those of the fields that are asked below. */
static bool has_more(const spw_model *m) {
    return m->attention_bias || m->output_bias || m->expert_bias || m->router_bias || m->attention_sinks ||
           m->norm_bias || m->ffn_bias || m->head_bias || m->plain_experts || m->latent > 0 ||
           m->query_gate || m->output_gate || m->keys_are_values || m->layer_norms != 2;
}

/* gpt-oss: sinks, and a bias beside every matrix of a layer. */
static bool is_oss(const spw_model *m) {
    return m->attention_sinks && m->attention_bias && m->output_bias && m->expert_bias && m->router_bias &&
           spw_attention_is_grouped(m) && !m->norm_bias && !m->ffn_bias && !m->head_bias &&
           !m->plain_experts && !m->qk_norm && m->latent == 0 && m->shared_ffn == 0 && !m->query_gate &&
           !m->output_gate && !m->keys_are_values && m->layer_norms == 2 && m->other_layers == 0 &&
           m->bare_layers == 0 && m->moe_layers == m->layers && !m->sigmoid_router;
}

/* DeepSeek-V2's and V3's class: latent attention without an indexer, a router in fp32. */
static bool is_latent(const spw_model *m) {
    return spw_attention_is_latent(m) && m->indexer_heads == 0 && m->streams <= 1 && m->zero_experts == 0;
}

/* Layers of Nemotron-H: Mamba-2, attention without positions, FFNs and experts of two matrices, each a layer alone. */
static bool is_nemotron(const spw_model *m, spw_recurrence_kind kind) {
    return kind == SPW_RECURRENCE_MAMBA2 && m->half_layers && spw_attention_is_grouped(m) &&
           m->plain_experts && m->plain_ffn && m->sigmoid_router && m->layer_norms == 1 &&
           !m->projection_bias && !m->qk_norm && !m->query_gate && !m->shared_gate && !m->latent_norm;
}

/* Of Qwen3-Next: Gated DeltaNet, attention with a gate as wide as its queries, a gate of the shared expert. */
static bool is_next(const spw_model *m, spw_recurrence_kind kind) {
    return kind == SPW_RECURRENCE_GATED_DELTA && !m->half_layers && spw_attention_is_grouped(m) &&
           !m->plain_experts && !m->sigmoid_router && m->layer_norms == 2 && m->query_gate &&
           !m->query_gate_bias && m->qk_norm_per_head && m->shared_gate && m->latent == 0;
}

/* Of Kimi Linear: Kimi Delta Attention with gates through the width of a head, latent attention without positions. */
static bool is_kimi(const spw_model *m, spw_recurrence_kind kind) {
    return kind == SPW_RECURRENCE_KIMI_DELTA && !m->half_layers && is_latent(m) && !m->plain_experts &&
           m->sigmoid_router && m->layer_norms == 2 && !m->full_rank_gate && !m->output_gate &&
           !m->shared_gate && m->latent == 0;
}

/* One kind of recurrence beside the model's attention, and layers that are an FFN alone. */
static bool is_mixed(const spw_model *m) {
    spw_recurrence_kind kind = SPW_RECURRENCE_NONE;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        const spw_recurrence_kind here = m->mixer[k].recurrence.kind;
        if (m->mixer[k].layers == 0 ||
            (here == SPW_RECURRENCE_NONE && m->half_layers && !m->mixer[k].attends))
            continue;
        if (here == SPW_RECURRENCE_NONE || (kind != SPW_RECURRENCE_NONE && here != kind)) return false;
        kind = here;
    }
    const bool biases = m->attention_bias || m->output_bias || m->expert_bias || m->router_bias ||
                        m->attention_sinks || m->norm_bias || m->ffn_bias || m->head_bias;
    return !biases && m->streams <= 1 && m->residual_blocks == 0 &&
           (is_nemotron(m, kind) || is_next(m, kind) || is_kimi(m, kind));
}

static const char *model_lacks(const spw_model *m) {
    const bool own = (m->streams > 1 && spw_attention_is_compressed(m)) || spw_hf_attention_is_by_blocks(m);
    if ((own && m->bare_layers == 0 && m->latent == 0 && !m->plain_experts) || is_oss(m)) return NULL;
    const bool plain =
        (spw_attention_is_grouped(m) || is_latent(m)) && m->other_layers == 0 && m->bare_layers == 0;
    if (m->other_layers > 0 && is_mixed(m)) return NULL;
    return plain && !has_more(m)
               ? NULL
               : "models other than Qwen3-MoE, Mixtral, OLMoE, gpt-oss, DeepSeek-V3 and V4, MiniMax-M3, "
                 "Nemotron-H, Qwen3-Next, Kimi Linear and their like";
}

static void set_mixed_laws(const spw_model *m, spw_transformers_shape *out) {
    out->unmasked = true;
    out->scale = m->half_layers  ? SPW_HF_SCALE_WIDE
                 : m->query_gate ? SPW_HF_SCALE_CENTRED
                                 : SPW_HF_SCALE_NARROW;
    out->rotation = m->query_gate ? SPW_HF_ROTATION_QUARTER : SPW_HF_ROTATION_NONE;
    out->router = m->sigmoid_router ? SPW_HF_ROUTER_SIGMOID : SPW_HF_ROUTER_SOFTMAX;
    out->wide_router = m->sigmoid_router;
    out->wide_scores = m->sigmoid_router;
}

void spw_transformers_set_laws(const spw_model *m, spw_transformers_shape *out) {
    const bool latent = spw_attention_is_latent(m);
    out->compressed = m->streams > 1 && spw_attention_is_compressed(m);
    if (out->compressed) {
        out->router = SPW_HF_ROUTER_ROOTS;
        out->scale = SPW_HF_SCALE_WIDE;
        out->gate = SPW_HF_GATE_CLAMPED;
        out->unmasked = true;
        return;
    }
    if (spw_hf_attention_is_by_blocks(m)) {
        out->blocks = out->wide_scores = out->unmasked = true;
        out->router = SPW_HF_ROUTER_SHARES;
        out->scale = SPW_HF_SCALE_CENTRED;
        out->gate = SPW_HF_GATE_SHIFTED;
        return;
    }
    if (is_oss(m)) {
        out->sinks = out->unmasked = true;
        out->router = SPW_HF_ROUTER_CHOSEN;
        out->scale = SPW_HF_SCALE_MIXED;
        out->gate = SPW_HF_GATE_TURNS;
        out->rotation = SPW_HF_ROTATION_APART;
        return;
    }
    out->norm = !m->qk_norm || latent ? SPW_HF_NORM_NONE
                : m->qk_norm_per_head ? SPW_HF_NORM_HEAD
                                      : SPW_HF_NORM_WHOLE;
    /* Mixtral's and DeepSeek's routers; Qwen3's and OLMoE's give the hidden states' format back */
    out->wide_scores = !m->qk_norm || latent;
    if (m->other_layers > 0) {
        set_mixed_laws(m, out);
        return;
    }
    if (!latent) return;
    out->router = m->sigmoid_router ? SPW_HF_ROUTER_SIGMOID : SPW_HF_ROUTER_GROUPS;
    out->rotation = m->sigmoid_router ? SPW_HF_ROTATION_PAIRS : SPW_HF_ROTATION_COMPLEX;
    out->wide_router = true; /* from_pretrained() keeps it: _keep_in_fp32_modules_strict */
}

bool spw_transformers_is_listed(const spw_point *p, spw_transformers_shape *out, const char **why) {
    const spw_job *job = p->job;
    const spw_model *m = &job->model;
    const char *lacks = p->scheme->type->memory.whole_steps ? job_lacks(job) : "other schemes";
    if (lacks == NULL) lacks = model_lacks(m);
    if (lacks == NULL && (!spw_attention_is_grouped(m) || m->other_layers > 0) && job->finetune.lora_rank > 0)
        lacks = "adapters beside other attention than four matrices, and mixers";
    if (lacks == NULL && (m->plain_experts || m->latent > 0 || m->sigmoid_router || m->expert_bias) &&
        (spw_finetune_adapts(&job->finetune, SPW_LORA_EXPERTS) ||
         spw_finetune_adapts(&job->finetune, SPW_LORA_ROUTER)))
        lacks =
            "adapters beside experts of two matrices, with biases or with narrower rows, and beside routers "
            "in fp32";
    if (why != NULL) *why = lacks;
    if (lacks != NULL || out == NULL) return lacks == NULL;
    const size_t micro = spw_pipeline_of(job).micro_batches, bytes = job->precision.weights;
    *out = (spw_transformers_shape){
        .model = m,
        .tokens = p->shape.tokens,
        .sequences = p->shape.sequences > 0 ? p->shape.sequences : 1,
        .layers = m->layers,
        .element_bytes = job->precision.activations,
        .weight_bytes = bytes,
        .moment_bytes = bytes,
        .adapter_bytes = job->precision.optimizer,
        .reduced_bytes = job->precision.gradients,
        .shards = has_replicas(job) ? 1 : job->fsdp,
        .summed = has_replicas(job) ? job->fsdp : 1,
        .wrapped = job->fsdp > 1 && !has_replicas(job),
        .keeps_gathered = job->fsdp2.reshard == SPW_RESHARD_NEVER,
        .checkpoint = job->remat == SPW_REMAT_FULL,
        .fused_loss = job->cross_entropy == SPW_CROSS_ENTROPY_FUSED,
        .scores = job->attention == SPW_ATTENTION_UNFUSED,
        .keeps_logits = spw_scheme_option_is(p->scheme, "logits", "kept"),
        .frozen = job->finetune.frozen == SPW_FROZEN_BASE,
        .adapts_attention = spw_finetune_adapts(&job->finetune, SPW_LORA_ATTENTION),
        .adapts_all = spw_finetune_adapts(&job->finetune, SPW_LORA_DENSE),
        .adapts_experts = spw_finetune_adapts(&job->finetune, SPW_LORA_EXPERTS),
        .adapts_router = spw_finetune_adapts(&job->finetune, SPW_LORA_ROUTER),
        .lora_rank = job->finetune.lora_rank,
        .micro_batches = micro,
    };
    spw_transformers_set_laws(m, out);
    return true;
}

/* Bytes of each kind that are live after the lists before, and the peak of the step's list above them. */
typedef struct lists {
    spw_event_list begin, moments, first, step;
} lists;

static void add_live(const spw_event_list *list, int64_t bytes[SPW_TENSOR_KINDS]) {
    for (size_t i = 0; i < list->events; i++)
        bytes[list->event[i].kind] += (list->event[i].born ? 1 : -1) * (int64_t)list->event[i].bytes;
}

/* How many tensors of a kind have a size where the step holds most. */
enum { SIZES = 512, TERMS = 4 };
typedef struct sizes {
    struct {
        uint64_t bytes;
        int64_t tensors;
        uint16_t kind;
    } of[SIZES];
    size_t count;
    bool lost; /* there are more */
} sizes;

static void add_sizes(const spw_event_list *list, size_t events, sizes *s) {
    for (size_t i = 0; i < events; i++) {
        const spw_memory_event *e = &list->event[i];
        size_t at = 0;
        while (at < s->count && (s->of[at].kind != e->kind || s->of[at].bytes != e->bytes)) at++;
        if (at == SIZES) {
            s->lost = true;
            continue;
        }
        if (at == s->count) {
            s->of[s->count].bytes = e->bytes;
            s->of[s->count].kind = e->kind;
            s->of[s->count++].tensors = 0;
        }
        s->of[at].tensors += e->born ? 1 : -1;
    }
}

static int larger_first(const void *a, const void *b, void *of) {
    const sizes *s = of;
    const double x = (double)s->of[*(const size_t *)a].bytes * (double)s->of[*(const size_t *)a].tensors,
                 y = (double)s->of[*(const size_t *)b].bytes * (double)s->of[*(const size_t *)b].tensors;
    return (x < y) - (x > y);
}

/* "7 tensors = 2 x 8192 x 607744 + 8192 x 4096 + 1234": how many, tokens of a micro-batch, bytes; the smallest in one sum. False where
 * the sizes do not come to `bytes`. */
static bool write_terms(sizes *s, size_t kind, size_t tokens, int64_t bytes, char out[SPW_COMPONENT_TEXT]) {
    size_t own[SIZES], count = 0, used = 0;
    int64_t left = bytes, tensors = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->of[i].kind != kind || s->of[i].tensors == 0) continue;
        own[count++] = i;
        tensors += s->of[i].tensors;
        left -= s->of[i].tensors * (int64_t)s->of[i].bytes;
    }
    if (left != 0 || s->lost || count == 0) return false;
    qsort_r(own, count, sizeof *own, larger_first, s);
    left = bytes;
    used = (size_t)snprintf(out, SPW_COMPONENT_TEXT, "%" PRId64 " tensor%s = ", tensors,
                            tensors == 1 ? "" : "s");
    for (size_t i = 0; i < count && i < TERMS; i++) {
        const uint64_t each = s->of[own[i]].bytes;
        const bool rows = kind >= SPW_HF_NORMS && each % tokens == 0;
        if (i > 0) used += (size_t)snprintf(out + used, SPW_COMPONENT_TEXT - used, " + ");
        if (s->of[own[i]].tensors != 1)
            used += (size_t)snprintf(out + used, SPW_COMPONENT_TEXT - used, "%" PRId64 " x ",
                                     s->of[own[i]].tensors);
        if (rows) used += (size_t)snprintf(out + used, SPW_COMPONENT_TEXT - used, "%zu x ", tokens);
        used +=
            (size_t)snprintf(out + used, SPW_COMPONENT_TEXT - used, "%" PRIu64, rows ? each / tokens : each);
        left -= s->of[own[i]].tensors * (int64_t)each;
    }
    if (count > TERMS) (void)snprintf(out + used, SPW_COMPONENT_TEXT - used, " + %" PRId64, left);
    return true;
}

static void fill(spw_footprint *out, sizes *s, size_t tokens, const int64_t bytes[SPW_TENSOR_KINDS]) {
    for (size_t k = 0; k < SPW_HF_KINDS; k++) {
        char terms[SPW_COMPONENT_TEXT];
        if (bytes[k] <= 0) continue;
        spw_component *c = spw_component_add(
            out, spw_transformers_kind_name(k), (double)bytes[k], SOURCE, "%s",
            write_terms(s, k, tokens, bytes[k], terms) ? terms
                                                       : "the sum of its tensors where the step holds most");
        c->argument = k == SPW_HF_WEIGHTS || k == SPW_HF_MOMENTS;
        if (c->argument)
            LIVE(c, ALWAYS);
        else
            LIVE(c, AT_LOSS);
    }
}

/* FSDP2 shards a tensor by its first dimension, which of experts' weights is the expert: the first GPUs of a group hold
 * ceil(experts / GPUs) whole ones, and what is gathered or scattered is that many from every GPU. Of experts that are trained. */
static void add_uneven(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const char *source = "FSDP2 shards experts' weights by whole experts (6.8)";
    const size_t shards = job->fsdp / spw_fsdp2_copies(job);
    const double own = (double)job->model.experts / (double)job->expert,
                 share = ceil(own / (double)shards) / own, padded = share * (double)shards - 1.0;
    const double layer = (double)spw_model_parameters(&job->model).routed_per_layer / (double)job->expert;
    const spw_precision *p = &job->precision;
    if (!spw_state_is_sharded(job) || shards < 2 || padded <= 0.0 || stage->moe_layers == 0) return;
    const bool trained = job->finetune.frozen != SPW_FROZEN_BASE;
    const double each =
        (double)p->weights +
        (trained ? (double)(p->gradients + spw_precision_moments(p) + spw_master_bytes(job)) : 0.0);
    const spw_term routed = TERM("routed", layer), more = TERM("padded", padded);
    spw_component *c = SPW_COMPONENT(
        f, "uneven_shards", source, "of the first GPUs: = layers routed padded / shards each",
        TERM("layers", stage->moe_layers), routed, more, TERM("shards", shards), TERM("each", each));
    c->argument = true;
    LIVE(c, ALWAYS);
    LIVE(SPW_COMPONENT(f, "padded_gathers", source, "of a layer and the next: = 2 routed padded w", routed,
                       more, TERM("w", spw_precision_gathered(job))),
         AT_MOE_LAYER);
    if (trained)
        LIVE(SPW_COMPONENT(f, "padded_gradients", source, "before they are scattered: = routed padded g",
                           routed, more, TERM("g", spw_precision_scattered(job))),
             AT_MOE_LAYER);
}

void spw_transformers_add_wrapped(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const spw_model *m = &job->model;
    add_uneven(f, job, stage);
    if (!spw_finetune_adapts(&job->finetune, SPW_LORA_EXPERTS) || stage->moe_layers == 0) return;
    const spw_term E = TERM("E", m->experts), H = TERM("H", m->hidden), F = TERM("F", m->expert_ffn),
                   b = TERM("b", job->precision.activations);
    spw_component *c =
        SPW_COMPONENT(f, "adapted_experts", "experts' weights with their adapters, PEFT's ParamWrapper (6.8)",
                      "layers {matrices} E H F b",
                      TERM("layers", spw_remat_keeps_layers(job->remat) ? stage->moe_layers : 1),
                      TERM("matrices", spw_expert_matrices(m)), E, H, F, b);
    if (spw_remat_keeps_layers(job->remat))
        LIVE(c, ALWAYS);
    else
        LIVE(c, AT_MOE_LAYER);
    LIVE(SPW_COMPONENT(f, "adapted_experts_gradient", "of the first of them (6.8)", "{matrices} E H F b",
                       TERM("matrices", spw_expert_matrices(m) - 1), E, H, F, b),
         AT_MOE_LAYER);
}

spw_status spw_transformers_footprint(const spw_transformers_shape *shape, spw_footprint *out) {
    lists l = {.begin = {.events = 0}};
    spw_transformers_step *step = NULL;
    sizes *known = NULL;
    int64_t bytes[SPW_TENSOR_KINDS] = {0}, at_peak[SPW_TENSOR_KINDS];
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &known));
    SPW_TRY(spw_transformers_step_create(shape, &step));
    SPW_TRY(spw_transformers_step_begin(step, &l.begin));
    SPW_TRY(spw_transformers_step_run(step, &l.first));
    SPW_TRY(spw_transformers_step_optimizer(step, &l.moments));
    add_live(&l.begin, bytes);
    add_live(&l.first, bytes);
    add_live(&l.moments, bytes); /* gradients and moments together: the end of the optimizer's first step */
    SPW_TRY(spw_transformers_step_run(step, &l.step));
    const spw_list_peak peak = spw_event_list_peak(&l.step);
    spw_event_list_waterfall(&l.step, &peak, at_peak);
    for (size_t k = 0; k < SPW_TENSOR_KINDS && peak.peak_bytes > 0; k++) bytes[k] += at_peak[k];
    add_sizes(&l.begin, l.begin.events, known);
    add_sizes(&l.first, l.first.events, known);
    add_sizes(&l.moments, l.moments.events, known);
    if (peak.peak_bytes > 0) add_sizes(&l.step, peak.peak_event + 1, known);
    fill(out, known, shape->tokens, bytes);
    const bool ends = peak.peak_bytes <= 0 || peak.peak_event >= l.step.events;
    const char *kind =
        ends ? "the optimizer's step" : spw_transformers_kind_name(l.step.event[peak.peak_event].kind);
    (void)snprintf(out->place, sizeof out->place, "%s%s", kind,
                   ends                                     ? ""
                   : l.step.event[peak.peak_event].backward ? ", backward"
                                                            : ", forward");
    out->whole_step = true;

cleanup:
    spw_free(known);
    spw_transformers_step_destroy(step);
    spw_event_list_destroy(&l.begin);
    spw_event_list_destroy(&l.first);
    spw_event_list_destroy(&l.moments);
    spw_event_list_destroy(&l.step);
    return status;
}
