#include "sim/input/job_check.h"

#include "base/memory.h"
#include "sim/input/grid.h"
#include "sim/input/job.h"
#include "sim/input/megatron_keys.h"
#include "sim/input/remat_modules.h"
#include "sim/input/state_law.h"

#include <string.h>

static const size_t MOST_TOKENS = (size_t)1 << 31; /* of one GPU */

static bool multiply(const size_t *factors, size_t count, size_t *product) {
    *product = 1;
    for (size_t i = 0; i < count; i++)
        if (!spw_mul_size(*product, factors[i], product)) return false;
    return true;
}

static size_t largest_divisor(size_t number, size_t limit) {
    while (limit > 1 && number % limit != 0) limit--;
    return limit;
}

size_t spw_largest_common_divisor(size_t a, size_t b, size_t limit) {
    while (limit > 1 && (a % limit != 0 || b % limit != 0)) limit--;
    return limit;
}

/* Experts over so many GPUs do not work out evenly; the advice is a split of the same GPUs. */
static spw_status fail_expert(const spw_job *job) {
    const size_t gpus = job->expert * job->fsdp,
                 expert = spw_largest_common_divisor(job->model.experts, gpus, job->expert);
    return spw_fail(
        SPW_ECONFIG,
        "expert %zu does not divide the %zu experts of model '%s'; on these %zu GPUs use expert %zu x "
        "fsdp %zu",
        job->expert, job->model.experts, job->model.name, gpus, expert, gpus / expert);
}

/* A size that cannot be of so many GPUs, whatever the others are; those nobody gave are not spoken of. */
static spw_status fail_size(const spw_job *job, const char *name, size_t size, size_t gpus) {
    size_t less = size, more = size;
    while (gpus % less != 0) less--;
    while (more < gpus && gpus % more != 0) more++;
    return spw_fail(
        SPW_ECONFIG, "%s %zu does not divide the %zu GPUs of cluster '%s' (%zu nodes x %zu); %zu and %zu do",
        name, size, gpus, job->cluster.name, job->cluster.nodes, job->cluster.gpus_per_node, less, more);
}

/* In both functions `key` is where the job file is to be changed. */
static spw_status check_split(const spw_job *job, const char **key) {
    const spw_grid grid = spw_grid_of(job);
    const size_t split[] = {job->expert, job->fsdp, job->pipeline, grid.expert_tensor};
    size_t gpus = job->cluster.nodes * job->cluster.gpus_per_node, product = 0;
    bool fits = multiply(split, sizeof split / sizeof *split, &product);
    *key = "parallel";
    if (job->expert * job->fsdp == 1 && gpus > 1 && gpus % grid.expert_tensor != 0 &&
        grid.expert_tensor < gpus)
        return fail_size(job, grid.expert_tensor == grid.tensor ? "tensor" : "expert_tensor",
                         grid.expert_tensor, gpus);
    if (job->expert * job->fsdp == 1 && gpus > 1 && gpus % job->pipeline != 0 && job->pipeline < gpus)
        return fail_size(job, "pipeline", job->pipeline, gpus);
    if (!fits || product != gpus || gpus == 0)
        return spw_fail(SPW_ECONFIG,
                        "expert %zu x fsdp %zu x pipeline %zu x %s %zu is not the %zu GPUs of cluster '%s' "
                        "(%zu nodes x %zu); make the product %zu",
                        job->expert, job->fsdp, job->pipeline,
                        grid.expert_tensor == grid.tensor ? "tensor" : "expert_tensor", grid.expert_tensor,
                        gpus, job->cluster.name, job->cluster.nodes, job->cluster.gpus_per_node, gpus);
    *key = "parallel.expert";
    if (job->model.experts % job->expert != 0) return fail_expert(job);
    const spw_stage_cut cut = {job->model.layers, job->pipeline,
                               job->virtual_stages > 0 ? job->virtual_stages : 1, job->model.mtp_layers};
    const spw_status status = spw_stage_layout_check(&job->stage_layout, &cut, job->model.name, key);
    if (status != SPW_OK) return status;
    if (spw_stage_layout_is_said(&job->stage_layout))
        return spw_grid_check(job, key); /* blocks may be empty */
    *key = "parallel.pipeline";
    if (job->pipeline > job->model.layers)
        return spw_fail(SPW_ECONFIG,
                        "pipeline %zu is more than the %zu layers of model '%s'; use at most %zu",
                        job->pipeline, job->model.layers, job->model.name, job->model.layers);
    *key = "parallel.virtual_stages";
    if (job->virtual_stages > 1 && job->pipeline == 1)
        return spw_fail(SPW_ECONFIG,
                        "virtual_stages %zu without a pipeline; use 1, or a pipeline of 2 or more",
                        job->virtual_stages);
    if (job->virtual_stages > job->model.layers / job->pipeline)
        return spw_fail(SPW_ECONFIG,
                        "pipeline %zu x virtual_stages %zu is more than the %zu layers of model '%s'; use at "
                        "most %zu virtual stages",
                        job->pipeline, job->virtual_stages, job->model.layers, job->model.name,
                        job->model.layers / job->pipeline);
    return spw_grid_check(job, key);
}

