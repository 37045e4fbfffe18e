#include "sim/memory/footprint_check.h"

#include "sim/input/attention.h"
#include "sim/input/compiled_layer.h"
#include "sim/input/fp8_recipe.h"
#include "sim/input/grid.h"
#include "sim/input/job.h"
#include "sim/input/remat.h"
#include "sim/input/state_law.h"
#include "sim/input/trainer.h"
#include "sim/memory/activation_offload.h"
#include "sim/memory/cross_entropy.h"
#include "sim/memory/fp8_memory.h"
#include "sim/memory/fsdp2.h"
#include "sim/memory/launches.h"
#include "sim/memory/megatron_notes.h"
#include "sim/memory/selective_ops.h"
#include "sim/memory/transformers_job.h"
#include "sim/memory/unfused_attention.h"
#include "sim/schemes/library_limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A recipe with sharded weights: which scheme's framework has it. */
static spw_status check_cast_recipe(const spw_job *job, const spw_scheme *scheme) {
    const bool delayed = job->precision.recipe == SPW_FP8_DELAYED, torch = scheme->type->megatron.by_parts,
               dense = spw_scheme_program(scheme) != NULL && spw_scheme_program(scheme)->capacity_slots;
    if ((torch && !delayed) || (dense && delayed)) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "scheme '%s': recipe %s with sharded weights is not modelled; tensorwise and mxfp8 are "
                    "for torchtitan, delayed for dense; "
                    "others need Megatron-Core's optimizer: distributed",
                    scheme->text, spw_fp8_recipe_name(job->precision.recipe));
}

static bool says_align(const char *text) {
    return strstr(text, ":align=") != NULL || strstr(text, ",align=") != NULL;
}

spw_status spw_scheme_settle(const spw_job *job, spw_scheme *scheme) {
    const spw_fp8_facts facts = spw_fp8_facts_known(job->precision.recipe, job->cluster.gpu_generation);
    char text[2 * SPW_SCHEME_TEXT];
    if (facts.align == 1 || !scheme->type->megatron.fp8 || !spw_state_law_of(job)->megatron ||
        says_align(scheme->text))
        return SPW_OK;
    (void)snprintf(text, sizeof text, "%s%calign=%zu", scheme->text,
                   strchr(scheme->text, ':') == NULL ? ':' : ',', facts.align);
    return spw_scheme_parse(text, scheme);
}

/* Rows of an expert must come in the multiples that its products take. */
static spw_status check_recipe(const spw_job *job, const spw_scheme *scheme) {
    const char *name = spw_fp8_recipe_name(job->precision.recipe);
    spw_fp8_facts facts;
    spw_status status = spw_fp8_facts_of(job->precision.recipe, job->cluster.gpu_generation, &facts);
    char align[16];
    if (status != SPW_OK || job->precision.recipe == SPW_FP8_NONE) return status;
    if (!spw_state_law_of(job)->megatron) return check_cast_recipe(job, scheme);
    if (!scheme->type->megatron.fp8)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': recipe %s is of TransformerEngine under Megatron-Core; what this scheme's own "
            "quantization keeps is not modelled: use megatron-alltoall, megatron-flex or megatron-syncfree, "
            "or recipe: none",
            scheme->text, name);
    (void)snprintf(align, sizeof align, "%zu", facts.align);
    if (!spw_scheme_option_is(scheme, "align", align))
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': recipe %s pads the rows of an expert to multiples of %s; write "
                        "%s:align=%s, or leave align out",
                        scheme->text, name, align, scheme->type->name, align);
    return SPW_OK;
}

/* Adapters of attention in a tensor group: Megatron-Bridge cuts the rank of those beside a product cut by columns. */
static spw_status check_cut_adapters(const spw_job *job, const spw_grid *g) {
    const spw_finetune *f = &job->finetune;
    if (g->tensor == 1 || !spw_finetune_adapts(f, SPW_LORA_ATTENTION)) return SPW_OK;
    const bool latent = spw_attention_is_latent(&job->model);
    if (latent || job->model.other_layers > 0 || job->model.matrices > 0)
        return spw_fail(
            SPW_ECONFIG,
            "finetune.lora_targets attention with tensor %zu and model '%s': how adapters beside %s "
            "are cut is not modelled; use lora_targets: experts, or tensor 1",
            g->tensor, job->model.name,
            latent && job->model.matrices == 0 ? "MLA's down projections, which every GPU holds whole,"
                                               : "layers of several kinds");
    if (f->lora_rank % g->tensor != 0)
        return spw_fail(
            SPW_ECONFIG,
            "tensor %zu does not divide finetune.lora_rank %zu, which it cuts; use a multiple, such "
            "as %zu",
            g->tensor, f->lora_rank, (f->lora_rank / g->tensor + 1) * g->tensor);
    return SPW_OK;
}

