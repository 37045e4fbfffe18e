/* Models: published parameter totals, a case counted by hand, and the refusals. argv[1]: scratch directory. */
#include "sim/model/attention.h"
#include "sim/model/model.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static spw_status parse(const char *text, spw_model *model) {
    return spw_model_parse("config.json", text, strlen(text), model);
}

static void refuse(const char *text, const char *message) {
    spw_model model;
    CHECK_STATUS(parse(text, &model), SPW_ECONFIG);
    const size_t before = strcspn(message, "\001"); /* FAMILIES ends a message */
    bool same = strncmp(spw_last_error(), message, before) == 0 &&
                (message[before] != '\0' ? strstr(spw_last_error(), ", mixtral, olmoe, ") != NULL
                                         : spw_last_error()[before] == '\0');
    CHECK(same);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), message);
}

/* --- Published totals --- */

/* The number of elements of the published weights, where the publisher's repository on Hugging Face states it
 * (its safetensors metadata, "total"), and what the publisher says is active; neither comes from this
 * program. */
static const struct published {
    const char *name;
    double total, tolerance; /* relative */
    double active, active_tolerance;
    bool active_without_embedding; /* the publisher leaves the input embedding out */
    const char *total_source, *active_source;
} published[] = {
    {"deepseek-v2-lite", 15706484224.0, 0, 2.4e9, 0.03, true,
     "safetensors total of deepseek-ai/DeepSeek-V2-Lite",
     "DeepSeek-V2 (2024), appendix B: 15.7B in all, 2.4B active"},
    {"deepseek-v2", 236e9, 0.002, 21e9, 0.01, true, "DeepSeek-V2 (2024), abstract: 236B in all",
     "DeepSeek-V2, abstract: 21B active"},
    {"deepseek-v3", 671026419200.0, 0, 36.7e9, 0.005, true,
     "deepseek-ai/DeepSeek-V3, README_WEIGHTS.md: 671B main model; elements of its weights without MTP and "
     "scales",
     "README_WEIGHTS.md: 36.7B, which the shapes give with the head but without the embedding"},
    {"flame-moe-290m", 1.3e9, 0.001, 290e6, 0.025, false, "CMU-FLAME/FLAME-MoE-290M-1.3B, README.md: 1.3B",
     "CMU-FLAME/FLAME-MoE-290M-1.3B, README.md: 290M"},
    {"gpt-oss-120b", 116.83e9, 0.001, 5.13e9, 0.001, true, "gpt-oss model card (2025), table 1: 116.83B",
     "gpt-oss model card, table 1: 5.13B, with unembedding and without embedding"},
    {"gpt-oss-20b", 20.91e9, 0.001, 3.61e9, 0.001, true, "gpt-oss model card, table 1: 20.91B",
     "gpt-oss model card, table 1: 3.61B"},
    {"kimi-k2", 1026470731056.0, 0.001, 32e9, 0.03, true,
     "safetensors total of moonshotai/Kimi-K2-Base, 0.06B of it scales of fp8 blocks",
     "moonshotai/Kimi-K2-Instruct, README.md: 32B"},
    {"mixtral-8x22b", 140620634112.0, 0, 39e9, 0.01, false,
     "safetensors total of mistral-community/Mixtral-8x22B-v0.1",
     "mistral.ai, Cheaper, Better, Faster, Stronger (2024): 39B"},
    {"mixtral-8x7b", 46702792704.0, 0, 12.9e9, 0.01, false,
     "safetensors total of mistralai/Mixtral-8x7B-v0.1", "mistral.ai, Mixtral of experts (2023): 12.9B"},
    {"olmoe-1b-7b", 6919161856.0, 0, 1.3e9, 0.02, false, "safetensors total of allenai/OLMoE-1B-7B-0924",
     "OLMoE (2024), table 1: 1.3B active of 6.9B"},
    {"qwen3-235b-a22b", 235093634560.0, 0, 22e9, 0.01, false, "safetensors total of Qwen/Qwen3-235B-A22B",
     "Qwen/Qwen3-235B-A22B, README.md: 22B"},
    {"qwen3-coder-480b-a35b", 480e9, 0.001, 35e9, 0.02, true,
     "Qwen3-Coder-480B-A35B-Instruct, README.md: 480B", "README.md: 35B activated"},
    {"qwen3-30b-a3b", 30532122624.0, 0, 3.3e9, 0.02, false, "safetensors total of Qwen/Qwen3-30B-A3B",
     "Qwen/Qwen3-30B-A3B, README.md: 3.3B"},
};

