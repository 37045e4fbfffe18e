/* Where a job comes from: files, and values from elsewhere that stand in place of a file's. argv[1]: scratch directory,
 * argv[2]: root of the source tree. */
#include "sim/job/job.h"
#include "sim/job/job_override.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/job/job_text.h"

#include <string.h>
#include <sys/stat.h>

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    if (file == NULL) return;
    CHECK(fwrite(text, 1, strlen(text), file) == strlen(text));
    CHECK(fclose(file) == 0);
}

/* Model and cluster files are looked for beside the job, not where the program runs. */
static void test_files(const char *scratch, const char *root) {
    char folder[512], path[600];
    spw_job job;
    (void)snprintf(folder, sizeof folder, "%s/test_job_files", scratch);
    (void)mkdir(folder, 0777);
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    write_text(
        path,
        "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"vocab_size\": 10,"
        " \"num_attention_heads\": 2, \"intermediate_size\": 4, \"num_local_experts\": 64,"
        " \"num_experts_per_tok\": 2}");
    (void)snprintf(path, sizeof path, "%s/job.yaml", folder);
    write_text(path, "model: config.json\ncluster: h100-8x8\n" SPLIT BATCH);
    CHECK_OK(spw_job_read(path, &job));
    CHECK(strcmp(job.model.name, "test_job_files") == 0 && job.model.experts == 64);
    write_text(path, "model: config.json\ncluster: ./config.json\n" SPLIT BATCH);
    CHECK_STATUS(spw_job_read(path, &job), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "job.yaml:2: ") != NULL &&
          strstr(spw_last_error(), "config.json:1: unknown key") != NULL);
    CHECK_STATUS(spw_job_read("/no/such/job.yaml", &job), SPW_EIO);
    CHECK_STATUS(spw_job_read(folder, &job), SPW_EIO);
    static const char *const shipped[] = {"deepseek-v3-mi355x", "scratch-moe-e64"};
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/sim/jobs/%s.yaml", root, shipped[i]);
        CHECK_OK(spw_job_read(path, &job));
        CHECK(job.schemes == (i == 0 ? 3 : 7) && spw_job_gpus(&job) == 64);
    }
}

/* A word of the file, and one key beside it from elsewhere. */
static void test_word(const char *scratch) {
    char path[600];
    static spw_job job;
    (void)snprintf(path, sizeof path, "%s/test_job_word.yaml", scratch);
    write_text(path, JOB "precision: bf16\n");
    const spw_job_override master = {"precision.master", "fp32", "--set precision.master=fp32"},
                           word = {"precision", "mixed", "--precision mixed"};
    CHECK_OK(spw_job_read_with(path, &master, 1, &job));
    CHECK(job.precision.weights == 2 && job.precision.optimizer == 2 && job.master_bytes == 4);
    CHECK_OK(spw_job_read_with(path, &word, 1, &job));
    CHECK(job.precision.weights == 4 && job.precision.optimizer == 4 && job.master_bytes == SPW_MASTER_AUTO);
    write_text(path, JOB "precision: {master: fp32, weights: bf16}\n");
    CHECK_OK(spw_job_read_with(path, &word, 1, &job));
    CHECK(job.precision.weights == 4 && job.master_bytes == 4);
}

static void test_memory(const char *root) {
    char path[600];
    spw_job job;
    spw_status status = SPW_ENOMEM;
    (void)snprintf(path, sizeof path, "%s/sim/jobs/scratch-moe-e64.yaml", root);
    int n = 0;
    for (; status != SPW_OK && n < 100; n++) {
        spw_alloc_fail_after(n);
        status = spw_job_read(path, &job);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
    }
    CHECK(n > 3 && n < 100);
}

/* --- Values from elsewhere than the file --- */

static spw_status set(const char *path, const char *key, const char *value, spw_job *job) {
    const spw_job_override override[] = {{"model", "glm-4.5", "--model glm-4.5"},
                                         {"cluster", "h200", "--cluster h200"},
                                         {"optimizer", "sharded", "--optimizer sharded"},
                                         {key, value, "--set it"}};
    return spw_job_read_with(path, path != NULL ? override + 3 : override, path != NULL ? 1 : 4, job);
}

