/* Splits that a plan tries for a point that does not fit: their order, and the GPUs, batches and words of each. */
#include "sim/job/job.h"
#include "sim/machine/stack_nearest.h"
#include "sim/plan/other_split.h"

#include "tests/unit/check.h"

#include <string.h>

static void job_of(const char *batch, spw_job *out) {
    char text[512];
    (void)snprintf(text, sizeof text,
                   "model: deepseek-v3\ncluster: h100-4x8\nparallel: {expert: 8, fsdp: 4}\n"
                   "batch: {sequence_length: 4096, %s}\nremat: none\noptimizer: distributed\n"
                   "schemes: [megatron-alltoall]\n",
                   batch);
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), out));
}

static size_t sequences_of_step(const spw_job *job) {
    return job->sequences_per_gpu[0] * job->expert * job->fsdp;
}

/* Every try keeps the GPUs that it says and, on the same GPUs with the job's own batch, the global batch; none is the job's own. */
static void test_every_try(void) {
    spw_job base, job;
    char what[SPW_OTHER_SPLIT_TEXT];
    size_t last = 0, there = 0;
    job_of("sequences_per_gpu: 2, micro_batches: 2", &base);
    for (size_t i = 0; i < spw_split_tries(); i++) {
        const spw_split_try one = spw_split_try_of(i);
        CHECK(one.gpus >= last && (i >= spw_split_tries_same()) == (one.gpus > 1));
        last = one.gpus;
        job = base;
        if (!spw_split_try_apply(&one, true, &job, what, sizeof what)) continue;
        there++;
        CHECK(spw_job_gpus(&job) == 32 * one.gpus && spw_job_gpus(&job) == 8 * job.cluster.nodes);
        CHECK(job.pipeline == one.stages && job.micro_batches == 2 * one.stages);
        CHECK(one.gpus > 1 || sequences_of_step(&job) == sequences_of_step(&base));
        CHECK((job.remat == SPW_REMAT_FULL) == one.least_batch);
        CHECK(job.expert != 8 || one.gpus > 1 || one.stages > 1 || one.least_batch);
        CHECK(job.model.experts % job.expert == 0 && what[0] != '\0');
    }
    CHECK(there > 200);
}

/* The job's own expert-parallel size comes first, then the others of whole nodes from the smallest on. */
static void test_order(void) {
    static const size_t sizes[] = {8, 1, 2, 4, 16};
    char what[SPW_OTHER_SPLIT_TEXT];
    for (size_t i = 0; i < 6; i++) {
        const spw_split_try one = {.gpus = 1, .stages = 2, .expert = i};
        spw_job job;
        job_of("sequences_per_gpu: 4", &job);
        const bool there = spw_split_try_apply(&one, true, &job, what, sizeof what);
        CHECK(there == (i < 5) && (!there || job.expert == sizes[i]));
        CHECK(!there || job.sequences_per_gpu[0] == 8);
    }
    const spw_split_try least = {.gpus = 3, .stages = 4, .least_batch = true, .expert = 3};
    spw_job job;
    job_of("sequences_per_gpu: 4", &job);
    CHECK(spw_split_try_apply(&least, true, &job, what, sizeof what));
    CHECK(strcmp(what, "1 sequence a GPU and remat full on 96 GPUs (expert 4 x fsdp 6 x pipeline 4, "
                       "4 micro-batches)") == 0);
    CHECK(job.sequences_per_gpu[0] == 4 && job.cluster.nodes == 12);
    job_of("sequences_per_gpu: 4", &job); /* MaxText's program has no micro-batches */
    CHECK(spw_split_try_apply(&(spw_split_try){.gpus = 1, .stages = 2}, false, &job, what, sizeof what));
    CHECK(job.sequences_per_gpu[0] == 4 && job.micro_batches <= 1);
    CHECK(strcmp(what, "expert 8 x fsdp 2 x pipeline 2") == 0);
}

/* A node of 72: groups of 64 straddle, so that 8 and 72's other divisors come before them. */
static void test_straddling(void) {
    static const char text[] =
        "model: deepseek-v3\ncluster: gb200-8x72\nparallel: {expert: 8, fsdp: 72}\n"
        "batch: {sequences_per_gpu: 1, sequence_length: 4096}\noptimizer: distributed\n"
        "schemes: [megatron-alltoall]\n";
    static const size_t sizes[] = {8, 1, 2, 4, 16, 32, 64};
    char what[SPW_OTHER_SPLIT_TEXT];
    for (size_t i = 0; i < 7; i++) {
        const spw_split_try one = {.gpus = 1, .stages = 1, .least_batch = true, .expert = i};
        spw_job job;
        CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), &job));
        job.remat = SPW_REMAT_NONE;
        CHECK(spw_split_try_apply(&one, true, &job, what, sizeof what) && job.expert == sizes[i]);
    }
}

/* --- Every try of jobs that differ, against rules of its own --- */