/* What is described of weights that are not trained, and of adapters. */
static spw_status check_finetune(const spw_job *job, const spw_scheme *scheme) {
    const spw_finetune *f = &job->finetune;
    if (spw_finetune_is_whole(f)) return SPW_OK;
    if (scheme->type->memory.whole_steps && f->frozen == SPW_FROZEN_BASE) return SPW_OK;
    if (spw_finetune_adapts(f, SPW_LORA_DENSE) || spw_finetune_adapts(f, SPW_LORA_ROUTER))
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': finetune.lora_targets linear and all are PEFT's, of scheme "
                        "transformers; use attention, "
                        "experts or both",
                        scheme->text);
    if (!scheme->type->megatron.freezes)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': finetune (frozen %s, lora_rank %zu) is described for megatron-alltoall and "
            "megatron-flex alone, adapters beside a frozen base for transformers too; use one of them, or "
            "leave "
            "finetune away",
            scheme->text, spw_frozen_name(f->frozen), f->lora_rank);
    const spw_grid g = spw_grid_of(job);
    if (!spw_state_is_megatron(job))
        return spw_fail(SPW_ECONFIG,
                        "finetune is described for whole models under Megatron-Core's optimizer: "
                        "distributed or replicated; use one of these, or leave finetune away");
    if (g.expert_tensor > 1)
        return spw_fail(SPW_ECONFIG,
                        "finetune with expert_tensor %zu is not modelled%s; use expert_tensor: 1 (tensor and "
                        "context may be "
                        "above 1)",
                        g.expert_tensor,
                        job->expert_tensor == 0 ? " (it is as large as tensor, because nobody gave it)" : "");
    const spw_status status = check_cut_adapters(job, &g);
    if (status != SPW_OK) return status;
    if (job->precision.recipe != SPW_FP8_NONE ||
        spw_remat_exceeds(job->remat, SPW_MODULE_CORE_ATTN | SPW_MODULE_MOE))
        return spw_fail(
            SPW_ECONFIG,
            "finetune with recipe %s under remat %s is not modelled; use recipe: none and another "
            "remat",
            spw_fp8_recipe_name(job->precision.recipe), spw_remat_name(job->remat));
    return SPW_OK;
}

/* The stash holds what TransformerEngine marks for it, and no layer that runs again leaves anything there. */
static spw_status check_pool(const spw_job *job, const spw_scheme *scheme) {
    const spw_layer_shape shape = spw_layer_shape_of(job, job->sequences_per_gpu[0]);
    spw_page_pool pool;
    if (scheme->type->memory.pool == NULL || !scheme->type->memory.pool(scheme, &shape, &pool)) return SPW_OK;
    if (job->precision.recipe != SPW_FP8_MXFP8)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': TransformerEngine marks tensors for the paged stash in its fused MXFP8 "
            "experts alone, so recipe %s would leave the pages empty; use precision.recipe: mxfp8 "
            "on Blackwell, or leave stash= away",
            scheme->text, spw_fp8_recipe_name(job->precision.recipe));
    if (!spw_remat_keeps_experts(job->remat))
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': under remat %s a MoE layer runs again right before its backward pass, "
                        "so nothing of it waits in the stash; use remat: none or selective, or leave stash= "
                        "away",
                        scheme->text, spw_remat_name(job->remat));
    if (spw_remat_repeats(job->remat, SPW_MODULE_MOE_ACT))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': remat moe_act with the paged stash is done within TransformerEngine's fused "
            "experts and was not read; use remat: none or selective, or leave stash= away",
            scheme->text);
    return SPW_OK;
}

/* Of dense: what XLA does with slots in the layouts and on the axes for which it was asked. */
static spw_status check_mesh_slots(const spw_scheme *scheme, const spw_grid *g) {
    const bool gathered = spw_scheme_option_is(scheme, "layout", "gathered");
    if (spw_scheme_option_is(scheme, "layout", "peeled") || (gathered && g->context > 1))
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': how XLA cuts this layout for tensor %zu and context %zu is not "
                        "described; use layout=exchange%s, or make both axes 1",
                        scheme->text, g->tensor, g->context, g->context > 1 ? "" : " or layout=gathered");
    if (!isnan(spw_scheme_option_value(scheme, "capacity_factor")) && g->tensor > 1 && g->context > 1)
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': tensor %zu and context %zu with a capacity factor are described one at "
                        "a time; make one of them 1, or use gmm, ragged, ring or ragged-ring",
                        scheme->text, g->tensor, g->context);
    return SPW_OK;
}

