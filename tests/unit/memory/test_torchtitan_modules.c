/* What torchtitan's modules keep, with pencil and paper: Qwen3-30B-A3B with a norm of every head, DeepSeek-V3 with latents and a shared
 * expert; nothing under another framework. The head at the loss; gradients that replicas sum, counted once. */
#include "sim/memory/kept/torchtitan_kept.h"

#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"
#include "tests/unit/component_of.h"
#include "tests/unit/scheme_of.h"

#include <string.h>

enum { TOKENS = 256 };

static void read_job(const char *model, const char *more, spw_job *out) {
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "model: %s\ncluster: h100-8x8\ngpus: 64\noptimizer: sharded\n"
                   "batch: {sequence_length: %d, sequences_per_gpu: 1}\n%s",
                   model, TOKENS, more);
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), out));
}

static void test_layers(void) {
    static spw_job job;
    const spw_scheme titan = scheme_of("torchtitan"), megatron = scheme_of("megatron-alltoall");
    read_job("qwen3-30b-a3b", "parallel: {expert: 8, fsdp: 8}\n", &job);
    spw_layer_shape s = spw_point_of(&job, &titan, 1).shape;
    CHECK(spw_torchtitan_layer_kept(&job, &titan, &s) == TOKENS * (4.0 * (2 + 32 + 4) + 8.0 * 128));
    CHECK(spw_torchtitan_router_kept(&job, &titan, &s) ==
          TOKENS * (4.0 * (2048 + 128) + 8.0 * 8 + 4.0 * 9 - 2.0 * 2048));
    CHECK(spw_torchtitan_layer_kept(&job, &megatron, &s) == 0.0);
    CHECK(spw_torchtitan_router_kept(&job, &megatron, &s) == 0.0);
    read_job("deepseek-v3", "parallel: {expert: 8, fsdp: 8}\n", &job);
    s = spw_point_of(&job, &titan, 1).shape;
    CHECK(spw_torchtitan_layer_kept(&job, &titan, &s) == TOKENS * (4.0 * (2 + 2) + 4.0 * 64));
    CHECK(spw_torchtitan_router_kept(&job, &titan, &s) == TOKENS * (4.0 * (7168 + 256) + 8.0 * 8 + 4.0 * 9));
}

/* 12 T V of the loss are more than the gradient of the head that comes behind it, or less where tokens are few. */
static void test_whole(void) {
    static spw_job job;
    static spw_footprint f;
    const spw_scheme titan = scheme_of("torchtitan");
    const double head = 151936.0 * 2048.0 + 2048.0;
    read_job("qwen3-30b-a3b", "parallel: {expert: 8, fsdp: 8}\ncross_entropy: unfused\n", &job);
    spw_point point = spw_point_of(&job, &titan, 1);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK(component(&f, "fsdp2.head") == 2.0 * 2.0 * head);
    CHECK(component(&f, "angles") == 48.0 * TOKENS * 8.0 * 128.0);
    CHECK(component(&f, "last_norm") == 2.0 * TOKENS * 2048.0 * 2.0);
    CHECK(component(&f, "router") == spw_torchtitan_router_kept(&job, &titan, &point.shape));
    CHECK(component(&f, "cublas_workspaces") == 2.0 * 32.0 * 1048576.0);
    job.sequences_per_gpu[0] = 4;
    point = spw_point_of(&job, &titan, 4);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK(component(&f, "fsdp2.head") == 2.0 * head);
}

/* Two replicas. A reduce-scatter's output is the gradient where both are fp32; a second micro-batch, or bf16, has it once more. */
static void test_replicas(void) {
    static spw_job job;
    static spw_footprint f;
    const spw_scheme titan = scheme_of("torchtitan");
    static const char *const more[] = {"", "", "precision: {weights: bf16, gradients: fp32}\n"};
    for (size_t i = 0; i < 3; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "parallel: {expert: 8, fsdp: 8}\nfsdp2: {replicas: 2}\n%s",
                       more[i]);
        read_job("qwen3-30b-a3b", text, &job);
        if (i == 1) job.micro_batches = job.sequences_per_gpu[0] = 2;
        const spw_point point = spw_point_of(&job, &titan, i == 1 ? 2 : 1);
        CHECK_OK(spw_footprint_compute(&point, NULL, &f));
        CHECK((component(&f, "fsdp2.all_reduce_inputs") > 0.0) == (i > 0));
        CHECK((f.keeps[1].left > 0.0) == (i > 0));
    }
}

int main(void) {
    test_layers();
    test_whole();
    test_replicas();
    return check_done();
}
