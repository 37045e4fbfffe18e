/* Job files: what is accepted, and for everything that is refused the one line a person gets. argv[1]:
 * scratch directory, argv[2]: root of the source tree. */
#include "sim/job/job.h"
#include "sim/job/job_override.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat_modules.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPLIT "parallel: {expert: 8, fsdp: 8}\n"
#define BATCH "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
#define HEAD "model: deepseek-v3\ncluster: mi355x-8x8\n"
#define JOB HEAD SPLIT BATCH

static spw_status parse(const char *text, spw_job *job) {
    return spw_job_parse("job.yaml", NULL, text, strlen(text), job);
}

static void expect(const char *text, spw_status status, const char *message) {
    spw_job job;
    CHECK_STATUS(parse(text, &job), status);
    bool same = strcmp(spw_last_error(), message) == 0;
    CHECK(same);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), message);
}

static void refuse(const char *text, const char *message) { expect(text, SPW_ECONFIG, message); }

/* A list of batches is read when micro_batches divides one of them: who plans leaves the others out, who checks does not. */
static void test_some_batches(void) {
    static spw_job job;
    CHECK_OK(parse(HEAD SPLIT "batch: {sequences_per_gpu: [8, 12], sequence_length: 64, micro_batches: 8}\n",
                   &job));
    CHECK_STATUS(spw_job_check(&job), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "micro_batches 8 does not divide the 12 sequences") != NULL);
    job.batches = 1;
    CHECK_OK(spw_job_check(&job));
}

/* The message begins so, and ends with the last key of the table: a list of all keys. */
static void refuse_from(const char *text, const char *start) {
    spw_job job;
    CHECK_STATUS(parse(text, &job), SPW_ECONFIG);
    const char *said = spw_last_error(), *end = strrchr(said, ' ');
    CHECK(strncmp(said, start, strlen(start)) == 0 && end != NULL && strcmp(end, " schemes") == 0);
    if (strncmp(said, start, strlen(start)) != 0) fprintf(stderr, "  %s\n", said);
}

static void test_defaults(void) {
    spw_job job;
    CHECK_OK(parse(JOB, &job));
    CHECK(strcmp(job.model.name, "deepseek-v3") == 0 && strcmp(job.cluster.name, "mi355x-8x8") == 0);
    CHECK(job.expert == 8 && job.fsdp == 8 && job.pipeline == 1 && job.tensor == 1 &&
          spw_job_gpus(&job) == 64);
    CHECK(job.batches == 1 && job.sequences_per_gpu[0] == 1 && job.sequence_length == 4096);
    CHECK_OK(parse(HEAD "parallel: {expert: 16}\n" BATCH, &job)); /* fsdp: what is left */
    CHECK(job.expert == 16 && job.fsdp == 4);
    CHECK_OK(parse(JOB, &job));
    CHECK(job.precision.weights == 4 && job.precision.gradients == 4 && job.precision.optimizer == 4 &&
          job.precision.activations == 2);
    CHECK(job.remat == SPW_REMAT_FULL && job.memory_fraction == 0.93 && job.fraction_unsaid &&
          job.schemes == 0);
    CHECK(strcmp(spw_remat_name(job.remat), "full") == 0 &&
          strcmp(spw_remat_name(SPW_REMAT_COUNT), "?") == 0);
}

/* There are as many bare layers as is said, all of them MoE layers; one expert-parallel group. */
static void test_expert_layers(void) {
    spw_job job;
    CHECK_OK(
        parse("model: deepseek-v3\ncluster: mi355x-8x8\nparallel: {expert: 64, fsdp: 1}\n"
              "batch: {sequences_per_gpu: 1, sequence_length: 4096}\nmodel_part: expert_layers\nlayers: 4\n",
              &job));
    CHECK(job.part == SPW_PART_EXPERT_LAYERS && job.model.layers == 4 && job.model.moe_layers == 4);
    CHECK(strcmp(spw_model_part_name(job.part), "expert_layers") == 0);
    CHECK_OK(parse("model: deepseek-v3\ncluster: mi355x-8x8\nparallel: {expert: 64, fsdp: 1}\n"
                   "batch: {sequences_per_gpu: 1, sequence_length: 4096}\nmodel_part: expert_layers\n",
                   &job));
    CHECK(job.model.layers == 58 && job.model.moe_layers == 58);
    refuse(JOB "layers: 4\n",
           "job.yaml:5: layers 4 is for bare layers; add model_part: expert_layers, or leave layers "
           "out");
    refuse(JOB "model_part: expert_layers\n",
           "job.yaml:3: bare layers are one expert-parallel group; fsdp is 8, make it 1 and expert 64");
    refuse(JOB "allocator: {max_split_size_mb: 20}\n",
           "job.yaml:5: max_split_size_mb 20; PyTorch takes more than 20");
    refuse(JOB "allocator: {roundup_power2_divisions: 6}\n",
           "job.yaml:5: roundup_power2_divisions 6; a power of two such as 4");
}

