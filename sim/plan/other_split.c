#include "sim/plan/other_split.h"

#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/replicas.h"
#include "sim/plan/plan_points.h"

#include <stdio.h>
#include <string.h>

static const size_t times_gpus[] = {1, 2, 3, 4, 6, 8, 12, 16}, times_stages[] = {1, 2, 4, 8, 16, 3, 6, 12};
enum {
    GPUS = sizeof times_gpus / sizeof *times_gpus,
    STAGES = sizeof times_stages / sizeof *times_stages,
    SAME = STAGES * 2 * SPW_PLAN_SPLITS,
    MOST_GPUS = 4096
};

size_t spw_split_tries(void) { return (size_t)GPUS * SAME; }

size_t spw_split_tries_same(void) { return SAME; }

spw_split_try spw_split_try_of(size_t amount) {
    return (spw_split_try){.gpus = times_gpus[amount / SAME % GPUS],
                           .stages = times_stages[amount / ((size_t)2 * SPW_PLAN_SPLITS) % STAGES],
                           .least_batch = amount / SPW_PLAN_SPLITS % 2 == 1,
                           .expert = amount % SPW_PLAN_SPLITS};
}

static bool straddles(size_t expert, size_t node) { return expert % node != 0 && node % expert != 0; }

/* The place-th expert-parallel size of a stage, `own` first; 0: there are not so many. */
static size_t expert_at(const spw_job *job, size_t own, size_t place) {
    size_t split[SPW_PLAN_SPLITS], seen = 0;
    const size_t splits = spw_plan_all_splits(job, split), node = job->cluster.gpus_per_node;
    for (int rank = 0; rank < 3; rank++)
        for (size_t i = 0; i < splits; i++) {
            const int of = split[i] == own ? 0 : straddles(split[i], node) ? 2 : 1;
            if (of == rank && seen++ == place) return split[i];
        }
    return 0;
}

const char *spw_split_remat_full(spw_job *job) {
    const bool overlap = job->overlap_exchanges,
               graphs = job->cuda_graph == SPW_GRAPH_LOCAL || job->cuda_graph == SPW_GRAPH_TRANSFORMER_ENGINE;
    job->remat = SPW_REMAT_FULL;
    if (overlap) job->overlap_exchanges = job->megatron.delay_weight_gradients = false;
    if (graphs) job->cuda_graph = SPW_GRAPH_NONE;
    return overlap && graphs ? "remat full without overlap_moe_expert_parallel_comm and cuda_graph_impl"
           : overlap         ? "remat full without overlap_moe_expert_parallel_comm"
           : graphs          ? "remat full without cuda_graph_impl"
                             : "remat full";
}

/* One sequence a micro-batch and remat full. False where the job has both. */
static bool least_batch(spw_job *job, char *what, size_t size) {
    const bool fewer = job->sequences_per_gpu[0] > spw_job_micro_batches(job),
               more = job->remat != SPW_REMAT_FULL;
    if (fewer) job->sequences_per_gpu[0] = spw_job_micro_batches(job);
    const char *remat = spw_split_remat_full(job);
    (void)snprintf(what, size, "%s%s%s on ",
                   !fewer                           ? ""
                   : spw_job_micro_batches(job) > 1 ? "1 sequence a micro-batch"
                                                    : "1 sequence a GPU",
                   fewer && more ? " and " : "", more ? remat : "");
    return fewer || more;
}

typedef struct sizes {
    size_t expert, fsdp, pipeline, replicas;
} sizes;

