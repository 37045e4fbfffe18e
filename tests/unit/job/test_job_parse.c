/* Job files as text: what keys are accepted and what they mean, and for every text that is refused the one line a person gets. */
#include "sim/job/job.h"
#include "sim/read/settings.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/job/job_text.h"

#include <string.h>

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
    refuse("cluster: mi355x-8x8\nmodel: deepsek-v3\n" SPLIT BATCH,
           "job.yaml:2: model 'deepsek-v3' is unknown; did you mean 'deepseek-v3'? presets: dbrx, "
           "deepseek-v2-lite, deepseek-v2, deepseek-v3.2, deepseek-v3, deepseek-v4-flash, "
           "deepseek-v4-pro, dots.llm1, ernie-4.5-21b-a3b, ernie-4.5-300b-a47b, flame-moe-290m, "
           "gemma-4-26b-a4b, glm-4.5-air, glm-4.5, glm-4.7-flash, glm-5, gpt-oss-120b, gpt-oss-20b, "
           "hunyuan-a13b, hunyuan-large, jamba-1.5-large, kimi-k2, kimi-k3, kimi-linear-48b-a3b, "
           "lfm2-8b-a1b, ling-1t, llama-4-maverick, llama-4-scout, longcat-flash, minimax-m2, "
           "minimax-m3, mistral-small-4-119b, mixtral-8x22b, mixtral-8x7b, moonlight-16b-a3b, "
           "nemotron-3-nano, nemotron-3-super, olmoe-1b-7b, phi-3.5-moe, qwen1.5-moe-a2.7b, "
           "qwen2-57b-a14b, qwen3-235b-a22b, qwen3-30b-a3b, qwen3-coder-480b-a35b, qwen3-next-80b-a3b, "
           "qwen3-vl-30b-a3b, qwen3.5-35b-a3b, qwen3.5-397b-a17b, scratch-moe-e64; or give the path of "
           "a Hugging Face config.json");
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

int main(void) {
    test_defaults();
    test_some_batches();
    test_expert_layers();
    test_all_keys();
    test_keys();
    test_types();
    test_names();
    test_yaml();
    test_describe();
    return check_done();
}