static void test_all_keys(void) {
    spw_job job;
    CHECK_OK(parse(
        "# every key once\n"
        "model: deepseek3-671b\n"
        "cluster: 'h200-8x8'\n"
        "parallel:\n  expert: 4\n  fsdp: 2\n  pipeline: 4\n  tensor: 2\n"
        "batch:\n  sequences_per_gpu: [1, 2, 16]\n  sequence_length: 8192\n"
        "precision: {weights: fp8, gradients: fp32, optimizer: fp16, activations: bf16}\n"
        "remat: none\nmemory_fraction: 1\n"
        "schemes:\n- dense:capacity_factor=1.25,layout=exchange\n- \"gmm\"\n"
        "allocator: {expandable_segments: true, max_split_size_mb: 512, "
        "garbage_collection_threshold: 0.8, per_process_memory_fraction: 0.9, roundup_power2_divisions: 8}\n"
        "model_part: whole\nlayers: 0\n",
        &job));
    CHECK(job.allocator.expandable_segments && job.allocator.max_split_size_mb == 512 &&
          job.allocator.garbage_collection_threshold == 0.8 &&
          job.allocator.per_process_memory_fraction == 0.9 && job.allocator.roundup_power2_divisions == 8);
    CHECK(job.part == SPW_PART_WHOLE);
    CHECK(strcmp(job.model.name, "deepseek-v3") == 0 && strcmp(job.cluster.name, "h200-8x8") == 0);
    CHECK(job.expert == 4 && job.fsdp == 2 && job.pipeline == 4 && job.tensor == 2 &&
          spw_job_gpus(&job) == 64);
    CHECK(job.batches == 3 && job.sequences_per_gpu[0] == 1 && job.sequences_per_gpu[2] == 16);
    CHECK(job.precision.weights == 1 && job.precision.gradients == 4 && job.precision.optimizer == 2);
    CHECK(job.remat == SPW_REMAT_NONE && job.memory_fraction == 1.0 && job.schemes == 2);
    CHECK(strcmp(job.scheme[0], "dense:capacity_factor=1.25,layout=exchange") == 0);
    CHECK(strcmp(job.scheme[1], "gmm") == 0);
    CHECK_OK(parse(JOB "schemes: []\n", &job));
}

static void test_keys(void) {
    refuse(HEAD "parallel: {exprt: 8, fsdp: 8}\n" BATCH,
           "job.yaml:3: unknown key 'exprt' in 'parallel'; did you mean 'expert'? known keys: expert, fsdp, "
           "pipeline, "
           "tensor, context, expert_tensor, data, sequence_parallel, virtual_stages, schedule, "
           "decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers, "
           "account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split, mtp_num_layers, "
           "pipeline_model_parallel_layout");
    refuse_from(JOB "colour: red\n", "job.yaml:5: unknown key 'colour'; known keys: model, cluster, gpus, ");
    refuse_from(JOB "? [a]\n: 1\n", "job.yaml:5: unknown key '?'; known keys: model, cluster, gpus, ");
    refuse(JOB "\nmodel: kimi-k2\n", "job.yaml:6: 'model' is given again (first on line 1); keep one");
    refuse(HEAD "parallel: {expert: 8, fsdp: 8, fsdp: 8}\n" BATCH,
           "job.yaml:3: 'parallel.fsdp' is given again (first on line 3); keep one");
    refuse("\nmodel: deepseek-v3\n" SPLIT BATCH,
           "job.yaml:2: 'cluster' is missing; it must be a text of 1 "
           "to 1023 printable characters (a preset, one of another size as in h200-32x8 or h200:8x32, or the "
           "path of a YAML file)");
    refuse(
        HEAD "parallel: {fsdp: 8}\n" BATCH,
        "job.yaml:3: 'parallel.expert' is missing; it must be a whole number in [0, 65536] (GPUs that share "
        "the experts of a layer; 0 for as many of a node as divide them)");
    refuse(HEAD SPLIT, "job.yaml:1: 'batch' is missing; it must be a mapping with the keys: "
                       "sequences_per_gpu, global_batch, "
                       "sequence_length, micro_batches (what one GPU works on in a step)");
}