static void check_near(const char *name, const char *what, double got, double want, double tolerance,
                       const char *source) {
    bool near = got >= want * (1 - tolerance) && got <= want * (1 + tolerance);
    CHECK(near);
    if (!near) fprintf(stderr, "  %s %s: %.0f, published %.0f (%s)\n", name, what, got, want, source);
}

static void test_published(void) {
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *row = &published[i];
        spw_model model;
        CHECK_OK(spw_model_read(row->name, NULL, &model));
        spw_parameters p = spw_model_parameters(&model);
        double active = (double)(p.active - (row->active_without_embedding ? p.embedding : 0));
        check_near(row->name, "total", (double)p.total, row->total, row->tolerance, row->total_source);
        check_near(row->name, "active", active, row->active, row->active_tolerance, row->active_source);
    }
}

/* DeepSeek-V3 part by part (DeepSeek-V3, 2024, table of shapes in section 4.2). */
static void test_deepseek(void) {
    spw_model m;
    CHECK_OK(spw_model_read("deepseek-v3", NULL, &m));
    spw_parameters p = spw_model_parameters(&m);
    CHECK(m.layers == 61 && m.moe_layers == 58 && !m.is_moe[2] && m.is_moe[3] && m.is_moe[60]);
    CHECK(m.groups == 8 && m.groups_kept == 4 && m.sigmoid_router && m.selection_bias);
    CHECK(spw_attention_is_latent(&m) && m.shared_ffn == 2048 && m.dense_ffn == 18432 && m.head_dim == 192);
    CHECK(p.embedding == 926679040 && p.head == 926679040 && p.final_norm == 7168);
    CHECK(p.attention_per_layer == 187107328); /* 7168 1536 + 1536 + 1536 24576 + 7168 576 + 512 + 512 32768 +
                                                  16384 7168 */
    CHECK(p.routed_per_layer == 256ull * 3 * 7168 * 2048); /* 11.27B */
    CHECK(p.shared_per_layer == 44040192 && p.dense_ffn_per_layer == 396361728);
    CHECK(p.router_per_layer == 7168 * 256 + 256);
    CHECK(p.active == p.total - 58ull * 248 * 3 * 7168 * 2048);
}

/* --- Every family by hand: hidden 4, 2 layers, vocabulary 10, 2 heads --- */

#define SMALL \
    "\"num_hidden_layers\": 2, \"hidden_size\": 4, \"vocab_size\": 10, \"num_attention_heads\": 2, " \
    "\"intermediate_size\": 3, " \
    "\"num_experts_per_tok\": 1"
#define DEEPSEEK \
    "{\"model_type\": \"deepseek_v3\", " SMALL ", \"n_routed_experts\": 2, \"moe_intermediate_size\": 5, " \
    "\"n_shared_experts\": 2, \"first_k_dense_replace\": 1, " \
    "\"q_lora_rank\": null, \"kv_lora_rank\": 3, \"qk_nope_head_dim\": 2, \"qk_rope_head_dim\": 1, " \
    "\"v_head_dim\": 2"
#define QWEN2 \
    "{\"model_type\": \"qwen2_moe\", " SMALL \
    ", \"num_experts\": 2, \"moe_intermediate_size\": 5, \"shared_expert_intermediate_size\": 6"

typedef struct hand {
    const char *text;
    uint64_t attention, routed, shared, router, dense, total;
    size_t moe_layers;
} hand;