/* What is described of MaxText's mesh axes tensor and context. */
static spw_status check_mesh(const spw_job *job, const spw_scheme *scheme) {
    const spw_grid g = spw_grid_of(job);
    if (!scheme->type->compiled.mesh)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': MaxText's mesh axes tensor %zu and context %zu are described for dense, "
            "gmm, ragged, ring and ragged-ring; use one of them, or make both 1",
            scheme->text, g.tensor, g.context);
    if (g.pipeline > 1)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': pipeline %zu with MaxText's mesh axes tensor %zu and context %zu is not "
            "described; use pipeline 1, or make both axes 1",
            scheme->text, g.pipeline, g.tensor, g.context);
    if (g.tensor > 1 && spw_scheme_option_value(scheme, "token_chunks") > 1.0)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': token_chunks with tensor %zu was not read; leave token_chunks out, or make "
            "tensor 1",
            scheme->text, g.tensor);
    return check_mesh_slots(scheme, &g);
}

/* TransformerEngine refuses an operand of fp8 whose tokens or width are no multiple: of a GPU's part of them. */
static spw_status check_operands(const spw_job *job, const spw_grid *g) {
    const spw_model *m = &job->model;
    const spw_fp8_facts facts = spw_fp8_facts_known(job->precision.recipe, job->cluster.gpu_generation);
    const spw_layer_shape shape = spw_layer_shape_of(job, job->sequences_per_gpu[0]);
    const struct {
        const char *what;
        size_t size, cut, multiple;
    } operands[] = {
        {"tokens of a sequence part", shape.tokens, 1, facts.row_multiple},
        {"columns of attention's output", (size_t)spw_fp8_value_elements(m), g->tensor, facts.width_multiple},
        {"columns of the shared experts", m->shared_ffn, g->tensor, facts.width_multiple},
        {"columns of a dense FFN", m->dense_ffn, g->tensor, facts.width_multiple},
        {"columns of an expert", m->expert_ffn, g->expert_tensor, facts.width_multiple}};
    for (size_t i = 0; i < sizeof operands / sizeof *operands && job->precision.recipe != SPW_FP8_NONE; i++) {
        if (operands[i].size / operands[i].cut % operands[i].multiple == 0) continue;
        return spw_fail(SPW_ECONFIG,
                        "recipe %s: a GPU has %zu %s, and TransformerEngine takes multiples of %zu; use less "
                        "tensor, context or expert_tensor parallelism, other sequences, or recipe: none",
                        spw_fp8_recipe_name(job->precision.recipe), operands[i].size / operands[i].cut,
                        operands[i].what, operands[i].multiple);
    }
    return SPW_OK;
}

/* What is described of tensor, context and expert-tensor parallelism. */
static spw_status check_grid(const spw_job *job, const spw_scheme *scheme) {
    const spw_grid g = spw_grid_of(job);
    const spw_trainer *trainer = spw_scheme_trainer(scheme);
    if (spw_grid_is_plain(job)) return SPW_OK;
    if (trainer->takes_mesh && spw_grid_mesh_gpus(&g) > 1) return check_mesh(job, scheme);
    if (!trainer->takes_splits)
        return spw_fail(SPW_ECONFIG, "scheme '%s': tensor %zu, context %zu and expert_tensor %zu are %s",
                        scheme->text, g.tensor, g.context, g.expert_tensor, trainer->splits_words);
    if (g.expert_tensor > 1 && scheme->type->megatron.dispatcher != SPW_MEGATRON_ALL_TO_ALL)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': expert_tensor %zu is described for the all-to-all dispatcher alone; use "
            "megatron-alltoall, or expert_tensor: 1",
            scheme->text, g.expert_tensor);
    if (spw_state_is_sharded(job))
        return spw_fail(
            SPW_ECONFIG,
            "tensor %zu, context %zu and expert_tensor %zu with sharded weights are not modelled; use "
            "Megatron-Core's optimizer: distributed or replicated",
            g.tensor, g.context, g.expert_tensor);
    return check_operands(job, &g);
}

static spw_status check_layout(const spw_job *job, const spw_scheme *scheme) {
    if (job->stage_layout.behind > 0 && !spw_scheme_trainer(scheme)->takes_predictions)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': mtp_num_layers is of Megatron-Core's and Primus' schemes, which have layers of "
            "multi-token prediction; leave it out, or use one of them, as --scheme megatron-alltoall",
            scheme->text);
    if (spw_scheme_trainer(scheme)->takes_layouts || !spw_stage_layout_is_said(&job->stage_layout))
        return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': MaxText gives every stage equally many layers; use a scheme of PyTorch such "
        "as megatron-alltoall, or leave the layout of the stages out",
        scheme->text);
}