/* Schedules that are refused, each with what differs from the nearest that is modelled. Bubbles: deepseek-ai/DualPipe 89f5de1 README.md; F,
 * B, W: a forward pass, a backward pass, of which W makes the gradients of weights; F&B: the two side by side. */
static spw_status check_schedule(const spw_job *job, const char **key) {
    static const char *const words[SPW_SCHEDULES] = {
        [SPW_SCHEDULE_LOOPED_BFS] =
            "LoopedBFS takes all micro-batches through one block before the next; its order is not "
            "described: GPipe with virtual_stages 1 keeps as many layers in flight",
        [SPW_SCHEDULE_INTERLEAVED_ZERO_BUBBLE] =
            "InterleavedZeroBubble makes the gradients of weights later than those of inputs, and what they "
            "need waits that long, which is not described: Interleaved1F1B with the same virtual_stages has "
            "more forward passes in flight, nothing that waits, and a longer bubble",
        [SPW_SCHEDULE_ZBV] =
            "ZBVZeroBubble lays two blocks of a stage in a V and makes the gradients of weights later, which "
            "is not described: 1F1B keeps as many layers in flight on its first stage as ZB-V is made to "
            "keep on all, and has a longer bubble",
        [SPW_SCHEDULE_DUAL_PIPE_V] =
            "DualPipeV runs a forward and a backward pass at once over two blocks of a stage in a V, which "
            "is not described: 1F1B keeps half a stage's layers of one micro-batch less on its first stage "
            "than "
            "DualPipeV on all, and overlaps no exchange",
        [SPW_SCHEDULE_ZERO_BUBBLE] =
            "ZB1P makes the gradients of weights later than those of inputs, which is not described: 1F1B "
            "keeps as "
            "many layers in flight, and its bubble is (PP - 1) (F + B), not (PP - 1) (F + B - 2 W)",
        [SPW_SCHEDULE_DUAL_PIPE] = "DualPipe sends micro-batches from both ends, forward beside backward, "
                                   "over stages that hold the model "
                                   "twice, which is not described: 1F1B has half its weights and one "
                                   "micro-batch less in flight, and its "
                                   "bubble is (PP - 1) (F + B), not (PP / 2 - 1) (F&B + B - 3 W)"};
    const size_t chunks = job->virtual_stages;
    *key = "parallel.schedule";
    if (words[job->schedule] != NULL) return spw_fail(SPW_ECONFIG, "%s", words[job->schedule]);
    if (job->schedule == SPW_SCHEDULE_ONE_F_ONE_B) return SPW_OK;
    if (job->pipeline == 1)
        return spw_fail(SPW_ECONFIG, "a schedule of a job without pipeline stages; leave it out, or make "
                                     "parallel.pipeline 2 or more");
    if (job->schedule == SPW_SCHEDULE_INTERLEAVED && chunks < 2)
        return spw_fail(SPW_ECONFIG, "Interleaved1F1B has several blocks of layers a stage; add "
                                     "virtual_stages: 2, which torchtitan takes unless told otherwise");
    if (job->schedule == SPW_SCHEDULE_GPIPE && chunks > 1)
        return spw_fail(SPW_ECONFIG,
                        "GPipe has one block of layers a stage, and virtual_stages is %zu; make it 1, or use "
                        "Interleaved1F1B",
                        chunks);
    return SPW_OK;
}

