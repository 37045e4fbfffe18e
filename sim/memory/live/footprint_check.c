#include "sim/memory/live/footprint_check.h"

#include "sim/job/goes_with.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/fp8_recipe.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/machine/compiled_layer.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/memory/kept/launches.h"
#include "sim/memory/kept/selective_ops.h"
#include "sim/memory/kept/transformers_job.h"
#include "sim/memory/kept/unfused_attention.h"
#include "sim/memory/live/megatron_notes.h"
#include "sim/model/attention.h"
#include "sim/schemes/library_limits.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* --- What a scheme has, as pairs ask for it --- */

static bool is_listed(const spw_job *job, const spw_scheme *scheme) {
    const spw_model *m = &job->model;
    return (m->latent > 0 || m->plain_experts || m->attention_sinks) &&
           spw_transformers_is_listed(&(spw_point){.job = job, .scheme = scheme}, NULL, NULL);
}

/* A recipe with sharded weights: which scheme's framework has it. */
static bool casts(const spw_job *job, const spw_scheme *scheme) {
    const bool delayed = job->precision.recipe == SPW_FP8_DELAYED,
               dense = spw_scheme_program(scheme) != NULL && spw_scheme_program(scheme)->capacity_slots;
    return delayed ? dense : scheme->type->megatron.by_parts;
}

/* Beside MaxText's mesh. */
static bool is_split(const spw_grid *g, const spw_trainer *trainer) {
    const bool plain = g->tensor == 1 && g->context == 1 && g->expert_tensor == 1;
    return !plain && !(trainer->takes_mesh && spw_grid_mesh_gpus(g) > 1);
}

/* The stash holds what TransformerEngine marks for it, and no layer that runs again leaves anything there. */
static bool has_pool(const spw_job *job, const spw_scheme *scheme) {
    const spw_layer_shape shape = spw_layer_shape_of(job, job->sequences_per_gpu[0]);
    spw_page_pool pool;
    return scheme->type->memory.pool != NULL && scheme->type->memory.pool(scheme, &shape, &pool);
}

/* Weights that are not trained, and adapters; not those that transformers' own lists have. */
static bool is_tuned(const spw_job *job, const spw_scheme *scheme) {
    const spw_finetune *f = &job->finetune;
    return !spw_finetune_is_whole(f) && !(scheme->type->memory.whole_steps && f->frozen == SPW_FROZEN_BASE);
}

/* A graph of an iteration replays launches whose sizes are known. */
static bool reads_rows(const spw_scheme *scheme) {
    return !spw_scheme_option_is(scheme, "graph", "full") && !spw_scheme_fills_slots(scheme);
}

static bool has_plain_stages(const spw_job *job) {
    const spw_pipeline pipeline = spw_pipeline_of(job);
    return pipeline.stages > 1 && pipeline.chunks <= 1;
}

/* HybridEP is written for NVIDIA's GPUs (deepseek-ai/DeepEP branch hybrid-ep: CUDA, IBGDA or NIXL between nodes); AMD's port of DeepEP
 * follows its main branch and has no such API (ROCm/DeepEP; pytorch/torchtitan pull request 3579, June 2026). */
static spw_features features_of(const spw_job *j, const spw_scheme *s) {
    const spw_scheme_type *y = s->type;
    const spw_trainer *t = spw_scheme_trainer(s);
    const spw_grid g = spw_grid_of(j);
    spw_features f = {{0}};
#define FEATURE_SET(name, words, holds) spw_features_set(&f, SPW_WITH_##name, holds);
    SPW_SCHEME_FEATURES(FEATURE_SET)
#undef FEATURE_SET
    return f;
}

static spw_status check_pairs(const spw_job *job, const spw_scheme *scheme) {
    const spw_trainer *trainer = spw_scheme_trainer(scheme);
    const bool chunked = job->cross_entropy == SPW_CROSS_ENTROPY_CHUNKED;
    const char *said = spw_megatron_keys_beyond(job, scheme);
    const struct spw_side_word words[] = {
        {"scheme", scheme->text},
        {"name", scheme->type->name},
        {"said", said != NULL ? said : ""},
        {"splits_words", trainer->splits_words},
        {"stages_words", trainer->stages_words},
        {"loss", spw_cross_entropy_name(job->cross_entropy)},
        {"loss_owner", chunked ? "torchtitan's loss" : "a loss of Megatron-Core"},
        {"loss_words", trainer->loss_words},
        {NULL, NULL}};
    const spw_scheme_side side = {features_of(job, scheme), words};
    return spw_goes_with_check(job, &side, NULL);
}

/* --- Limits of values --- */

/* Rows of an expert must come in the multiples that its products take. */
static spw_status check_align(const spw_job *job, const spw_scheme *scheme) {
    const char *name = spw_fp8_recipe_name(job->precision.recipe);
    spw_fp8_facts facts;
    const spw_status status = spw_fp8_facts_of(job->precision.recipe, job->cluster.gpu_generation, &facts);
    char align[16];
    if (status != SPW_OK || job->precision.recipe == SPW_FP8_NONE || !spw_state_law_of(job)->megatron)
        return status;
    (void)snprintf(align, sizeof align, "%zu", facts.align);
    if (!spw_scheme_option_is(scheme, "align", align))
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': recipe %s pads the rows of an expert to multiples of %s; write "
                        "%s:align=%s, or leave align out",
                        scheme->text, name, align, scheme->type->name, align);
    return SPW_OK;
}

/* Megatron-Bridge cuts the rank of adapters beside a product cut by columns. */
static spw_status check_rank(const spw_job *job, const spw_scheme *scheme) {
    const size_t rank = job->finetune.lora_rank, tensor = spw_grid_of(job).tensor;
    if (!is_tuned(job, scheme) || !spw_finetune_adapts(&job->finetune, SPW_LORA_ATTENTION) ||
        rank % tensor == 0)
        return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "tensor %zu does not divide finetune.lora_rank %zu, which it cuts; use a multiple, such "
                    "as %zu",
                    tensor, rank, (rank / tensor + 1) * tensor);
}

spw_status spw_footprint_check(const spw_job *job, const spw_scheme *scheme) {
    const spw_grid g = spw_grid_of(job);
    spw_status status = check_device(job, scheme);
    if (status == SPW_OK) status = check_pairs(job, scheme);
    if (status == SPW_OK) status = check_align(job, scheme);
    if (status == SPW_OK && is_split(&g, spw_scheme_trainer(scheme))) status = check_operands(job, &g);
    if (status == SPW_OK) status = check_rank(job, scheme);
    return status == SPW_OK ? spw_offload_check(job) : status;
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
    if (scheme->type->memory.whole_steps && job->expert * job->fsdp > 1 &&
        job->model.experts % (job->expert * job->fsdp) != 0)
        return "weights, gradients and optimizer are sharded over all GPUs (optimizer: sharded), experts' "
               "weights "
               "by whole experts, as FSDP2 cuts a tensor's first dimension: their number is no multiple of "
               "the "
               "GPUs, so the first GPUs hold more than others, and what is gathered of a layer is padded to "
               "as "
               "much from every GPU; figures are of the first GPU";
    return "schemes of PyTorch: weights, gradients and optimizer are sharded over all GPUs, as by FSDP "
           "(optimizer: sharded); "
           "Megatron's own, optimizer: distributed, holds weights and gradients whole";
}
