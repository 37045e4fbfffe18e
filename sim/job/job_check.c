#include "sim/job/job_check.h"

#include "base/memory.h"
#include "sim/job/goes_with.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/megatron_keys.h"
#include "sim/print/plural.h"

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
    return spw_fail(SPW_ECONFIG,
                    "%s %zu does not divide the %zu GPUs of cluster '%s' (%zu node%s x %zu); %zu and %zu do",
                    name, size, gpus, job->cluster.name, job->cluster.nodes, spw_plural(job->cluster.nodes),
                    job->cluster.gpus_per_node, less, more);
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
                        "(%zu node%s x %zu); make the product %zu",
                        job->expert, job->fsdp, job->pipeline,
                        grid.expert_tensor == grid.tensor ? "tensor" : "expert_tensor", grid.expert_tensor,
                        gpus, job->cluster.name, job->cluster.nodes, spw_plural(job->cluster.nodes),
                        job->cluster.gpus_per_node, gpus);
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
    if (job->pipeline > 1 && job->virtual_stages > job->model.layers / job->pipeline)
        return spw_fail(SPW_ECONFIG,
                        "pipeline %zu x virtual_stages %zu is more than the %zu layers of model '%s'; use at "
                        "most %zu virtual stages",
                        job->pipeline, job->virtual_stages, job->model.layers, job->model.name,
                        job->model.layers / job->pipeline);
    return spw_grid_check(job, key);
}

/* What would be right: fewer parts, or where these are to be a multiple of the stages, another batch. */
static spw_status fail_parts(const spw_job *job, size_t sequences, size_t pieces) {
    const size_t fewer = largest_divisor(sequences, pieces), more = (sequences / pieces + 1) * pieces;
    if (job->pipeline <= 1 || pieces % job->pipeline != 0 || fewer % job->pipeline == 0)
        return spw_fail(
            SPW_ECONFIG,
            "micro_batches %zu does not divide the %zu sequence%s of %s; use a divisor such as %zu", pieces,
            sequences, spw_plural(sequences), spw_grid_tokens_of(job), fewer);
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

/* Replicas of FSDP2. */
static spw_status check_replicas(const spw_job *job, const char **key) {
    *key = "fsdp2.replicas";
    if (job->fsdp2.replicas <= 1 || job->fsdp % job->fsdp2.replicas == 0) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "%zu replicas do not divide the %zu GPUs that share an expert's weights (parallel.fsdp); "
                    "use a divisor of them",
                    job->fsdp2.replicas, job->fsdp);
}

/* Megatron-Core asks for both divisions: megatron/core/parallel_state.py initialize_model_parallel. */
static spw_status check_instances(const spw_job *job, const char **key) {
    const spw_grid grid = spw_grid_of(job);
    const size_t n = job->optimizer_instances, replicas[2] = {grid.expert_data, grid.data * grid.context};
    *key = "optimizer_instances";
    for (int i = 0; n > 1 && i < 2; i++)
        if (replicas[i] % n != 0)
            return spw_fail(SPW_ECONFIG,
                            "optimizer_instances %zu does not divide the %zu replicas of %s; %zu does", n,
                            replicas[i], i == 0 ? "the experts (fsdp)" : "the rest (data x context)",
                            spw_largest_common_divisor(replicas[0], replicas[1], n));
    return SPW_OK;
}

/* What the cluster's GPUs have for a recipe. */
static spw_status check_facts(const spw_job *job, const char **key) {
    spw_fp8_facts facts;
    *key = "cluster";
    const spw_status status = spw_fp8_facts_of(job->precision.recipe, job->cluster.gpu_generation, &facts);
    if (status != SPW_OK || !spw_fp8_recipe_is_fp4(job->precision.recipe) ||
        job->cluster.fp4_flops.value > 0.0)
        return status;
    return spw_fail(SPW_ECONFIG,
                    "recipe %s: cluster %s says no fp4_flops, the dense fp4 peak of a GPU; add it, or use "
                    "mxfp8",
                    spw_fp8_recipe_name(job->precision.recipe), job->cluster.name);
}

spw_status spw_job_check_key(const spw_job *job, bool all_batches, const char **key) {
    spw_status status = check_split(job, key);
    if (status == SPW_OK) status = check_allocator(job, key);
    if (status == SPW_OK) status = spw_goes_with_check(job, NULL, key);
    if (status == SPW_OK) status = check_replicas(job, key);
    if (status == SPW_OK) status = check_instances(job, key);
    if (status == SPW_OK) status = check_facts(job, key);
    if (status == SPW_OK) status = spw_megatron_release_check(job, key);
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