/* What would be right: fewer parts, or where these are to be a multiple of the stages, another batch. */
static spw_status fail_parts(const spw_job *job, size_t sequences, size_t pieces) {
    const size_t fewer = largest_divisor(sequences, pieces), more = (sequences / pieces + 1) * pieces;
    if (job->pipeline <= 1 || pieces % job->pipeline != 0 || fewer % job->pipeline == 0)
        return spw_fail(
            SPW_ECONFIG,
            "micro_batches %zu does not divide the %zu sequences of %s; use a divisor such as %zu", pieces,
            sequences, spw_grid_tokens_of(job), fewer);
    return spw_fail(SPW_ECONFIG,
                    "micro_batches %zu does not divide the %zu sequences of %s; with pipeline %zu, whose "
                    "micro-batches best are a multiple of its stages, use %zu sequences",
                    pieces, sequences, spw_grid_tokens_of(job), job->pipeline, more);
}

static spw_status check_rounds(const spw_job *job) {
    const size_t pieces = spw_job_micro_batches(job), rounds = spw_job_rounds(job);
    if (pieces % rounds == 0) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "Interleaved1F1B of %zu stages takes %zu micro-batches in %zu rounds of one length, which they do "
        "not make; use %zu",
        job->pipeline, pieces, rounds, (pieces / rounds + 1) * rounds);
}

/* all: of every batch; else one is enough, as who reads the job may leave the others out. */
static spw_status check_micro_batches(const spw_job *job, bool all, const char **key) {
    const size_t pieces = spw_job_micro_batches(job);
    bool any = false;
    *key = "batch.micro_batches";
    for (size_t i = 0; i < job->batches; i++) any = any || job->sequences_per_gpu[i] % pieces == 0;
    for (size_t i = 0; i < job->batches && (all || !any); i++) {
        if (job->sequences_per_gpu[i] % pieces != 0)
            return fail_parts(job, job->sequences_per_gpu[i], pieces);
    }
    if (job->schedule == SPW_SCHEDULE_INTERLEAVED) return check_rounds(job);
    if (job->virtual_stages > 1 && pieces % job->pipeline != 0)
        return spw_fail(
            SPW_ECONFIG,
            "interleaved stages need micro-batches in multiples of pipeline %zu, not %zu; use %zu",
            job->pipeline, pieces, (pieces / job->pipeline + 1) * job->pipeline);
    return SPW_OK;
}

static spw_status check_part(const spw_job *job, const char **key) {
    *key = "layers";
    if (job->part == SPW_PART_WHOLE && job->layers > 0)
        return spw_fail(SPW_ECONFIG,
                        "layers %zu is for bare layers; add model_part: expert_layers, or leave layers out",
                        job->layers);
    *key = "parallel";
    if (job->part == SPW_PART_EXPERT_LAYERS && (job->pipeline > 1 || job->micro_batches > 1))
        return spw_fail(
            SPW_ECONFIG,
            "bare layers have no pipeline and no micro-batches; pipeline is %zu and micro_batches "
            "%zu, make both 1",
            job->pipeline, job->micro_batches);
    if (job->part == SPW_PART_EXPERT_LAYERS && job->fsdp > 1)
        return spw_fail(SPW_ECONFIG,
                        "bare layers are one expert-parallel group; fsdp is %zu, make it 1 and expert %zu",
                        job->fsdp, job->expert * job->fsdp);
    return SPW_OK;
}

static spw_status check_allocator(const spw_job *job, const char **key) {
    const spw_job_allocator *a = &job->allocator;
    *key = "allocator.max_split_size_mb";
    if (a->max_split_size_mb > 0 && a->max_split_size_mb <= 20)
        return spw_fail(SPW_ECONFIG, "max_split_size_mb %zu; PyTorch takes more than 20",
                        a->max_split_size_mb);
    *key = "allocator.roundup_power2_divisions";
    if ((a->roundup_power2_divisions & (a->roundup_power2_divisions - 1)) != 0)
        return spw_fail(SPW_ECONFIG, "roundup_power2_divisions %zu; a power of two such as 4",
                        a->roundup_power2_divisions);
    return SPW_OK;
}

