/* What keys of a job mean together: pipelines, schedules, modules that run again, and combinations that are refused. */
#include "sim/job/job.h"
#include "sim/job/recipe/remat_modules.h"

#include "tests/unit/check.h"
#include "tests/unit/job/job_text.h"

#include <string.h>

static void test_pipeline(void) {
    static spw_job job;
    CHECK_OK(parse(JOB, &job));
    CHECK(job.micro_batches == 1 && job.virtual_stages == 0 && job.master_bytes == SPW_MASTER_AUTO &&
          job.optimizer == SPW_OPTIMIZER_SHARDED);
    CHECK_OK(parse(HEAD "parallel: {expert: 8, fsdp: 1, pipeline: 8, virtual_stages: 2}\n"
                        "batch: {sequences_per_gpu: [16, 32], sequence_length: 64, micro_batches: 16}\n"
                        "precision: {gradients: fp32, master: none}\noptimizer: distributed\n",
                   &job));
    CHECK(job.micro_batches == 16 && job.virtual_stages == 2 && job.master_bytes == 0 &&
          job.optimizer == SPW_OPTIMIZER_DISTRIBUTED);
    CHECK(strcmp(spw_optimizer_name(job.optimizer), "distributed") == 0);
    refuse(JOB "optimizer: zero3\n",
           "job.yaml:5: 'optimizer' is 'zero3'; it must be one of: sharded, distributed, replicated, auto "
           "(what is kept once over all replicas: everything, the optimizer's state (Megatron), or nothing; "
           "auto: sharded, and "
           "distributed of a plan without a job's file whose schemes are Megatron-Core's)");
}

static void test_muon(void) {
    static spw_job dealt;
    CHECK_OK(
        parse(JOB "optimizer: distributed\noptimizer_algorithm: muon\nmuon_layout: ping_pong\n", &dealt));
    CHECK(dealt.muon && dealt.muon_ping_pong);
    expect(
        JOB "optimizer: replicated\noptimizer_algorithm: muon\nmuon_layout: ping_pong\n", SPW_ECONFIG,
        "job.yaml:7: muon_layout: ping_pong is of Muon's layer-wise optimizer; add optimizer_algorithm: muon "
        "and optimizer: distributed, or leave it out");
    refuse(
        JOB "optimizer_algorithm: muon\n",
        "job.yaml:5: muon is described for Megatron-Core's whole models; use optimizer: distributed "
        "(dist_muon) or "
        "replicated (muon) and model_part: whole; torch.optim.Muon takes no weights of three dimensions, as "
        "torchtitan's experts are");
    refuse(JOB "optimizer: distributed\noptimizer_algorithm: muon\noptimizer_on_host: 1\n",
           "job.yaml:6: muon with finetune, optimizer_on_host or fp8_param_gather is not modelled; leave "
           "these out, or use optimizer_algorithm: adam");
}