static void test_bare(void) {
    spw_job job;
    /* 160 experts: 8 GPUs of a node divide them; the rest is fsdp */
    CHECK_OK(set(NULL, "gpus", "128", &job));
    CHECK(strcmp(job.cluster.name, "h200-16x8") == 0 && job.expert == 8 && job.fsdp == 16 &&
          job.schemes == 2);
    CHECK(job.sequence_length == 4096 && job.batches == 1 && job.sequences_per_gpu[0] == 1);
    CHECK_OK(set(NULL, "parallel.pipeline", "4", &job));
    CHECK(job.expert == 8 && job.fsdp == 2 && job.pipeline == 4);
    CHECK_OK(set(NULL, "parallel.expert", "16", &job));
    CHECK(job.expert == 16 && job.fsdp == 4);
    CHECK_OK(set(NULL, "cluster", "gb200:72x1", &job)); /* 160 and 72 have 8 in common */
    CHECK(job.expert == 8 && job.fsdp == 9);
    CHECK_OK(set(NULL, "precision", "fp32", &job));
    CHECK(job.precision.weights == 4 && job.precision.gradients == 4 && job.precision.optimizer == 4 &&
          job.precision.activations == 4 && job.master_bytes == SPW_MASTER_AUTO);
    CHECK_OK(set(NULL, "precision", "mixed", &job));
    CHECK(job.precision.weights == 4 && job.precision.activations == 2 && job.precision.assumed == 0);
    CHECK_OK(set(NULL, "precision", "{weights: fp8}", &job));
    CHECK(job.precision.weights == 1 && job.precision.gradients == 2);
    CHECK_OK(set(NULL, "batch.sequences_per_gpu", "1,2,8", &job));
    CHECK(job.batches == 3 && job.sequences_per_gpu[2] == 8);
    CHECK_OK(set(NULL, "schemes", "gmm,ring", &job));
    CHECK(job.schemes == 2 && strcmp(job.scheme[1], "ring") == 0);
    CHECK_OK(set(NULL, "allocator.expandable_segments", "true", &job));
    CHECK(job.allocator.expandable_segments);
}

static void test_overrides(const char *root) {
    static const struct {
        const char *key, *value, *message;
    } cases[] = {
        {"batch.sequence_length", "0",
         "--set it: 'batch.sequence_length' is '0'; it must be a whole number in [1, 16777216]"},
        {"batch.sequence_lenght", "8",
         "--set it: unknown key 'sequence_lenght' in 'batch'; did you mean 'sequence_length'?"},
        {"model.full", "8", "--set it: 'model' is no mapping, so it has no 'full'"},
        {"a.b", "8", "--set it: unknown key 'a'"},
        {"remat", "{a", "--set it:"},
        {"remat", "full\nbatch: 3", "--set it: several lines; write one value"},
        {"gpus", "&a [*a]",
         "--set it:1: the alias *a; write the value itself"}, /* a list that holds itself */
        {"gpus", "&a {b: [1, *a]}", "--set it:1: the alias *a"},
        {"gpus", "[&a [1, 1], &b [*a, *a], &c [*b, *b], [*c, *c]]", "the alias *a"}, /* each twice as large */
        {"gpus", "[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]", "--set it:1: nested deeper than 16 levels"},
        {"gpus", "63",
         "--set it: 63 GPUs are no whole nodes of 8, as cluster 'mi355x-8x8' has; take 56 or 64"},
        {"parallel.expert", "7",
         "--set it: expert 7 does not divide the 64 GPUs that are left for the experts; sizes that divide "
         "them and the 256 "
         "experts are 1, 2, 4, 8, 16, 32, 64"},
        {"parallel.fsdp", "5",
         "--set it: fsdp 5 does not divide the 64 GPUs that are left for the experts; 4 does"},
        {"model", "./nowhere.json", "--set it: ./nowhere.json:"},
    };
    char path[1024];
    spw_job job;
    (void)snprintf(path, sizeof path, "%s/sim/jobs/deepseek-v3-mi355x.yaml", root);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(set(path, cases[i].key, cases[i].value, &job) != SPW_OK);
        const bool said = strstr(spw_last_error(), cases[i].message) != NULL;
        CHECK(said);
        if (!said) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), cases[i].message);
    }
    CHECK_OK(set(path, "gpus", "256", &job));
    CHECK(job.expert == 8 && job.fsdp == 32 && job.sequence_length == 4096 && job.sequences_per_gpu[0] == 8);
    CHECK_OK(set(path, "parallel", "{expert: 16, fsdp: 4}", &job));
    CHECK(job.expert == 16 && job.fsdp == 4);
    int n = 0;
    for (spw_status status = SPW_ENOMEM; status != SPW_OK && n < 100; n++) {
        spw_alloc_fail_after(n);
        status = set(path, "batch.sequences_per_gpu", "1,2", &job);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
    }
    CHECK(n > 1 && n < 100);
}