/* "; in the file dcn_data_parallelism: 4, dcn_fsdp_parallelism: -1": by which axes the replicas of a mesh, `were`, become larger and fewer. */
static void print_axes(const spw_job *job, const sizes *were, char *out, size_t size) {
    const char *net = job->mesh_between > 1 ? "dcn" : "ici";
    const bool grows = job->expert % were->expert == 0 && job->fsdp % were->fsdp == 0;
    const size_t experts = job->expert / were->expert, stages = job->pipeline / were->pipeline;
    char expert[64] = "", pipeline[64] = "", fsdp[48] = "";
    if (grows && experts > 1)
        (void)snprintf(expert, sizeof expert, ", %s_expert_parallelism %zu times as large", net, experts);
    if (grows && stages > 1)
        (void)snprintf(pipeline, sizeof pipeline, ", %s_pipeline_parallelism %zu times as large", net,
                       stages);
    if (grows && job->fsdp > were->fsdp) (void)snprintf(fsdp, sizeof fsdp, ", %s_fsdp_parallelism: -1", net);
    if (job->mesh_between > 1 && job->mesh_between < were->replicas)
        (void)snprintf(out, size, "; in the file smaller data axes, and other axes to match");
    else
        (void)snprintf(out, size, "; in the file %s_data_parallelism: %zu%s%s%s%s", net,
                       spw_job_replicas(job), expert, pipeline, fsdp,
                       grows ? "" : ", and other axes to match");
}

static void print_split(const spw_job *job, const sizes *were, const spw_split_try *one, char *what,
                        size_t size) {
    char parts[48] = "", stages[48] = "", axes[208] = "", many[48] = "";
    const size_t replicas = spw_job_replicas(job);
    if (job->pipeline > 1) (void)snprintf(stages, sizeof stages, " x pipeline %zu", job->pipeline);
    if (one->stages > 1 && job->micro_batches > 1)
        (void)snprintf(parts, sizeof parts, ", %zu micro-batches", job->micro_batches);
    if (one->gpus > 1 && one->gpus <= were->replicas) print_axes(job, were, axes, sizeof axes);
    if (replicas > 1)
        (void)snprintf(many, sizeof many, "%zu replicas of ", replicas);
    else if (axes[0] != '\0')
        (void)snprintf(many, sizeof many, "one replica of all ");
    if (one->gpus > 1 || one->least_batch)
        (void)snprintf(what, size, "%s%zu GPUs (expert %zu x fsdp %zu%s%s%s)", many, spw_job_gpus(job),
                       job->expert, job->fsdp, stages, parts, axes);
    else
        (void)snprintf(what, size, "expert %zu x fsdp %zu%s%s", job->expert, job->fsdp, stages, parts);
}

/* More GPUs of a replica are those of others, which become fewer; false where they do not divide. */
static bool merge_replicas(size_t times, spw_job *job) {
    const size_t were = spw_job_replicas(job);
    if (were <= 1 || times <= 1) return true;
    job->mesh_replicas = times < were ? were / times : 1;
    return times < were ? were % times == 0 : times % were == 0;
}

bool spw_split_try_apply(const spw_split_try *one, bool micro_batches, spw_job *job, char *what,
                         size_t size) {
    const sizes were = {job->expert, job->fsdp, job->pipeline, spw_job_replicas(job)};
    const size_t gpus = job->expert * job->fsdp * one->gpus, own = job->expert;
    what[0] = '\0';
    if (job->part != SPW_PART_WHOLE && (one->gpus > 1 || one->stages > 1)) return false;
    if (spw_job_gpus(job) * one->gpus > MOST_GPUS && one->gpus > 1) return false;
    if (gpus % one->stages != 0 || job->pipeline * one->stages > job->model.layers) return false;
    if (!merge_replicas(one->gpus, job)) return false;
    if (one->least_batch && !least_batch(job, what, size)) return false;
    if (one->gpus > 1 && spw_cluster_resize(&job->cluster, job->cluster.nodes * job->cluster.gpus_per_node *
                                                               one->gpus) != SPW_OK)
        return false;
    job->expert = 1;
    job->fsdp = gpus / one->stages;
    const size_t expert = expert_at(job, own, one->expert);
    if (expert == 0) return false;
    if (one->gpus == 1 && one->stages == 1 && !one->least_batch && expert == own) return false;
    job->expert = expert;
    job->fsdp /= expert;
    if (one->stages > 1) {
        job->pipeline *= one->stages;
        job->data = 0;
        if (micro_batches) {
            job->micro_batches = spw_job_micro_batches(job) * one->stages;
            job->sequences_per_gpu[0] *= one->stages;
        }
    } else if (one->gpus > 1) {
        job->data = job->data * one->gpus;
    }
    const size_t used = strlen(what);
    print_split(job, &were, one, what + used, size - used);
    return true;
}