#define COUNT_OF(found) \
    "job.yaml:3: 'parallel.expert' is " found "; it must be a whole number in [0, 65536] (GPUs that share " \
    "the experts of a layer; 0 for as many of a node as divide " \
    "them)"
#define EXPERT(value) HEAD "parallel: {expert: " value ", fsdp: 8}\n" BATCH
#define REMAT_OF(found) \
    "job.yaml:5: 'remat' is " found \
    "; it must be one of: none, full, minimal, minimal_with_context, save_out_proj, save_qkv_proj, " \
    "save_dot_except_mlp, save_dot_except_mlpwi, save_dot_with_context_except_mlp, qkv_proj_offloaded, " \
    "decoder_layer_input_offloaded, selective, moe_act, moe, selective_op, or several, as [a, b] or a+b, " \
    "of: " \
    "mhc, core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, shared_experts (what the backward pass " \
    "computes " \
    "again instead of keeping it)"
#define MOE_AND(list) \
    "job.yaml:5: remat " list \
    ": moe runs the whole MoE layer again, moe_act and shared_experts with it; leave these out, or moe"
#define FRACTION(value) JOB "memory_fraction: " value "\n"
#define FRACTION_OF(found) \
    "job.yaml:5: 'memory_fraction' is " found \
    "; it must be a number in [0, 1] (share of the device memory that the program may take; 0: all but " \
    "what is known to lie outside of transformers' allocator, 0.93 of other schemes)"