static void test_by_hand(void) {
    /* embedding + head + norms = 40 + 40 + 4 + 2 8 = 100 */
    static const hand cases[] = {
        /* q 4 2 2, k v 2 4 4, o 4 4; experts 2 of 3 4 3; router 2 4 */
        {"{\"model_type\": \"mixtral\", " SMALL ", \"num_local_experts\": 2}", 64, 72, 0, 8, 0, 388, 2},
        /* tied: 40 less; one kv head of 2: q 16, k 8, v 8, o 16 */
        {"{\"model_type\": \"mixtral\", " SMALL ", \"num_local_experts\": 2, \"num_key_value_heads\": 1, "
         "\"head_dim\": null, \"tie_word_embeddings\": true}",
         48, 72, 0, 8, 0, 316, 2},
        /* norms of q and k over the whole projection: 4 + 4 */
        {"{\"model_type\": \"olmoe\", " SMALL ", \"num_experts\": 2}", 72, 72, 0, 8, 0, 404, 2},
        /* norms of q and k of one head: 2 + 2; experts 2 of 3 4 5; layer 0 is dense: 3 4 3 */
        {"{\"model_type\": \"qwen3_moe\", " SMALL
         ", \"num_experts\": 2, \"moe_intermediate_size\": 5, \"mlp_only_layers\": [0]}",
         68, 120, 0, 8, 36, 400, 1},
        /* biases of q, k, v: 12, none of o; shared 3 4 6 with a gate of 4; every second layer is sparse */
        {QWEN2 ", \"decoder_sparse_step\": 2}", 76, 120, 76, 8, 36, 492, 1},
        /* biases of q, k, v, o: 16; a sink a head: 2; expert biases 2 (6 + 4); router bias 2 */
        {"{\"model_type\": \"gpt_oss\", \"num_hidden_layers\": 2, \"hidden_size\": 4, \"vocab_size\": 10, "
         "\"num_attention_heads\": 2, \"intermediate_size\": 3, \"experts_per_token\": 1, "
         "\"num_local_experts\": 2, "
         "\"attention_bias\": true}",
         82, 92, 0, 10, 0, 468, 2},
        /* q 4 2 3, kv down 4 4 + 3, up 3 2 4, o 2 2 4; shared 2 of 3 4 5; router 2 4 + 2; dense 3 4 3 */
        {DEEPSEEK "}", 83, 120, 120, 10, 36, 552, 1},
        /* the same with biases: kv down 4, o 4 */
        {DEEPSEEK ", \"attention_bias\": true, \"topk_method\": \"greedy\", \"scoring_func\": \"softmax\"}",
         91, 120, 120, 8, 36, 566, 1},
        {"{\"model_type\": \"generic\", " SMALL ", \"num_experts\": 2, \"moe_intermediate_size\": 5}", 64,
         120, 0, 8, 0, 484, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const hand *want = &cases[i];
        spw_model m;
        CHECK_OK(parse(want->text, &m));
        spw_parameters p = spw_model_parameters(&m);
        bool same = p.attention_per_layer == want->attention && p.routed_per_layer == want->routed &&
                    p.shared_per_layer == want->shared && p.router_per_layer == want->router &&
                    p.dense_ffn_per_layer == want->dense && p.total == want->total &&
                    m.moe_layers == want->moe_layers;
        CHECK(same && p.norms_per_layer == 8 && p.final_norm == 4);
        CHECK(p.active == p.total - m.moe_layers * p.routed_per_layer / 2); /* 1 of 2 experts */
        if (!same)
            fprintf(stderr, "  case %zu: %llu %llu %llu %llu %llu %llu, %zu\n", i,
                    (unsigned long long)p.attention_per_layer, (unsigned long long)p.routed_per_layer,
                    (unsigned long long)p.shared_per_layer, (unsigned long long)p.router_per_layer,
                    (unsigned long long)p.dense_ffn_per_layer, (unsigned long long)p.total, m.moe_layers);
    }
}

/* --- Names --- */

static void test_names(const char *scratch) {
    static const char *const pairs[][2] = {{"deepseek3-671b", "deepseek-v3"},
                                           {"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
                                           {"kimi-k2-1t", "kimi-k2"},
                                           {"moonshotai/Kimi-K2-Instruct", "kimi-k2"},
                                           {"openai/gpt-oss-120b", "gpt-oss-120b"},
                                           {"zai-org/GLM-4.7-FP8", "glm-4.5"},
                                           {"glm-4.7", "glm-4.5"},
                                           {"zai-org/GLM-4.7-Flash", "glm-4.7-flash"},
                                           {"MiniMaxAI/MiniMax-M2.1", "minimax-m2"},
                                           {"minimax-m2.7", "minimax-m2"},
                                           {"moonshotai/Kimi-K2.5", "kimi-k2"},
                                           {"moonshotai/Moonlight-16B-A3B-Instruct", "moonlight-16b-a3b"},
                                           {"baidu/ERNIE-4.5-21B-A3B-Base-PT", "ernie-4.5-21b-a3b"},
                                           {"Hunyuan-A52B-Instruct", "hunyuan-large"},
                                           {"deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-v3"},
                                           {"minimax_m2.5.yaml", "minimax-m2"},
                                           {"Qwen/Qwen3.6-35B-A3B", "qwen3.5-35b-a3b"},
                                           {"Qwen3-VL-30B-A3B-Instruct-FP8", "qwen3-vl-30b-a3b"},
                                           {"google/gemma-4-26B-A4B-it", "gemma-4-26b-a4b"},
                                           {"Qwen/Qwen1.5-MoE-A2.7B-Chat", "qwen1.5-moe-a2.7b"},
                                           {"openai/gpt-oss-safeguard-20b", "gpt-oss-20b"},
                                           {"llama4_17Bx16E-fp8", "llama-4-scout"},
                                           {"llama4_17B128E.yaml", "llama-4-maverick"},
                                           {"deepseek_v3_16b", "deepseek-v2-lite"},
                                           {"deepseek4-284b", "deepseek-v4-flash"},
                                           {"qwen3_5_35B_A3B.yaml", "qwen3.5-35b-a3b"},
                                           {"GLM-4.7-355B-A32B", "glm-4.5"},
                                           {"Qwen3-30B-A3B-Instruct-2507-NVFP4", "qwen3-30b-a3b"}};
    spw_model m, again;
    size_t count = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        CHECK_OK(spw_model_read(pairs[i][0], "/nowhere", &m));
        CHECK_OK(spw_model_read(pairs[i][1], NULL, &again));
        CHECK(strcmp(m.name, pairs[i][1]) == 0 &&
              spw_model_parameters(&m).total == spw_model_parameters(&again).total);
    }
    for (const char *const *name = spw_model_presets(); *name != NULL; name++, count++) {
        CHECK_OK(spw_model_read(*name, NULL, &m));
        CHECK(strcmp(m.name, *name) == 0 && strlen(m.source) > 20 && strlen(m.source) < SPW_MODEL_SOURCE - 1);
    }
    CHECK(count == 49);
    CHECK_OK(spw_model_read("scratch-moe-e64", NULL, &m));
    CHECK(m.layers == 8 && m.moe_layers == 7 && !m.is_moe[0] && m.is_moe[1] && m.experts == 64 &&
          m.top_k == 8);
    CHECK(m.hidden == 768 && m.expert_ffn == 384 && m.shared_ffn == 0 && !m.sigmoid_router &&
          !m.selection_bias);
    CHECK(strstr(m.source, "assumed: 12 heads of 64") != NULL);

    char path[512];
    (void)snprintf(path, sizeof path, "%s/test_model_own.json", scratch);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    if (file == NULL) return;
    CHECK(fputs("{\"model_type\": \"mixtral\", " SMALL ", \"num_local_experts\": 2, \"unheard_of\": \"a\"}",
                file) >= 0);
    CHECK(fclose(file) == 0);
    CHECK_OK(spw_model_read("test_model_own.json", scratch, &m));
    CHECK(strcmp(m.name, "test_model_own") == 0 && strcmp(m.source, path) == 0);
    CHECK_STATUS(spw_model_read("no.json", scratch, &m), SPW_EIO);
    CHECK_STATUS(spw_model_read("mixtral-8x7", NULL, &m), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(),
                 "model 'mixtral-8x7' is unknown; did you mean 'mixtral-8x7b'? presets: ") != NULL);
    int n = 0;
    for (spw_status status = SPW_ENOMEM; status != SPW_OK && n < 100; n++) {
        spw_alloc_fail_after(n);
        status = spw_model_read(path, NULL, &m);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
    }
    CHECK(n > 1 && n < 100);
}