/* Keys of FSDP2 with a scheme that has it only if told. */
static spw_status check_fsdp2_keys(const spw_job *job, const spw_scheme *scheme) {
    const spw_job_fsdp2 *f = &job->fsdp2;
    const char *key = f->prefetch > 1   ? "prefetch"
                      : f->replicas > 1 ? "replicas"
                      : f->gathered > 0 ? "gathered"
                                        : "state";
    if (f->reshard != SPW_RESHARD_DEFAULT || spw_fsdp2_is_default(job, scheme) ||
        (f->prefetch <= 1 && f->replicas <= 1 && f->gathered == 0 && !f->on_host))
        return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "fsdp2.%s is of FSDP2, which scheme '%s' of a job with optimizer: %s has only where it is "
        "said; add fsdp2.reshard_after_forward: always or never, or leave it out",
        key, scheme->text, spw_optimizer_name(job->optimizer));
}

static spw_status check_fsdp2(const spw_job *job, const spw_scheme *scheme) {
    const spw_status status = check_fsdp2_keys(job, scheme);
    if (status != SPW_OK) return status;
    if (spw_scheme_trainer(scheme)->fsdp2 != SPW_FSDP2_NEVER || !spw_state_law_of(job)->by_units)
        return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': FSDP2 is PyTorch's, and MaxText's program gathers weights by its layer scan; "
        "use a scheme of PyTorch such as torchtitan, or fsdp2.reshard_after_forward: off",
        scheme->text);
}

static spw_status check_schedule(const spw_job *job, const spw_scheme *scheme) {
    if (job->schedule != SPW_SCHEDULE_GPIPE || spw_scheme_trainer(scheme)->takes_gpipe) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': GPipe is described for torchtitan's schemes, whose pipelines are PyTorch's; "
        "Megatron-Core's and MaxText's have another order: leave parallel.schedule out",
        scheme->text);
}

static spw_status check_stages(const spw_job *job, const spw_scheme *scheme) {
    const char *words = spw_scheme_trainer(scheme)->stages_words;
    if (job->pipeline <= 1 || words == NULL) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "scheme '%s': pipeline %zu, and %s", scheme->text, job->pipeline, words);
}

static spw_status check_device(const spw_job *job, const spw_scheme *scheme) {
    char known[256] = "";
    if (job->cluster.gpu_generation != SPW_GPU_NONE || scheme->type->memory.any_device) return SPW_OK;
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++) {
        const size_t used = strlen(known);
        if (spw_scheme_types[i]->memory.any_device)
            (void)snprintf(known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "",
                           spw_scheme_types[i]->name);
    }
    return spw_fail(SPW_ECONFIG,
                    "scheme '%s' is of programs for GPUs, and cluster '%s' has none (gpu_generation: none); "
                    "use one of %s",
                    scheme->text, job->cluster.name, known);
}

/* Every device of such a pipeline has sequences of its own (sim/schemes/point.h), so the number of all is another one. */
static spw_status check_global_batch(const spw_job *job, const spw_scheme *scheme) {
    if (job->global_batch == 0 || !spw_scheme_trainer(scheme)->has_turns || job->pipeline <= 1 ||
        job->micro_batches > 1)
        return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "global_batch with %s and pipeline %zu without micro-batches: in MaxText's pipeline every "
        "device then has sequences; give micro_batches, or sequences_per_gpu",
        scheme->type->name, job->pipeline);
}

/* Experts of two matrices, and of rows narrower than the hidden size. */
static spw_status check_experts(const spw_job *job, const spw_scheme *scheme) {
    const spw_model *m = &job->model;
    const spw_trainer *trainer = spw_scheme_trainer(scheme);
    const bool latent = m->latent > 0 && !trainer->takes_latent;
    if (spw_transformers_is_listed(&(spw_point){.job = job, .scheme = scheme}, NULL, NULL)) return SPW_OK;
    if (!latent && (!m->plain_experts || trainer->takes_plain)) return SPW_OK;
    if (latent)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': model '%s' has experts whose rows are narrower than the hidden size, and "
            "MaxText has no such layer; use a scheme of PyTorch such as megatron-alltoall",
            scheme->text, m->name);
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': model '%s' has experts of two matrices, without a gate, which are described "
        "for Megatron-Core's dispatchers megatron-alltoall, megatron-allgather, megatron-flex, "
        "megatron-syncfree and megatron-ncclep; use one of them",
        scheme->text, m->name);
}