static void test_types(void) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {EXPERT("eight"), COUNT_OF("'eight'")},
        {EXPERT("-8"), COUNT_OF("'-8'")},
        {EXPERT("8.5"), COUNT_OF("'8.5'")},
        {EXPERT("0x8"), COUNT_OF("'0x8'")},
        {EXPERT("010"), COUNT_OF("'010'")},
        {EXPERT("1e1"), COUNT_OF("'1e1'")},
        {EXPERT("8_0"), COUNT_OF("'8_0'")},
        {EXPERT("65537"), COUNT_OF("'65537'")},
        {EXPERT("18446744073709551624"), COUNT_OF("'18446744073709551624'")},
        {EXPERT("'8'"), COUNT_OF("the quoted text '8'")},
        {EXPERT("\"8\\0\""), COUNT_OF("the quoted text '8?'")},
        {EXPERT(""), COUNT_OF("empty")},
        {EXPERT("[8]"), COUNT_OF("a list")},
        {EXPERT("{a: 8}"), COUNT_OF("a mapping")},
        {FRACTION("1.01"), FRACTION_OF("'1.01'")},
        {FRACTION("-0.5"), FRACTION_OF("'-0.5'")},
        {FRACTION(".nan"), FRACTION_OF("'.nan'")},
        {FRACTION("nan"), FRACTION_OF("'nan'")},
        {FRACTION(".inf"), FRACTION_OF("'.inf'")},
        {FRACTION("inf"), FRACTION_OF("'inf'")},
        {FRACTION("0x1p-1"), FRACTION_OF("'0x1p-1'")},
        {FRACTION("1e999"), FRACTION_OF("'1e999'")},
        {FRACTION("1e"), FRACTION_OF("'1e'")},
        {FRACTION("93%"), FRACTION_OF("'93%'")},
        {FRACTION("0,93"), FRACTION_OF("'0,93'")},
        {JOB "remat: some\n", REMAT_OF("'some'")},
        {JOB "remat: [moe_act, moe_act]\n", REMAT_OF("'moe_act'")},
        {JOB "remat: [moe_act, [mlp]]\n", REMAT_OF("a list")},
        {JOB "remat: [full, mlp]\n", REMAT_OF("'full'")},
        {JOB "remat: []\n", REMAT_OF("a list")},
        {JOB "remat: mlp+\n", REMAT_OF("'mlp+'")},
        {JOB "remat: mlp+full\n", REMAT_OF("'mlp+full'")},
        {JOB "remat: [moe, moe_act]\n", MOE_AND("moe_act+moe")},
        {JOB "remat: shared_experts+moe\n", MOE_AND("moe+shared_experts")},
        {JOB "precision: {weights: bf17}\n",
         "job.yaml:5: 'precision.weights' is 'bf17'; it must be one of: auto, framework, mixed, bf16, fp16, "
         "fp32, fp8 (weights as they are kept; auto: fp32 where the optimizer is sharded, as MaxText and "
         "torchtitan do, bf16 under Megatron-Core's (distributed, replicated) and of bare layers)"},
        {JOB "precision: bf17\n",
         "job.yaml:5: 'precision' is 'bf17'; it must be a mapping with the keys: weights, gradients, "
         "optimizer, activations, master, recipe, fp8_param_gather; or one word for them: auto, framework, "
         "mixed, bf16, fp16, fp32, fp8 (number formats, or one word for all: framework (its own defaults), "
         "mixed (products in bf16, state in fp32), bf16, fp32)"},
        {JOB "schemes: gmm\n",
         "job.yaml:5: 'schemes' is 'gmm'; it must be a list of at most 64 texts of 1 to 127 "
         "printable characters (execution schemes to compare, such as gmm or "
         "dense:capacity_factor=1.25)"},
        {JOB "schemes:\n- gmm\n- \"a\\x1b[2J\"\n",
         "job.yaml:7: 'schemes' is the quoted text 'a?[2J'; it must be a list of at most 64 texts of 1 to "
         "127 printable "
         "characters (execution schemes to compare, such as gmm or dense:capacity_factor=1.25)"},
        {HEAD SPLIT "batch: {sequences_per_gpu: [], sequence_length: 4096}\n",
         "job.yaml:4: no batch: give sequences_per_gpu, or global_batch (sequences of all GPUs)"},
        {HEAD SPLIT "batch:\n  sequences_per_gpu: [1,\n    two]\n  sequence_length: 4096\n",
         "job.yaml:6: 'batch.sequences_per_gpu' is 'two'; it must be a whole number in [1, 1048576] or a "
         "list of 1 to 64 of "
         "them (sequences of one GPU in one step, or of the tensor x context GPUs that share them; a list "
         "plans each; this or global_batch is given)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refuse(cases[i].text, cases[i].message);
}

static void test_names(void) {
    refuse("cluster: mi355x-8x8\nmodel: deepseek_v3\n" SPLIT BATCH,
           "job.yaml:2: model 'deepseek_v3' is unknown; did you mean 'deepseek-v3'? presets: dbrx, "
           "deepseek-v2-lite, deepseek-v2, deepseek-v3.2, deepseek-v3, deepseek-v4-flash, deepseek-v4-pro, "
           "dots.llm1, "
           "ernie-4.5-300b-a47b, flame-moe-290m, glm-4.5-air, glm-4.5, glm-4.7-flash, glm-5, gpt-oss-120b, "
           "gpt-oss-20b, hunyuan-a13b, jamba-1.5-large, kimi-k2, kimi-k3, kimi-linear-48b-a3b, ling-1t, "
           "llama-4-maverick, llama-4-scout, longcat-flash, minimax-m2, minimax-m3, mixtral-8x22b, "
           "mixtral-8x7b, nemotron-3-nano, nemotron-3-super, olmoe-1b-7b, phi-3.5-moe, qwen3-235b-a22b, "
           "qwen3-30b-a3b, qwen3-coder-480b-a35b, qwen3-next-80b-a3b, qwen3.5-35b-a3b, qwen3.5-397b-a17b, "
           "scratch-moe-e64; or give the path of a Hugging Face config.json");
    refuse("model: deepseek-v3\ncluster: tpu\n" SPLIT BATCH,
           "job.yaml:2: cluster 'tpu' is unknown; did you mean 'tpu-v5p-16x4' or 'tpu-v6e-8x8'? presets: "
           "a100-8x8, b200-8x8, b300-8x8, gb200-8x72, "
           "gb200-nvl72-16x72, "
           "gb300-8x72, gb300-nvl72-16x72, h100-8x8, h20-8x8, h200-8x8, h200-rail-128x8, h800-8x8, "
           "mi300x-8x8, mi325x-8x8, "
           "mi355x-8x8, tpu-v5p-16x4, tpu-v6e-8x8; or give the path of a cluster's YAML file");
    expect("model: ./none.json\ncluster: mi355x-8x8\n" SPLIT BATCH, SPW_EIO,
           "job.yaml:1: ./none.json: No such file or directory");
    expect("model: deepseek-v3\ncluster: none.yml\n" SPLIT BATCH, SPW_EIO,
           "job.yaml:2: none.yml: No such file or directory");
}

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