/* What is worked out where one size of the split is given, or two, over a file that says expert 8 x fsdp 8 on 64 GPUs. */
static void test_implied_sizes(const char *root) {
    static const spw_job_override cases[][2] = {
        {{"parallel.expert", "16", "--expert-parallel 16"}},
        {{"parallel.fsdp", "4", "--fsdp 4"}},
        {{"parallel.expert", "16", "--expert-parallel 16"}, {"parallel.fsdp", "4", "--fsdp 4"}},
        {{"parallel.fsdp", "4", "--fsdp 4"}, {"parallel.expert", "16", "--expert-parallel 16"}},
        {{"gpus", "128", "--gpus 128"}},
        {{"gpus", "128", "--gpus 128"}, {"parallel.fsdp", "4", "--fsdp 4"}},
        {{"gpus", "32", "--gpus 32"}, {"parallel.pipeline", "2", "--pipeline 2"}}};
    static const struct {
        size_t expert, fsdp;
        const char *implied;
    } want[] = {{16, 4, "fsdp 4 is what --expert-parallel 16 leaves, not the file's 8"},
                {16, 4, "expert 16 is what --fsdp 4 leaves, not the file's 8"},
                {16, 4, ""},
                {16, 4, ""},
                {8, 16, "fsdp 16 is what --gpus 128 leaves, not the file's 8"},
                {32, 4, "expert 32 is what --fsdp 4 leaves, not the file's 8"},
                {8, 2, "fsdp 2 is what --gpus 32 leaves, not the file's 8"}};
    const spw_job_override wrong[] = {cases[0][0], {"parallel.fsdp", "8", "--fsdp 8"}};
    char path[1024];
    spw_job job;
    (void)snprintf(path, sizeof path, "%s/sim/jobs/deepseek-v3-mi355x.yaml", root);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(spw_job_read_with(path, cases[i], cases[i][1].key != NULL ? 2 : 1, &job));
        CHECK(job.expert == want[i].expert && job.fsdp == want[i].fsdp);
        CHECK(strcmp(job.implied, want[i].implied) == 0);
    }
    CHECK_STATUS(spw_job_read_with(path, wrong, 2, &job), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "expert 16 x fsdp 8 x pipeline 1 x tensor 1 is not the 64 GPUs") != NULL);
    /* data is of the file's tensor x context: another tensor leaves another */
    static const char text[] =
        "model: qwen3-30b-a3b\ncluster: h200:8x2\nparallel: {expert: 8, fsdp: 2, data: 16}\n"
        "batch: {sequences_per_gpu: 1, sequence_length: 4096}\noptimizer: distributed\n";
    const spw_job_override tensor = {"parallel.tensor", "2", "--tensor 2"};
    spw_job_place at = {.where = "job.yaml", .override = &tensor, .overrides = 1};
    CHECK_OK(spw_job_parse_at(&at, text, sizeof text - 1,
                              &job)); /* tensor 2 shares the experts as well: 8 GPUs are left */
    CHECK(job.fsdp == 1 &&
          strcmp(job.implied, "fsdp 1 is what --tensor 2 leaves, not the file's 2; data 8 is what "
                              "--tensor 2 leaves, not the file's 16") == 0);
    const spw_job_override both[] = {tensor, {"parallel.expert_tensor", "1", "--expert-tensor 1"}};
    at.override = both, at.overrides = 2;
    CHECK_OK(spw_job_parse_at(&at, text, sizeof text - 1, &job));
    CHECK(job.data == 0 && strcmp(job.implied, "data 8 is what --tensor 2 leaves, not the file's 16") == 0);
}

/* 64 GPUs: 512 sequences are 8 of each, and 32 of each of the 16 ranks of tensor 2 x pipeline 2. */
static void test_global_batch(const char *root) {
    static spw_job job;
    static const spw_job_override all = {"batch.global_batch", "512", "--global-batch 512"},
                                  stages = {"parallel.pipeline", "2", "--pipeline 2"},
                                  tensor = {"parallel.tensor", "2", "--tensor 2"},
                                  state = {"optimizer", "distributed", "--optimizer distributed"},
                                  eight = {"batch.sequences_per_gpu", "8", "--sequences-per-gpu 8"},
                                  nine = {"batch.sequences_per_gpu", "9", "--sequences-per-gpu 9"},
                                  odd = {"batch.global_batch", "500", "--global-batch 500"};
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/sim/jobs/deepseek-v3-mi355x-plan.yaml", root); /* lists batches */
    CHECK_OK(spw_job_read_with(path, &all, 1, &job));
    CHECK(job.batches == 1 && job.sequences_per_gpu[0] == 8 && job.global_batch == 512);
    const spw_job_override split[] = {all, stages, tensor, state};
    CHECK_OK(spw_job_read_with(path, split, 4, &job));
    CHECK(job.batches == 1 && job.sequences_per_gpu[0] == 32);
    const spw_job_override both[] = {all, eight}, unlike[] = {all, nine};
    CHECK_OK(spw_job_read_with(path, both, 2, &job));
    CHECK_STATUS(spw_job_read_with(path, unlike, 2, &job), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "global_batch 512 is 8 sequences for each of 64 data-parallel ranks") !=
          NULL);
    CHECK_STATUS(spw_job_read_with(path, &odd, 1, &job), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(),
                 "--global-batch 500: global_batch 500 is no whole number of sequences for each of the 64") !=
          NULL);
    refuse(HEAD SPLIT "batch: {sequence_length: 4096}\n",
           "job.yaml:4: no batch: give sequences_per_gpu, or global_batch (sequences of all GPUs)");
    CHECK_OK(parse(HEAD SPLIT "batch: {global_batch: 128, sequence_length: 4096}\n", &job));
    CHECK(job.batches == 1 && job.sequences_per_gpu[0] == 2);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    test_files(argv[1], argv[2]);
    test_word(argv[1]);
    test_memory(argv[2]);
    test_bare();
    test_overrides(argv[2]);
    test_implied_sizes(argv[2]);
    test_global_batch(argv[2]);
    return check_done();
}