/* --- Keys --- */

#define MIXTRAL(rest) "{\"model_type\": \"mixtral\", " SMALL ", \"num_local_experts\": 2" rest "}"

/* Every key of the configuration as it is published, shapes aside. */
#define PUBLISHED \
    ", \"architectures\": [\"X\"], \"auto_map\": {\"AutoConfig\": \"x\"}, \"attention_dropout\": 0.1, " \
    "\"bos_token_id\": 1, " \
    "\"eos_token_id\": 2, \"hidden_act\": \"silu\", \"initializer_range\": 0.02, " \
    "\"max_position_embeddings\": 4096, " \
    "\"norm_topk_prob\": true, \"pretraining_tp\": 1, \"quantization_config\": {\"bits\": 8}, " \
    "\"rms_norm_eps\": 1e-6, " \
    "\"rope_scaling\": {\"factor\": 40}, \"rope_theta\": 10000, \"routed_scaling_factor\": 2.5, " \
    "\"router_aux_loss_coef\": 0.001, \"sliding_window\": null, \"torch_dtype\": \"bfloat16\", " \
    "\"transformers_version\": \"4.33.1\", \"use_cache\": true, \"max_window_layers\": 48, " \
    "\"layer_types\": [\"sliding_attention\", \"full_attention\"], \"mlp_bias\": false, \"extra_heads\": " \
    "0, " \
    "\"adapters\": []"