/* What a job does not say of its precision is the framework's own, and what it says stays, but what must follow sharded weights in
 * fp32. Sets have one word. Bytes by hand from base.yml of MaxText, configs.py of torchtitan and arguments.py of Megatron-LM. */
static void test_unsaid_precision(void) {
    static const struct {
        const char *more;
        size_t weights, gradients, optimizer, second;
        unsigned assumed, followed, fp16;
    } cases[] = {
        {"", 4, 4, 4, 0, 7, 0, 0},
        {"optimizer: sharded\nprecision: {gradients: auto}\n", 4, 4, 4, 0, 7, 0, 0},
        {"precision: {weights: bf16}\n", 2, 2, 2, 0, 0, 0, 0},
        {"precision: {weights: fp32}\n", 4, 4, 4, 0, 6, 0, 0},
        {"precision: {weights: bf16, optimizer: fp32}\n", 2, 2, 4, 0, 0, 0, 0},
        {"precision: {weights: fp8}\n", 1, 2, 2, 0, 0, 0, 0},
        {"precision: {gradients: bf16, optimizer: bf16}\n", 4, 4, 2, 4, 1, 6, 0},
        {"precision: {weights: fp32, gradients: fp32, optimizer: bf16}\n", 4, 4, 2, 4, 0, 4, 0},
        {"model_part: expert_layers\nparallel: {expert: 8, fsdp: 1}\ncluster: h200-1x8\n", 2, 2, 2, 0, 0, 0,
         0},
        {"optimizer: distributed\n", 2, 4, 4, 0, 6, 0, 0},
        {"optimizer: replicated\n", 2, 4, 4, 0, 6, 0, 0},
        {"optimizer: distributed\nprecision: {gradients: bf16}\n", 2, 2, 4, 0, 4, 0, 0},
        {"optimizer: distributed\nprecision: {optimizer: bf16}\n", 2, 4, 2, 0, 2, 0, 0},
        {"optimizer: distributed\nprecision: {gradients: fp32, optimizer: fp32}\n", 2, 4, 4, 0, 0, 0, 0},
        {"optimizer: distributed\nprecision: {weights: fp16}\n", 2, 2, 4, 0, 4, 0, 3},
        {"optimizer: distributed\nprecision: {weights: fp32}\n", 4, 4, 4, 0, 6, 0, 0},
        {"precision: bf16\n", 2, 2, 2, 0, 0, 0, 0},
        {"precision: framework\n", 4, 4, 4, 0, 7, 0, 0},
        {"precision: mixed\n", 4, 4, 4, 0, 0, 0, 0},
        {"optimizer: distributed\nprecision: framework\n", 2, 4, 4, 0, 6, 0, 0},
        {"optimizer: distributed\nprecision: mixed\n", 2, 4, 4, 0, 0, 0, 0},
        {"optimizer: distributed\nprecision: bf16\n", 2, 2, 2, 0, 0, 0, 0}};
    static spw_job job;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024], said[SPW_PRECISION_TEXT];
        const bool bare = strstr(cases[i].more, "model_part") != NULL;
        (void)snprintf(text, sizeof text, "%s%s",
                       bare ? "model: deepseek-v3\nbatch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
                            : JOB,
                       cases[i].more);
        CHECK_OK(parse(text, &job));
        const spw_precision *p = &job.precision;
        CHECK(p->weights == cases[i].weights && p->gradients == cases[i].gradients &&
              p->optimizer == cases[i].optimizer && p->activations == 2);
        CHECK(p->assumed == cases[i].assumed && p->fp16 == cases[i].fp16);
        CHECK(p->second == cases[i].second && p->followed == cases[i].followed);
        CHECK(spw_precision_moments(p) == p->optimizer + (p->second > 0 ? p->second : p->optimizer));
        CHECK(spw_precision_assumed(&job, said) == ((cases[i].assumed | cases[i].followed) != 0));
        if ((cases[i].assumed | cases[i].followed) == 0) continue;
        const unsigned told = cases[i].assumed | cases[i].followed;
        CHECK((strstr(said, "gradients") != NULL) == ((told & 2U) != 0));
        CHECK((strstr(said, "moment") != NULL) == ((told & 4U) != 0));
    }
    CHECK_OK(parse(JOB "precision: fp32\n", &job));
    CHECK(job.precision.activations == 4 && spw_precision_gathered(&job) == 4);
    CHECK_OK(parse(JOB, &job));
    CHECK(spw_precision_gathered(&job) == 2 && spw_precision_scattered(&job) == 2);
    CHECK_OK(parse(JOB "fsdp2: {gathered: same}\n", &job));
    CHECK(spw_precision_gathered(&job) == 4 && spw_precision_scattered(&job) == 4);
    CHECK_OK(parse(JOB "precision: {weights: bf16, gradients: fp32}\n", &job));
    CHECK(spw_precision_gathered(&job) == 2 && spw_precision_scattered(&job) == 4);
}