static void test_schedules(void) {
    static const char *const named[] = {
        "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "ZB1P", "DualPipe"};
    static spw_job job;
    char text[1024];
    CHECK(job.schedule == SPW_SCHEDULE_ONE_F_ONE_B);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        (void)snprintf(
            text, sizeof text,
            "model: scratch-moe-e64\ncluster: mi355x-8x8\nparallel: {expert: 8, fsdp: 4, pipeline: 2, "
            "schedule: %s}\nbatch: {sequences_per_gpu: 2, sequence_length: 512}\n",
            named[i]);
        CHECK(spw_job_parse("job", NULL, text, strlen(text), &job) == SPW_ECONFIG);
        CHECK(strstr(spw_last_error(), named[i]) != NULL &&
              strstr(spw_last_error(), "not described: ") != NULL);
        CHECK(strstr(spw_last_error(), "F1B") != NULL ||
              i == 0); /* the nearest by name; of LoopedBFS GPipe */
        CHECK((strstr(spw_last_error(), "its bubble is (PP - 1) (F + B)") != NULL) == (i >= 4));
    }
    static const struct {
        const char *parallel, *why;
    } wrong[] = {
        {"expert: 8, fsdp: 8, schedule: GPipe", "without pipeline stages"},
        {"expert: 8, fsdp: 4, pipeline: 2, schedule: Interleaved1F1B", "add virtual_stages: 2"},
        {"expert: 8, fsdp: 4, pipeline: 2, virtual_stages: 2, schedule: GPipe", "one block of layers"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        (void)snprintf(text, sizeof text,
                       "model: scratch-moe-e64\ncluster: mi355x-8x8\nparallel: {%s}\n"
                       "batch: {sequences_per_gpu: 2, sequence_length: 512, micro_batches: 2}\n",
                       wrong[i].parallel);
        CHECK(spw_job_parse("job", NULL, text, strlen(text), &job) == SPW_ECONFIG);
        CHECK(strstr(spw_last_error(), wrong[i].why) != NULL);
    }
}

static void test_host_and_replicas(void) {
    refuse(JOB "fsdp2: {reshard_after_forward: off, replicas: 2}\n",
           "job.yaml:5: replicas is of FSDP2; add "
           "fsdp2.reshard_after_forward: always or never, or "
           "leave it out");
    refuse(JOB "fsdp2: {reshard_after_forward: always, replicas: 3}\n",
           "job.yaml:5: 3 replicas do not divide the 8 GPUs that share an expert's weights "
           "(parallel.fsdp); use a divisor of them");
    refuse(JOB "optimizer_on_host: 0.5\n",
           "job.yaml:5: optimizer_on_host is of Megatron-Core's optimizer of whole "
           "models; use "
           "optimizer: distributed or replicated and model_part: whole; FSDP2 has fsdp2.state: host");
    refuse(
        JOB "optimizer_instances: 2\n",
        "job.yaml:5: optimizer_instances 2: copies of Megatron-Core's distributed optimizer of whole models "
        "by "
        "Adam; use optimizer: distributed, model_part: whole and optimizer_algorithm: adam, or leave it out; "
        "FSDP2 has fsdp2.replicas");
    refuse(JOB "optimizer: distributed\noptimizer_instances: 16\n",
           "job.yaml:6: optimizer_instances 16 does not divide the 8 replicas of the experts (fsdp); 8 does");
    refuse(HEAD "parallel: {expert: 1, expert_tensor: 1, tensor: 8, fsdp: 64}\n" BATCH
                "optimizer: distributed\noptimizer_instances: 16\n",
           "job.yaml:6: optimizer_instances 16 does not divide the 8 replicas of the rest (data x context); "
           "8 does");
    spw_job job;
    CHECK_OK(parse(JOB "optimizer: distributed\noptimizer_instances: 8\n", &job));
    CHECK(job.optimizer_instances == 8);
}

static void test_combinations(void) {
    refuse(HEAD "parallel: {expert: 8, fsdp: 4}\n" BATCH,
           "job.yaml:3: expert 8 x fsdp 4 x pipeline 1 x tensor 1 is not the 64 GPUs of cluster 'mi355x-8x8' "
           "(8 nodes x 8); "
           "make the product 64");
    refuse("model: flame-moe-290m\ncluster: mi355x-8x8\nparallel:\n  expert: 4\n  fsdp: 1\n  pipeline: "
           "16\n" BATCH,
           "job.yaml:6: pipeline 16 is more than the 9 layers of model 'flame-moe-290m'; use at most 9");
    refuse(
        "model: mixtral-8x7b\ncluster: mi355x-8x8\nparallel:\n  fsdp: 4\n  expert: 16\n" BATCH,
        "job.yaml:5: expert 16 does not divide the 8 experts of model 'mixtral-8x7b'; on these 64 GPUs use "
        "expert 8 x fsdp 8");
    refuse("model: scratch-moe-e64\ncluster: mi355x-8x8\nparallel:\n  pipeline: 2\n  fsdp: 8\n  expert: "
           "3\n" BATCH,
           "job.yaml:3: expert 3 x fsdp 8 x pipeline 2 x tensor 1 is not the 64 GPUs of cluster 'mi355x-8x8' "
           "(8 nodes x 8); make the product 64");
    refuse(
        "model: scratch-moe-e64\ncluster: mi355x-8x8\nparallel:\n  fsdp: 1\n  expert: 8\n  tensor: 8\n" BATCH,
        "job.yaml:6: tensor 8 does not divide the 12 attention heads of model 'scratch-moe-e64'; use a "
        "divisor such as "
        "6");
    refuse(HEAD SPLIT "batch: {sequences_per_gpu: [12, 20], sequence_length: 64, micro_batches: 8}\n",
           "job.yaml:4: micro_batches 8 does not divide the 12 sequences of a GPU; use a divisor such as 6");
    refuse(HEAD "parallel: {expert: 8, fsdp: 2, pipeline: 4}\n"
                "batch: {sequences_per_gpu: 6, sequence_length: 64, micro_batches: 4}\n",
           "job.yaml:4: micro_batches 4 does not divide the 6 sequences of a GPU; with pipeline 4, whose "
           "micro-batches best are a multiple of its stages, use 8 sequences");
    refuse(
        HEAD "parallel: {expert: 8, fsdp: 8, tensor: 2, expert_tensor: 1}\noptimizer: distributed\n"
             "batch: {sequences_per_gpu: 12, sequence_length: 64, micro_batches: 8}\n",
        "job.yaml:5: micro_batches 8 does not divide the 12 sequences of a data-parallel rank; use a divisor "
        "such as 6");
    refuse(HEAD "parallel: {expert: 8, fsdp: 8, virtual_stages: 2}\n" BATCH,
           "job.yaml:3: virtual_stages 2 without a pipeline; use 1, or a pipeline of 2 or more");
    refuse(HEAD "parallel: {expert: 8, fsdp: 1, pipeline: 8, virtual_stages: 8}\n" BATCH,
           "job.yaml:3: pipeline 8 x virtual_stages 8 is more than the 61 layers of model 'deepseek-v3'; use "
           "at most 7 virtual stages");
    refuse(HEAD "parallel: {expert: 8, fsdp: 1, pipeline: 8, virtual_stages: 2}\n"
                "batch: {sequences_per_gpu: 12, sequence_length: 64, micro_batches: 12}\n",
           "job.yaml:4: interleaved stages need micro-batches in multiples of pipeline 8, not 12; use 16");
    refuse(HEAD "parallel: {expert: 8, fsdp: 1, pipeline: 8, virtual_stages: 2, schedule: Interleaved1F1B}\n"
                "batch: {sequences_per_gpu: 17, sequence_length: 64, micro_batches: 17}\n",
           "job.yaml:4: Interleaved1F1B of 8 stages takes 17 micro-batches in 2 rounds of one length, which "
           "they do "
           "not make; use 18");
    refuse(HEAD SPLIT "batch:\n  sequence_length: 16777216\n  sequences_per_gpu: [1, 1048576]\n",
           "job.yaml:6: 1048576 sequences of 16777216 tokens on one GPU; give 1 to 2147483648 tokens in all");
}

static void test_check(void) {
    spw_job job;
    CHECK_OK(parse(JOB, &job));
    CHECK_OK(spw_job_check(&job));
    job.fsdp = 16;
    CHECK_STATUS(spw_job_check(&job), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(),
                 "expert 8 x fsdp 16 x pipeline 1 x tensor 1 is not the 64 GPUs of cluster 'mi355x-8x8' (8 "
                 "nodes x 8); make the product 64") == 0);
    job.expert = (size_t)1 << 60; /* the product of the four wraps to 64 GPUs' worth of zero */
    CHECK_STATUS(spw_job_check(&job), SPW_ECONFIG);
    job.expert = 0;
    CHECK_STATUS(spw_job_check(&job), SPW_ECONFIG);
    CHECK_OK(parse(JOB, &job));
    job.memory_fraction = 1.5;
    CHECK_STATUS(spw_job_check(&job), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(), "memory_fraction 1.5; give a share in (0, 1]") == 0);
    job.memory_fraction = 1;
    job.batches = 0;
    CHECK_STATUS(spw_job_check(&job), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(), "0 batch sizes; give 1 to 64") == 0);
    memset(&job, 0, sizeof job);
    CHECK_STATUS(spw_job_check(&job), SPW_ECONFIG);
}