/* HybridEP is written for NVIDIA's GPUs (deepseek-ai/DeepEP branch hybrid-ep: CUDA, IBGDA or NIXL between nodes); AMD's port of DeepEP
 * follows its main branch and has no such API (ROCm/DeepEP; pytorch/torchtitan pull request 3579, June 2026). */
static spw_status check_vendor(const spw_job *job, const spw_scheme *scheme) {
    if (!job->library_limits || job->expert < 2 || job->cluster.gpu_vendor != SPW_VENDOR_AMD ||
        scheme->type->library == NULL || scheme->type->library(scheme) != SPW_LIBRARY_HYBRIDEP)
        return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': HybridEP runs on NVIDIA's GPUs alone (deepseek-ai/DeepEP, branch hybrid-ep; "
        "ROCm/DeepEP has none), and %s has AMD's; nearest: megatron-flex or primus-syncfree; "
        "library_limits: ignore plans it all the same",
        scheme->text, job->cluster.name);
}

spw_status spw_footprint_check(const spw_job *job, const spw_scheme *scheme) {
    spw_status status = check_device(job, scheme);
    if (status == SPW_OK) status = check_vendor(job, scheme);
    if (status == SPW_OK) status = check_experts(job, scheme);
    if (status == SPW_OK) status = check_global_batch(job, scheme);
    if (status == SPW_OK) status = check_recipe(job, scheme);
    if (status == SPW_OK) status = check_grid(job, scheme);
    if (status == SPW_OK) status = check_pool(job, scheme);
    if (status == SPW_OK) status = check_layout(job, scheme);
    if (status == SPW_OK) status = check_stages(job, scheme);
    if (status == SPW_OK) status = check_schedule(job, scheme);
    if (status == SPW_OK) status = check_finetune(job, scheme);
    if (status == SPW_OK) status = check_fsdp2(job, scheme);
    if (status == SPW_OK) status = spw_selective_ops_check(job, scheme);
    if (status == SPW_OK) status = spw_unfused_attention_check(job, scheme);
    if (status == SPW_OK) status = spw_cross_entropy_check(job, scheme);
    if (status == SPW_OK) status = spw_offload_check(job, scheme);
    if (status == SPW_OK) status = spw_launches_check(job, scheme);
    if (status == SPW_OK) status = spw_megatron_keys_go_with(job, scheme);
    if (status != SPW_OK) return status;
    if (spw_scheme_trainer(scheme)->takes_optimizers || spw_state_law_of(job)->shares_weights) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "optimizer %s does not go with scheme '%s', whose program shards its whole state; use "
                    "optimizer: sharded, or a scheme of another framework, as --scheme megatron-alltoall",
                    spw_optimizer_name(job->optimizer), scheme->text);
}

/* torchtitan's policy, and its formats where the job has others. */
#define FREED \
    "torchtitan's schemes: FSDP2 as torchtitan wraps it: weights of a layer are freed after its forward " \
    "pass and gathered again, those of the next one beside it (fsdp2.reshard_after_forward: default; " \
    "always, never and off say otherwise)"
#define WAITING \
    "torchtitan's schemes: FSDP2 as torchtitan wraps it with pipeline stages: weights stay gathered and " \
    "gradients whole until the last backward pass of a step (fsdp2.reshard_after_forward: default; always, " \
    "never and off say otherwise)"
#define FORMATS \
    "; formats are the job's, torchtitan's own are precision: {weights: fp32, gradients: fp32, optimizer: " \
    "fp32} and fsdp2.gathered: bf16"

static const char *fsdp2_note(const spw_job *job) {
    static const char *const notes[2][2] = {{FREED FORMATS, FREED}, {WAITING FORMATS, WAITING}};
    return notes[job->pipeline > 1][spw_fsdp2_has_torchtitan_formats(job)];
}

const char *spw_footprint_state_note(const spw_job *job, const spw_scheme *scheme) {
    if (spw_fsdp2_is_default(job, scheme)) return fsdp2_note(job);
    if (!spw_scheme_trainer(scheme)->takes_optimizers || !spw_state_is_sharded(job)) return NULL;
    if (job->fsdp2.reshard != SPW_RESHARD_OFF && job->fsdp2.replicas > 1)
        return "schemes of PyTorch: weights, gradients and optimizer are sharded over the GPUs of each of "
               "the replicas (fsdp2.replicas), as by HSDP; Megatron's own, optimizer: distributed, holds "
               "weights "
               "and gradients whole";
    return "schemes of PyTorch: weights, gradients and optimizer are sharded over all GPUs, as by FSDP "
           "(optimizer: sharded); "
           "Megatron's own, optimizer: distributed, holds weights and gradients whole";
}