/* A base that is frozen stays as it was loaded, where the trainer is one that models are tuned with; adapters are in fp32. */
static void test_precision_of_a_frozen_base(void) {
#define TUNED \
    "model: mixtral-8x7b\ncluster: h100:8x1\nparallel: {expert: 1, fsdp: 8}\noptimizer: sharded\n" \
    "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
#define LORA "finetune: {frozen: base, lora_rank: 16, lora_targets: attention}\n"
    static const struct {
        const char *text;
        size_t weights, gradients, optimizer;
    } cases[] = {{TUNED LORA "schemes: [transformers]\n", 2, 4, 4},
                 {TUNED "schemes: [transformers]\n", 4, 4, 4},
                 {TUNED "finetune: {frozen: experts}\nschemes: [transformers]\n", 4, 4, 4},
                 {TUNED LORA "schemes: [torchtitan]\n", 4, 4, 4},
                 {TUNED LORA "schemes: [transformers]\nprecision: {weights: fp32}\n", 4, 4, 4},
                 {TUNED LORA "schemes: [transformers]\nprecision: bf16\n", 2, 2, 2}};
#undef LORA
#undef TUNED
    static spw_job job;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(parse(cases[i].text, &job));
        const spw_precision *p = &job.precision;
        CHECK(p->weights == cases[i].weights && p->gradients == cases[i].gradients &&
              p->optimizer == cases[i].optimizer);
    }
}

/* The other set of a job: of state in fp32 bf16, of bf16 throughout what the framework keeps; of bare layers none. */
static void test_other_precision(void) {
    static const struct {
        const char *more, *name;
        size_t weights, gradients, optimizer;
    } cases[] = {{"", "bf16", 2, 2, 2},
                 {"precision: bf16\n", "mixed", 4, 4, 4},
                 {"optimizer: distributed\n", "bf16", 2, 2, 2},
                 {"optimizer: distributed\nprecision: bf16\n", "framework", 2, 4, 4}};
    static spw_job job, other;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        (void)snprintf(text, sizeof text, "%s%s", JOB, cases[i].more);
        CHECK_OK(parse(text, &job));
        const char *name = spw_precision_other(&job, &other);
        CHECK(name != NULL && strcmp(name, cases[i].name) == 0);
        CHECK(other.precision.weights == cases[i].weights &&
              other.precision.gradients == cases[i].gradients &&
              other.precision.optimizer == cases[i].optimizer);
    }
    CHECK_OK(parse(JOB "precision: fp32\n", &job));
    CHECK(spw_precision_other(&job, &other) == NULL);
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