static spw_status check_fsdp2(const spw_job *job, const char **key) {
    *key = "fsdp2.prefetch";
    if (job->fsdp2.reshard == SPW_RESHARD_OFF && job->fsdp2.prefetch > 1)
        return spw_fail(
            SPW_ECONFIG,
            "prefetch %zu is of FSDP2; add fsdp2.reshard_after_forward: always or never, or leave it "
            "out",
            job->fsdp2.prefetch);
    *key = job->fsdp2.replicas > 1 ? "fsdp2.replicas" : job->fsdp2.on_host ? "fsdp2.state" : "fsdp2.gathered";
    if (job->fsdp2.reshard == SPW_RESHARD_OFF &&
        (job->fsdp2.replicas > 1 || job->fsdp2.gathered > SPW_GATHERED_SAME || job->fsdp2.on_host))
        return spw_fail(SPW_ECONFIG,
                        "%s is of FSDP2; add fsdp2.reshard_after_forward: always or never, or "
                        "leave it out",
                        *key + strlen("fsdp2."));
    *key = "fsdp2.replicas";
    if (job->fsdp2.replicas > 1 && job->fsdp % job->fsdp2.replicas != 0)
        return spw_fail(
            SPW_ECONFIG,
            "%zu replicas do not divide the %zu GPUs that share an expert's weights (parallel.fsdp); "
            "use a divisor of them",
            job->fsdp2.replicas, job->fsdp);
    *key = "fsdp2.reshard_after_forward";
    if (job->fsdp2.reshard == SPW_RESHARD_OFF || job->fsdp2.reshard == SPW_RESHARD_DEFAULT) return SPW_OK;
    if (!spw_state_is_sharded(job))
        return spw_fail(SPW_ECONFIG,
                        "reshard_after_forward is of whole models whose weights are sharded; use optimizer: "
                        "sharded (it is %s) and model_part: whole, or leave it out",
                        spw_optimizer_name(job->optimizer));
    return SPW_OK;
}

static spw_status check_optimizer_on_host(const spw_job *job, const char **key) {
    *key = "optimizer_on_host";
    if (!(job->optimizer_on_host > 0.0)) return SPW_OK;
    if (!spw_state_is_megatron(job))
        return spw_fail(SPW_ECONFIG,
                        "optimizer_on_host is of Megatron-Core's optimizer of whole models; use optimizer: "
                        "distributed or replicated and model_part: whole; FSDP2 has fsdp2.state: host");
    if (job->precision.fp8_param_gather)
        return spw_fail(
            SPW_ECONFIG,
            "optimizer_on_host with fp8_param_gather: Megatron-Core takes it with recipe delayed alone, and "
            "the copies to and from the host were not read; use fp8_param_gather: false, or leave it out");
    return SPW_OK;
}

/* Megatron-Core asks for both divisions: megatron/core/parallel_state.py initialize_model_parallel. */
static spw_status check_optimizer_instances(const spw_job *job, const char **key) {
    const spw_grid grid = spw_grid_of(job);
    const size_t n = job->optimizer_instances, replicas[2] = {grid.expert_data, grid.data * grid.context};
    *key = "optimizer_instances";
    if (n < 2) return SPW_OK;
    if (job->optimizer != SPW_OPTIMIZER_DISTRIBUTED || job->part != SPW_PART_WHOLE || job->muon)
        return spw_fail(SPW_ECONFIG,
                        "optimizer_instances %zu: copies of Megatron-Core's distributed optimizer of whole "
                        "models by Adam; use "
                        "optimizer: distributed, model_part: whole and optimizer_algorithm: adam, or leave "
                        "it out; FSDP2 has "
                        "fsdp2.replicas",
                        n);
    for (int i = 0; i < 2; i++)
        if (replicas[i] % n != 0)
            return spw_fail(SPW_ECONFIG,
                            "optimizer_instances %zu does not divide the %zu replicas of %s; %zu does", n,
                            replicas[i], i == 0 ? "the experts (fsdp)" : "the rest (data x context)",
                            spw_largest_common_divisor(replicas[0], replicas[1], n));
    return SPW_OK;
}