/* The GPUs that share experts where a stage has `gpus`: the job's own size, those inside of a node or of whole nodes, the others. */
static size_t size_at(const spw_job *job, size_t gpus, size_t place) {
    const size_t node = job->cluster.gpus_per_node, own = job->expert;
    size_t seen = 0;
    for (int turn = 0; turn < 3; turn++)
        for (size_t n = 1; n <= gpus; n++) {
            const bool fits = gpus % n == 0 && job->model.experts % n == 0,
                       plain = n <= node ? node % n == 0 : node > 0 && n % node == 0;
            const int of = n == own ? 0 : plain ? 1 : 2;
            if (fits && of == turn && seen++ == place) return n;
        }
    return 0;
}

typedef struct wanted {
    bool there;
    size_t expert, fsdp, pipeline, data, micro_batches, sequences, nodes;
    spw_remat remat;
} wanted;

static wanted want_of(const spw_job *job, const spw_split_try *one, bool micro_batches) {
    const size_t stage = job->expert * job->fsdp * one->gpus, micro = spw_job_micro_batches(job),
                 sequences = job->sequences_per_gpu[0];
    const bool cut = one->stages > 1, least = job->remat == SPW_REMAT_FULL && sequences == micro,
               times = cut && micro_batches;
    wanted w = {.pipeline = job->pipeline * one->stages,
                .data = cut ? 0 : job->data * one->gpus,
                .micro_batches = times ? micro * one->stages : job->micro_batches,
                .sequences = (one->least_batch ? micro : sequences) * (times ? one->stages : 1),
                .nodes = job->cluster.nodes * one->gpus,
                .remat = one->least_batch ? SPW_REMAT_FULL : job->remat};
    w.there = stage % one->stages == 0 && w.pipeline <= job->model.layers && !(one->least_batch && least) &&
              (one->gpus == 1 || spw_job_gpus(job) * one->gpus <= 4096);
    w.expert = w.there ? size_at(job, stage / one->stages, one->expert) : 0;
    w.there = w.expert > 0 && !(one->gpus == 1 && !cut && !one->least_batch && w.expert == job->expert);
    w.fsdp = w.there ? stage / one->stages / w.expert : 0;
    return w;
}

static void check_all(const char *text, bool micro_batches) {
    static spw_job base, job;
    char what[SPW_OTHER_SPLIT_TEXT];
    size_t there = 0;
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), &base));
    for (size_t i = 0; i < spw_split_tries(); i++) {
        const spw_split_try one = spw_split_try_of(i);
        const wanted w = want_of(&base, &one, micro_batches);
        job = base;
        CHECK(spw_split_try_apply(&one, micro_batches, &job, what, sizeof what) == w.there);
        if (!w.there) continue;
        there++;
        CHECK(job.expert == w.expert && job.fsdp == w.fsdp && job.pipeline == w.pipeline);
        CHECK(job.data == w.data && job.micro_batches == w.micro_batches && job.cluster.nodes == w.nodes);
        CHECK(job.sequences_per_gpu[0] == w.sequences && job.remat == w.remat);
    }
    CHECK(there > 100);
}

/* 160 experts on 5 nodes, so that groups of 5 straddle nodes and come behind 40; few layers for the stages; data parallelism that is
 * written down; micro-batches that are fewer than sequences, and as many. */
static void test_unlike(void) {
    static const char *const jobs[] = {
        "model: deepseek-v2\ncluster: h100-5x8\nparallel: {expert: 8, fsdp: 5}\n"
        "batch: {sequences_per_gpu: 6, sequence_length: 4096, micro_batches: 3}\nremat: none\n"
        "optimizer: distributed\nschemes: [megatron-alltoall]\n",
        "model: mixtral-8x7b\ncluster: h100-8x8\nparallel: {expert: 4, fsdp: 4, pipeline: 4}\n"
        "batch: {sequences_per_gpu: 4, sequence_length: 4096, micro_batches: 4}\nremat: full\n"
        "optimizer: distributed\nschemes: [megatron-alltoall]\n",
        "model: mixtral-8x7b\ncluster: h100-16x8\nparallel: {expert: 8, fsdp: 16, tensor: 2, expert_tensor: "
        "1, "
        "data: 64, sequence_parallel: true}\n"
        "batch: {sequences_per_gpu: 2, sequence_length: 4096}\nremat: full\n"
        "optimizer: distributed\nschemes: [megatron-alltoall]\n"};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        check_all(jobs[i], true);
        check_all(jobs[i], false);
    }
}

static void test_gpu_names(void) {
    CHECK(spw_gpu_is_of("h100-4x8", "a100-8x8 h100-8x8") && spw_gpu_is_of("h100-8x8", "h100-8x8"));
    CHECK(!spw_gpu_is_of("h100-4x8", "a100-8x8 h200-8x8") && !spw_gpu_is_of("h100-4x8", ""));
    CHECK(!spw_gpu_is_of("h200-rail-4x8", "h200-8x8"));
}

int main(void) {
    test_every_try();
    test_order();
    test_straddling();
    test_unlike();
    test_gpu_names();
    return check_done();
}