static void test_yaml(void) {
    refuse("", "job.yaml:1: empty; write 'key: value' lines");
    refuse("# nothing\n", "job.yaml:1: empty; write 'key: value' lines");
    refuse("\n- a\n", "job.yaml:2: not a mapping; write 'key: value' lines");
    refuse("model: [deepseek-v3\n",
           "job.yaml:2: not YAML (did not find expected ',' or ']'); write 'key: value' lines");
    refuse(
        "model: a\n\tb: c\n",
        "job.yaml:2: not YAML (found a tab character that violates indentation); write 'key: value' lines");
    refuse(JOB "---\nmodel: x\n", "job.yaml:5: a second document begins; one file is one mapping");
    refuse("model: [[[[[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]]]]\n", "job.yaml:1: nested deeper than 16 levels");
    refuse("model: &a [*a]\ncluster: *a\n" SPLIT BATCH,
           "job.yaml:1: 'model' is a list; it must be a text of 1 to 1023 printable characters (a preset, or "
           "the path of a "
           "Hugging Face config.json)");
    refuse("model: *b\n", "job.yaml:1: not YAML (found undefined alias); write 'key: value' lines");
    refuse_from("a: &a [1,1,1,1]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\n",
                "job.yaml:1: unknown key 'a'; known keys: model, cluster, gpus, ");
    spw_job job;
    CHECK_STATUS(spw_job_parse("job.yaml", NULL, "\n#\na\0b: c", 9, &job), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(),
                 "job.yaml:3: not YAML (control characters are not allowed); write 'key: value' lines") == 0);
    CHECK_STATUS(spw_job_parse("job.yaml", NULL, "\xff\xfe", 2, &job), SPW_ECONFIG);
    char *large = NULL;
    CHECK_OK(SPW_ALLOC((1 << 20) + 2, &large));
    memset(large, '\n', (1 << 20) + 1);
    CHECK_STATUS(spw_job_parse("job.yaml", NULL, large, (1 << 20) + 1, &job), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(), "job.yaml: larger than the 1048576 bytes allowed") == 0);
    for (size_t i = 0; i + 2 < 1 << 20; i += 2) large[i] = '-', large[i + 1] = ' ';
    CHECK_STATUS(spw_job_parse("job.yaml", NULL, large, 1 << 20, &job), SPW_ECONFIG);
    large[0] = '[';
    for (size_t i = 1; i + 2 < 1 << 20; i += 2) large[i] = 'a', large[i + 1] = ',';
    CHECK_STATUS(spw_job_parse("job.yaml", NULL, large, 1 << 20, &job), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(), "job.yaml:1: more than 16384 values in one file") == 0);
    spw_free(large);
}

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

/* Every key is documented, with its default. */
static void test_describe(void) {
    char text[16384] = "";
    FILE *out = fmemopen(text, sizeof text - 1, "w");
    CHECK(out != NULL);
    if (out == NULL) return;
    spw_settings_describe(spw_job_settings(), out);
    CHECK(fclose(out) == 0);
    CHECK(strstr(text, "parallel.pipeline: pipeline stages; default: 1; a whole number in [1, 1024]\n") !=
          NULL);
    CHECK(strstr(text,
                 "precision.optimizer: each of the two moments of Adam; auto: as the weights where the "
                 "optimizer is sharded, else fp32; default: auto; one of: auto, framework, mixed, bf16, "
                 "fp16, fp32, fp8\n") != NULL);
    CHECK(strstr(text, "model: a preset, or the path of a Hugging Face config.json; required; a text of") !=
          NULL);
    CHECK(strstr(text, "default: none; a list of at most 64 texts") != NULL);
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

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    test_remat_lists();
    test_defaults();
    test_some_batches();
    test_expert_layers();
    test_all_keys();
    test_keys();
    test_types();
    test_names();
    test_pipeline();
    test_unsaid_precision();
    test_precision_of_a_frozen_base();
    test_other_precision();
    test_muon();
    test_schedules();
    test_host_and_replicas();
    test_combinations();
    test_check();
    test_yaml();
    test_files(argv[1], argv[2]);
    test_word(argv[1]);
    test_memory(argv[2]);
    test_describe();
    test_bare();
    test_overrides(argv[2]);
    test_implied_sizes(argv[2]);
    test_global_batch(argv[2]);
    return check_done();
}