static spw_status check_muon(const spw_job *job, const char **key) {
    *key = "muon_layout";
    if (job->muon_ping_pong && (!job->muon || job->optimizer != SPW_OPTIMIZER_DISTRIBUTED))
        return spw_fail(
            SPW_ECONFIG,
            "muon_layout: ping_pong is of Muon's layer-wise optimizer; add optimizer_algorithm: muon "
            "and optimizer: distributed, or leave it out");
    *key = "optimizer_algorithm";
    if (!job->muon) return SPW_OK;
    if (!spw_state_is_megatron(job))
        return spw_fail(SPW_ECONFIG,
                        "muon is described for Megatron-Core's whole models; use optimizer: distributed "
                        "(dist_muon) or replicated (muon) and model_part: whole; torch.optim.Muon takes no "
                        "weights of three dimensions, as torchtitan's experts are");
    if (!spw_finetune_is_whole(&job->finetune) || job->optimizer_on_host > 0.0 ||
        job->precision.fp8_param_gather)
        return spw_fail(SPW_ECONFIG, "muon with finetune, optimizer_on_host or fp8_param_gather is not "
                                     "modelled; leave these out, or use optimizer_algorithm: adam");
    return SPW_OK;
}

/* What of fp4 was read: AMD's mxfp4 on whole products alone, and offloading of neither. */
static spw_status check_fp4(const spw_job *job, const char **key) {
    const char *name = spw_fp8_recipe_name(job->precision.recipe);
    const bool amd = job->precision.recipe == SPW_FP4_MXFP4;
    *key = "cluster";
    if (!(job->cluster.fp4_flops.value > 0.0))
        return spw_fail(
            SPW_ECONFIG,
            "recipe %s: cluster %s says no fp4_flops, the dense fp4 peak of a GPU; add it, or use "
            "mxfp8",
            name, job->cluster.name);
    *key = "precision.fp8_param_gather";
    if (amd && job->precision.fp8_param_gather)
        return spw_fail(SPW_ECONFIG,
                        "recipe mxfp4 keeps weights in bf16 (Primus has no weights in MXFP4 for a "
                        "MoE); leave fp8_param_gather out");
    *key = "parallel";
    if (amd && (job->tensor > 1 || job->expert_tensor > 1))
        return spw_fail(SPW_ECONFIG, "recipe mxfp4 with tensor or expert_tensor above 1: what AMD's "
                                     "TransformerEngine gathers in FP4 was not read; use 1, or recipe mxfp8");
    *key = "offload_modules";
    if ((job->offload.modules & SPW_OFFLOAD_EXPERT_FC1) != 0)
        return spw_fail(SPW_ECONFIG,
                        "offload_modules expert_fc1 with recipe %s: which copies leave the GPU was not read; "
                        "use offload_modules: [moe_act], or recipe mxfp8",
                        name);
    return SPW_OK;
}

/* Of sharded weights: torchao's under torchtitan, with dynamic scales, or flax's delayed scaling under MaxText. Operands stay in
 * bf16 and are cast in each pass. */
static spw_status check_casts(const spw_job *job) {
    const spw_precision *p = &job->precision;
    if (p->recipe == SPW_FP8_BLOCKWISE || spw_fp8_recipe_is_fp4(p->recipe))
        return spw_fail(SPW_ECONFIG,
                        "recipe %s is TransformerEngine's, with sharded weights it is not modelled; "
                        "use tensorwise or mxfp8 "
                        "(torchtitan), delayed (MaxText), or Megatron-Core's optimizer: distributed",
                        spw_fp8_recipe_name(p->recipe));
    if (p->activations != 2 || p->fp16 != 0 || (p->weights != 2 && p->weights != 4))
        return spw_fail(
            SPW_ECONFIG,
            "recipe %s casts weights and activations of bf16; leave precision.activations at bf16 and "
            "precision.weights at bf16 or fp32",
            spw_fp8_recipe_name(p->recipe));
    return SPW_OK;
}