/* --- Values from elsewhere than the file --- */

/* Every set of modules has one name, which is read back, in whatever order and form it is written. */
static void test_remat_lists(void) {
    spw_job job;
    for (unsigned bits = 1; bits < 256; bits++) {
        const spw_remat remat = (spw_remat)spw_remat_join(bits);
        spw_remat read = SPW_REMAT_NONE;
        CHECK(spw_remat_modules(remat) == bits && strlen(spw_remat_name(remat)) < SPW_REMAT_TEXT);
        CHECK_OK(spw_remat_parse(spw_remat_name(remat), &read));
        CHECK(read == remat);
    }
    CHECK(strcmp(spw_remat_name(SPW_REMAT_ALL_MODULES),
                 "mhc+core_attn+moe_act+layernorm+mla_up_proj+mlp+moe+shared_experts") == 0);
    CHECK(strcmp(spw_remat_name((spw_remat)(SPW_REMAT_ALL_MODULES + 1)), "?") == 0);
    CHECK(spw_remat_modules(SPW_REMAT_FULL) == 0 && spw_remat_modules(SPW_REMAT_MINIMAL) == 0);
    CHECK_OK(parse(JOB "remat: [core_attn]\n", &job));
    CHECK(job.remat == SPW_REMAT_SELECTIVE);
    CHECK_OK(parse(JOB "remat: [moe]\n", &job));
    CHECK(job.remat == SPW_REMAT_MOE);
    CHECK_OK(parse(JOB "remat: [mla_up_proj, moe_act]\n", &job));
    CHECK(strcmp(spw_remat_name(job.remat), "moe_act+mla_up_proj") == 0);
    CHECK(spw_remat_repeats(job.remat, SPW_MODULE_MOE_ACT) && !spw_remat_repeats(job.remat, SPW_MODULE_MOE));
    CHECK_OK(parse(JOB "remat: mla_up_proj+moe_act\n", &job));
    CHECK(strcmp(spw_remat_name(job.remat), "moe_act+mla_up_proj") == 0);
    CHECK_OK(parse(JOB "remat: \"mlp,layernorm\"\n", &job));
    CHECK(strcmp(spw_remat_name(job.remat), "layernorm+mlp") == 0);
    refuse("model: olmoe-1b-7b\ncluster: mi355x-8x8\nparallel: {expert: 8, fsdp: 8}\n" BATCH
           "remat: [mla_up_proj, mlp]\n",
           "job.yaml:5: remat mla_up_proj+mlp: mla_up_proj is of multi-latent attention, which model "
           "'olmoe-1b-7b' does "
           "not have; leave mla_up_proj out");
    refuse("model: deepseek-v3\ncluster: mi355x-8x8\nparallel: {expert: 64, fsdp: 1}\n" BATCH
           "model_part: expert_layers\nremat: [moe_act, layernorm]\n",
           "job.yaml:6: remat moe_act+layernorm of bare layers is not described; use one of none, full, "
           "selective, moe_act and moe, or model_part: whole");
    refuse("model: deepseek-v3\ncluster: h200-8x8\nparallel: {expert: 8, fsdp: 8}\n" BATCH
           "optimizer: distributed\nprecision: {recipe: delayed}\nremat: [moe, layernorm]\n",
           "job.yaml:6: Megatron-Core refuses recipe delayed with remat layernorm+moe: delayed scaling does "
           "not go with moe_act or layernorm; use remat: none, full or other modules, or another recipe");
}

int main(void) {
    test_remat_lists();
    test_pipeline();
    test_muon();
    test_schedules();
    test_host_and_replicas();
    test_combinations();
    test_check();
    return check_done();
}