#define GENERIC(rest) \
    "{\"model_type\": \"generic\", " SMALL ", \"num_experts\": 2, \"moe_intermediate_size\": 5" rest "}"

static void test_keys(void) {
    static const char *const quiet[] = {GENERIC(PUBLISHED), MIXTRAL(PUBLISHED), DEEPSEEK PUBLISHED "}",
                                        QWEN2 PUBLISHED "}"};
    spw_model m;
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++) {
        CHECK_OK(parse(quiet[i], &m));
        CHECK(m.doubt[0][0] == '\0');
    }
    /* texts, fractions and numbers below 2 are no sizes */
    CHECK_OK(parse(MIXTRAL(", \"unheard_of\": \"a\", \"other\": 1, \"third\": 0.5"), &m));
    CHECK(m.doubt[0][0] == '\0');
    CHECK(m.layers_per_turn == 1);
    CHECK_OK(parse(MIXTRAL(", \"layer_types\": [\"sliding_attention\", \"full_attention\"]"), &m));
    CHECK(m.layers_per_turn == 2); /* the period of two unlike layers */
    CHECK_OK(parse(MIXTRAL(", \"layer_types\": [\"full_attention\", \"full_attention\"]"), &m));
    CHECK(m.layers_per_turn == 1);
    /* Jamba attends in every eighth layer and has experts in every second: four of them a turn; Qwen3-Next, every fourth */
    CHECK_OK(spw_model_read("jamba-1.5-large", NULL, &m));
    CHECK(m.layers_per_turn == 4 && m.other_layers == 63 && m.moe_layers == 36 && m.mixer_of[3] &&
          !m.mixer_of[4]);
    CHECK_OK(spw_model_read("qwen3-next-80b-a3b", NULL, &m));
    CHECK(m.layers_per_turn == 4 && m.other_layers == 36 && m.mixer_of[2] && !m.mixer_of[3]);
    CHECK_OK(parse(MIXTRAL(", \"sliding_window\": 7"), &m));
    CHECK(strstr(m.doubt[0], "looks back 7 tokens") != NULL && m.doubt[1][0] == '\0');
    CHECK_OK(parse(MIXTRAL(", \"sliding_window\": 7, \"use_sliding_window\": false"), &m));
    CHECK(m.doubt[0][0] == '\0');
    /* its 14 B of multi-token prediction hold embedding and head again, 0.93 B each (README_WEIGHTS.md): 11.6 B are its own */
    CHECK_OK(spw_model_read("deepseek-v3", NULL, &m));
    CHECK(strstr(
              m.doubt[0],
              "1 layer of multi-token prediction (11.6 B parameters beside the 671.0 B that count) is not") !=
          NULL);
    CHECK_OK(spw_model_read("kimi-k2", NULL, &m));
    CHECK(m.doubt[0][0] == '\0');
    /* biases of q, k and v can be switched off: 12 less */
    spw_model with;
    CHECK_OK(parse(QWEN2 "}", &with));
    CHECK_OK(parse(QWEN2 ", \"qkv_bias\": false}", &m));
    CHECK(spw_model_parameters(&with).attention_per_layer ==
          spw_model_parameters(&m).attention_per_layer + 12);
}

/* --- Refusals --- */