/* What a recipe goes with. */
static spw_status check_recipe(const spw_job *job, const char **key) {
    const spw_precision *p = &job->precision;
    const char *name = spw_fp8_recipe_name(p->recipe);
    spw_fp8_facts facts;
    *key = "precision.fp8_param_gather";
    if (p->fp8_param_gather && (p->recipe == SPW_FP8_NONE || job->optimizer != SPW_OPTIMIZER_DISTRIBUTED))
        return spw_fail(
            SPW_ECONFIG,
            "fp8_param_gather needs a recipe and optimizer: distributed, as Megatron-Core does; it has "
            "recipe %s and optimizer %s",
            name, spw_optimizer_name(job->optimizer));
    *key = "precision.recipe";
    if (p->recipe == SPW_FP8_NONE) return SPW_OK;
    if (!spw_state_law_of(job)->megatron) {
        const spw_status status = check_casts(job);
        if (status != SPW_OK) return status;
    } else if (p->weights != 2 || p->activations != 2 || p->fp16 != 0)
        return spw_fail(SPW_ECONFIG,
                        "recipe %s casts weights and activations of bf16; leave precision.weights and "
                        "precision.activations at bf16 (fp8_param_gather makes weights fp8 or fp4)",
                        name);
    if (job->part != SPW_PART_WHOLE)
        return spw_fail(SPW_ECONFIG,
                        "recipe %s of bare layers is not modelled; use recipe: none, or model_part: whole",
                        name);
    if (p->recipe == SPW_FP8_DELAYED && (spw_remat_repeats(job->remat, SPW_MODULE_MOE_ACT) ||
                                         spw_remat_repeats(job->remat, SPW_MODULE_LAYERNORM)))
        return spw_fail(
            SPW_ECONFIG,
            "Megatron-Core refuses recipe delayed with remat %s: delayed scaling does not go with moe_act or "
            "layernorm; use remat: none, full or other modules, or another recipe",
            spw_remat_name(job->remat));
    *key = "cluster";
    const spw_status status = spw_fp8_facts_of(p->recipe, job->cluster.gpu_generation, &facts);
    return status == SPW_OK && spw_fp8_recipe_is_fp4(p->recipe) ? check_fp4(job, key) : status;
}

static spw_status check_remat(const spw_job *job, const char **key) {
    *key = "remat";
    return spw_remat_check(job);
}

static spw_status check_finetune(const spw_job *job, const char **key) {
    *key = "finetune";
    if (job->finetune.frozen != SPW_FROZEN_BASE || job->finetune.lora_rank > 0) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "finetune.frozen base without adapters trains nothing; add lora_rank: 16, or "
                    "use frozen: experts");
}

spw_status spw_job_check_key(const spw_job *job, bool all_batches, const char **key) {
    spw_status status = check_split(job, key);
    if (status == SPW_OK) status = check_schedule(job, key);
    if (status == SPW_OK) status = check_part(job, key);
    if (status == SPW_OK) status = check_allocator(job, key);
    if (status == SPW_OK) status = check_fsdp2(job, key);
    if (status == SPW_OK) status = check_optimizer_on_host(job, key);
    if (status == SPW_OK) status = check_optimizer_instances(job, key);
    if (status == SPW_OK) status = check_muon(job, key);
    if (status == SPW_OK) status = check_recipe(job, key);
    if (status == SPW_OK) status = spw_megatron_keys_check(job, key);
    if (status == SPW_OK) status = check_remat(job, key);
    if (status == SPW_OK) status = check_finetune(job, key);
    if (status != SPW_OK) return status;
    *key = "batch.sequences_per_gpu";
    if (job->batches == 0 || job->batches > SPW_JOB_MAX_BATCHES)
        return spw_fail(SPW_ECONFIG, "%zu batch sizes; give 1 to %d", job->batches, SPW_JOB_MAX_BATCHES);
    for (size_t i = 0; i < job->batches; i++) {
        const size_t factors[] = {job->sequences_per_gpu[i], job->sequence_length};
        size_t tokens = 0;
        if (!multiply(factors, 2, &tokens) || tokens == 0 || tokens > MOST_TOKENS)
            return spw_fail(SPW_ECONFIG,
                            "%zu sequences of %zu tokens on one GPU; give 1 to %zu tokens in all", factors[0],
                            factors[1], MOST_TOKENS);
    }
    status = check_micro_batches(job, all_batches, key);
    if (status != SPW_OK) return status;
    *key = "memory_fraction";
    if (!(job->memory_fraction > 0 && job->memory_fraction <= 1))
        return spw_fail(SPW_ECONFIG, "memory_fraction %g; give a share in (0, 1]", job->memory_fraction);
    return SPW_OK;
}

spw_status spw_job_check(const spw_job *job) {
    const char *key = NULL;
    return spw_job_check_key(job, true, &key);
}
