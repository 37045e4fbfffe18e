#include "sim/job/job_split.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/job_check.h"

#include <stdio.h>
#include <string.h>

/* "; expert_tensor is 2, as tensor is, because nobody gave it ...", where that is why `expert` does not divide; else "". */
static void hint_expert_tensor(const spw_job *job, size_t expert, size_t gpus, char *out, size_t size) {
    const size_t sharers = spw_grid_of(job).expert_tensor, all = gpus * sharers;
    out[0] = '\0';
    if (job->expert_tensor == 0 && sharers > 1 && all % expert == 0)
        (void)snprintf(
            out, size,
            "; expert_tensor is %zu, as tensor is, because nobody gave it: with --expert-tensor 1 these "
            "are %zu GPUs, and %zu divides them",
            sharers, all, expert);
}

spw_status spw_job_fail_expert_size(const spw_job *job, size_t expert, size_t gpus) {
    char sizes[256] = "", hint[192];
    for (size_t size = 1; size <= gpus && size <= job->model.experts; size++) {
        const size_t used = strlen(sizes);
        if (gpus % size != 0 || job->model.experts % size != 0) continue;
        (void)snprintf(sizes + used, sizeof sizes - used, "%s%zu", used > 0 ? ", " : "", size);
    }
    hint_expert_tensor(job, expert, gpus, hint, sizeof hint);
    return spw_fail(SPW_ECONFIG,
                    "expert %zu does not divide the %zu GPUs that are left for the experts; "
                    "sizes that divide them and the %zu experts are %s%s",
                    expert, gpus, job->model.experts, sizes, hint);
}

/* A number of replicas that does not divide the GPUs. */
static spw_status fail_fsdp(const spw_job *job, size_t gpus) {
    size_t divisor = job->fsdp < gpus ? job->fsdp : gpus;
    while (gpus % divisor != 0) divisor--;
    return spw_fail(SPW_ECONFIG,
                    "fsdp %zu does not divide the %zu GPUs that are left for the experts; %zu does",
                    job->fsdp, gpus, divisor);
}

spw_status spw_job_split_fill(spw_job *job, const char **key) {
    const size_t gpus = job->cluster.nodes * job->cluster.gpus_per_node,
                 others = job->pipeline * spw_grid_of(job).expert_tensor;
    if (others == 0 || gpus % others != 0) { /* which the check of the split says */
        if (job->expert == 0) job->expert = 1;
        if (job->fsdp == 0) job->fsdp = 1;
        return SPW_OK;
    }
    const size_t left = gpus / others,
                 node = job->cluster.gpus_per_node < left ? job->cluster.gpus_per_node : left;
    const size_t context = spw_grid_of(job).mesh_context;
    const bool within = context > 1 && left % context == 0;
    *key = "parallel.fsdp";
    if (job->expert == 0 && job->fsdp > 0) {
        if (left % job->fsdp != 0) return fail_fsdp(job, left);
        job->expert = left / job->fsdp;
    }
    if (job->expert == 0)
        job->expert = spw_largest_common_divisor(job->model.experts, within ? left / context : left, node);
    *key = "parallel.expert";
    if (job->fsdp == 0) {
        if (left % job->expert != 0) return spw_job_fail_expert_size(job, job->expert, left);
        job->fsdp = left / job->expert;
    }
    return SPW_OK;
}

size_t spw_job_batch_ranks(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    const size_t gpus = job->cluster.nodes * job->cluster.gpus_per_node,
                 sharers = g.tensor * g.context * g.pipeline;
    return gpus % sharers == 0 ? gpus / sharers : 0;
}

spw_status spw_job_batch_fill(spw_job *job, const char **key) {
    const spw_grid g = spw_grid_of(job);
    const size_t ranks = spw_job_batch_ranks(job), all = job->global_batch;
    *key = "batch";
    if (all == 0 && job->batches == 0)
        return spw_fail(SPW_ECONFIG,
                        "no batch: give sequences_per_gpu, or global_batch (sequences of all GPUs)");
    if (all == 0 || ranks == 0) return SPW_OK; /* which the check of the split says */
    *key = "batch.global_batch";
    if (all % ranks != 0)
        return spw_fail(SPW_ECONFIG,
                        "global_batch %zu is no whole number of sequences for each of the %zu data-parallel "
                        "ranks (GPUs over "
                        "tensor %zu x context %zu x pipeline %zu); use a multiple of them, such as %zu",
                        all, ranks, g.tensor, g.context, g.pipeline, (all / ranks + 1) * ranks);
    if (job->batches > 0 && (job->batches > 1 || job->sequences_per_gpu[0] != all / ranks))
        return spw_fail(SPW_ECONFIG,
                        "global_batch %zu is %zu sequences for each of %zu data-parallel ranks, and "
                        "sequences_per_gpu says otherwise; give one of both",
                        all, all / ranks, ranks);
    job->batches = 1;
    job->sequences_per_gpu[0] = all / ranks;
    return SPW_OK;
}