#define BARE(layers, hidden, heads, experts, top_k) \
    "{\"model_type\": \"mixtral\", \"vocab_size\": 10, \"intermediate_size\": 3, " \
    "\"num_hidden_layers\": " layers ", \"hidden_size\": " hidden ", \"num_attention_heads\": " heads \
    ", \"num_local_experts\": " experts ", \"num_experts_per_tok\": " top_k "}"

#define FAMILIES "\001" /* the list of families, whatever it is */
#define HOLDS(key) \
    ", and it could hold parameters; docs/models.md lists what is read and what is known to hold none; if " \
    "this one holds none, " \
    "write '_" key "'"

static void test_refusals(void) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "config.json:1: not JSON: '[' or '{' expected near end of file"},
        {"{\"a\": 1,\n\"a\": 2}", "config.json:2: not JSON: duplicate object key near '\"a\"'"},
        {"[1]", "config.json: not a JSON object; give a Hugging Face config.json"},
        {"{}", "config.json: key 'model_type' is missing; it must be one of: " FAMILIES},
        {"{\"model_type\": \"llama\\u001b\", \"vocab_size\": 3, \"tower_width\": 7, \"expert_towers\": [2]}",
         "config.json: model_type 'llama?' is unknown, and it cannot be read by its keys alone: key "
         "'num_hidden_layers' is missing; mixture of experts models need it: a whole number in [1, 1024]; "
         "docs/models.md lists the types that are known"},
        {"{\"model_type\": 7, \"num_experts\": 8}", "config.json: 'model_type' is 7; it must be a text, the "
                                                    "name of a family such as 'qwen3_moe' or 'generic'"},
        {MIXTRAL(", \"use_moe\": false"), "config.json: 'use_moe' is false, so the model is dense and has no "
                                          "experts; Spillway plans mixtures of experts only"},
        {"{\"model_type\": \"mixtral\"}",
         "config.json: key 'num_hidden_layers' is missing; mixtral models need it: a whole "
         "number in [1, 1024]"},
        {"{\"model_type\": \"generic\", " SMALL "}",
         "config.json: key 'num_experts' or 'n_routed_experts' or 'num_local_experts' is missing; generic "
         "models need it: a "
         "whole number in [1, 65535]"},
        {BARE("\"2\"", "4", "2", "2", "1"),
         "config.json: 'num_hidden_layers' is '2'; it must be a whole number in [1, 1024]"},
        {BARE("2.5", "4", "2", "2", "1"),
         "config.json: 'num_hidden_layers' is 2.5; it must be a whole number in [1, 1024]"},
        {BARE("1025", "4", "2", "2", "1"),
         "config.json: 'num_hidden_layers' is 1025; it must be a whole number in [1, 1024]"},
        {BARE("2", "0", "2", "2", "1"),
         "config.json: 'hidden_size' is 0; it must be a whole number in [1, 16777216]"},
        {BARE("2", "-4", "2", "2", "1"),
         "config.json: 'hidden_size' is -4; it must be a whole number in [1, 16777216]"},
        {BARE("2", "16777217", "2", "2", "1"),
         "config.json: 'hidden_size' is 16777217; it must be a whole number in [1, 16777216]"},
        {BARE("2", "[4]", "2", "2", "1"),
         "config.json: 'hidden_size' is a list; it must be a whole number in [1, 16777216]"},
        {BARE("2", "true", "2", "2", "1"),
         "config.json: 'hidden_size' is true; it must be a whole number in [1, 16777216]"},
        {BARE("2", "4", "2", "65536", "1"),
         "config.json: 'num_local_experts' is 65536; it must be a whole number in [1, 65535]"},
        {BARE("2", "4", "2", "2", "1, \"num_nextn_predict_layers\": \"one\""),
         "config.json: 'num_nextn_predict_layers' must be a whole number of layers of multi-token "
         "prediction, or null"},
        {BARE("2", "4", "2", "2", "1, \"num_nextn_predict_layers\": -1"),
         "config.json: 'num_nextn_predict_layers' must be a whole number of layers of multi-token "
         "prediction, or null"},
        {BARE("2", "4", "2", "2", "3"),
         "config.json: 3 experts a token of 2; a token cannot choose more than there are"},
        {"{\"model_type\": \"generic\", \"vocab_size\": 10, \"moe_intermediate_size\": 3, "
         "\"num_hidden_layers\": 2, "
         "\"hidden_size\": 4, \"num_attention_heads\": 3, \"num_experts\": 2, \"num_experts_per_tok\": 1}",
         "config.json: hidden_size 4 is not a multiple of num_attention_heads 3; give 'head_dim'"},
        {BARE("1024", "16777216", "1", "65535", "1"),
         "config.json: the model has more than 2^52 parameters; no such model can be planned"},
        {MIXTRAL(", \"num_key_value_heads\": 3"),
         "config.json: num_attention_heads 2 is not a multiple of num_key_value_heads 3; give a divisor"},
        {MIXTRAL(", \"tie_word_embeddings\": \"no\""),
         "config.json: 'tie_word_embeddings' is 'no'; it must be true or false"},
        {MIXTRAL(", \"scoring_func\": \"relu\""),
         "config.json: 'scoring_func' is 'relu'; it must be 'sigmoid' or 'softmax'"},
        {GENERIC(", \"interleave_moe_layer_step\": 2"),
         "config.json: key 'interleave_moe_layer_step' (2) is not read in a model of this kind" HOLDS(
             "interleave_moe_layer_step")},
        {GENERIC(", \"layer_types\": [\"full_attention\", \"mamba\"]"),
         "config.json: 'layer_types' has the entry 'mamba' at layer 1; generic models have one of "
         "'full_attention', "
         "'sliding_attention', 'chunked_attention', 'indexed_attention', 'mamba2', 'gated_delta_net', "
         "'kimi_delta', "
         "'lightning_attention', 'conv', 'sliding_apart', 'grouped_window', 'compressed_sparse_attention', "
         "'heavily_compressed_attention', 'block_sparse_attention', "
         "'attention_alone', 'mamba2_alone', 'gated_delta_net_alone', 'experts_alone', 'ffn_alone' there"},
        {MIXTRAL(", \"unheard_of\": {\"a\": [1]}"),
         "config.json: key 'unheard_of' (a mapping) is not known" HOLDS("unheard_of")},
        {MIXTRAL(", \"layer_types\": [\"linear_attention\"]"),
         "config.json: key 'layer_types' (a list) is not read in a model of this kind" HOLDS("layer_types")},
        {MIXTRAL(", \"n_shared_experts\": 1"),
         "config.json: key 'n_shared_experts' (1) is not read in a model of this kind" HOLDS(
             "n_shared_experts")},
        {DEEPSEEK ", \"mlp_only_layers\": [1]}",
         "config.json: key 'mlp_only_layers' (a list) is not read in a model of this kind" HOLDS(
             "mlp_only_layers")},
        {MIXTRAL(", \"topk_method\": 1"), "config.json: 'topk_method' is 1; it must be 'noaux_tc'"},
        {MIXTRAL(", \"n_group\": 2, \"topk_group\": 3"),
         "config.json: 2 experts in 2 groups ('n_group') of which 3 are kept ('topk_group') cannot give 1 a "
         "token; n_group must "
         "divide the experts and the kept groups hold enough of them"},
        {DEEPSEEK ", \"moe_layer_freq\": 2}",
         "config.json: none of the 2 layers has experts; Spillway plans mixtures of experts "
         "only"},
        {QWEN2 ", \"mlp_only_layers\": 1}",
         "config.json: 'mlp_only_layers' is 1; it must be a list of layer numbers in [0, 1]"},
        {QWEN2 ", \"mlp_only_layers\": [0, 2]}",
         "config.json: 'mlp_only_layers' has the entry 2; it must be a list of layer numbers in [0, 1]"},
        {"{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"hidden_size\": 4, \"vocab_size\": 10, "
         "\"num_attention_heads\": 2, \"num_experts_per_tok\": 1, \"num_experts\": 2, "
         "\"moe_intermediate_size\": 5, "
         "\"mlp_only_layers\": [1]}",
         "config.json: key 'intermediate_size' is missing; 1 layers are dense and need it: a whole number in "
         "[1, 16777216]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refuse(cases[i].text, cases[i].message);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    test_published();
    test_deepseek();
    test_by_hand();
    test_names(argv[1]);
    test_keys();
    test_refusals();
    return check_done();
}
