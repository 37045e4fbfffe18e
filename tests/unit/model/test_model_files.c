/* Configurations as they are published: what is read past, and what of it is still refused. argv[1]: scratch directory. */
#include "sim/model/attention.h"
#include "sim/model/config/model_json.h"
#include "sim/model/model.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static spw_status parse(const char *text, spw_model *model) {
    return spw_model_parse("config.json", text, strlen(text), model);
}

static void refuse(const char *text, const char *part) {
    spw_model model;
    CHECK_STATUS(parse(text, &model), SPW_ECONFIG);
    const bool same = strstr(spw_last_error(), part) != NULL;
    CHECK(same);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), part);
}

#define MIXTRAL(width, rest) \
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"hidden_size\": " width \
    ", \"vocab_size\": 10, " \
    "\"num_attention_heads\": 2, \"intermediate_size\": 3, \"num_experts_per_tok\": 1, " \
    "\"num_local_experts\": 2" rest "}"

/* Words of Python's json module: no numbers of JSON. */
static void test_words(void) {
    spw_model plain, m;
    CHECK_OK(parse(MIXTRAL("4", ""), &plain));
    CHECK_OK(parse(
        MIXTRAL("4",
                ", \"time_step_limit\": Infinity, \"rope_scaling\": [NaN,-Infinity], \"rope_theta\": NaN"),
        &m));
    CHECK(spw_model_parameters(&m).total == spw_model_parameters(&plain).total);
    /* within a string they are text, and an escaped quote ends none */
    CHECK_OK(parse(MIXTRAL("4", ", \"hidden_act\": \"\\\"NaN \\\\\", \"model_kind\": \"Infinity\""), &m));
    refuse(MIXTRAL("Infinity", ""),
           "'hidden_size' is 'Infinity'; it must be a whole number in [1, 16777216]");
    refuse(MIXTRAL("NaN", ""), "'hidden_size' is 'NaN'; it must be a whole number");
    refuse("{\"a\": NaN,\n\"b\": Nan}", "config.json:2: not JSON: invalid token near 'Nan'");
    refuse("{\"a\": Infinity2}", "config.json:1: not JSON");
    refuse("{\"a\": \"NaN\\", "config.json:1: not JSON");
    int n = 0;
    for (spw_status status = SPW_ENOMEM; status != SPW_OK && n < 100; n++) {
        spw_alloc_fail_after(n);
        status = parse(MIXTRAL("4", ", \"a\": NaN"), &m);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
    }
    CHECK(n > 1 && n < 100);
}

/* A file of a quantisation that lists the layers it leaves alone; `entries` of 32 bytes. */
static bool write_long(const char *path, size_t entries) {
    FILE *file = fopen(path, "wb");
    if (file == NULL) return false;
    bool good =
        fputs(
            "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"hidden_size\": 4, \"vocab_size\": 10, "
            "\"num_attention_heads\": 2, \"intermediate_size\": 3, \"num_experts_per_tok\": 1, "
            "\"num_local_experts\": 2, \"quantization_config\": {\"ignore\": [\"a\"",
            file) >= 0;
    for (size_t i = 0; i < entries; i++)
        good = fprintf(file, ",\"model.layers.%011zu.gate\"", i) == 32 && good;
    good = fputs("]}}", file) >= 0 && good;
    return fclose(file) == 0 && good;
}

static void test_length(const char *scratch) {
    char path[512];
    spw_model m;
    (void)snprintf(path, sizeof path, "%s/test_model_long.json", scratch);
    CHECK(write_long(path, 100000)); /* 3 MiB */
    CHECK_OK(spw_model_read(path, NULL, &m));
    CHECK(m.experts == 2);
    CHECK(write_long(path, SPW_MODEL_FILE_BYTES / 32));
    CHECK_STATUS(spw_model_read(path, NULL, &m), SPW_EIO);
    CHECK(strstr(spw_last_error(), "larger than the 16777216 bytes allowed") != NULL);
    CHECK(remove(path) == 0);
}

/* A model is named after its file, whose name may hold anything, and the name is printed. */
static void test_file_name(const char *scratch) {
    char path[512];
    spw_model m;
    (void)snprintf(path, sizeof path, "%s/test_model\n\x1b[31m.json", scratch);
    CHECK(write_long(path, 1));
    CHECK_OK(spw_model_read(path, NULL, &m));
    CHECK(strcmp(m.name, "test_model??[31m") == 0);
    CHECK(remove(path) == 0);
}

/* GLM-5.2's kind of layers, small: hidden 4, ranks 3 and 2, indexer of 2 heads of 5. Four layers, two of them with an indexer. */
#define INDEXED(rest) \
    "{\"model_type\": \"glm_moe_dsa\", \"num_hidden_layers\": 4, \"hidden_size\": 4, \"vocab_size\": 10, " \
    "\"num_attention_heads\": 2, \"intermediate_size\": 3, \"moe_intermediate_size\": 2, " \
    "\"n_routed_experts\": 2, " \
    "\"num_experts_per_tok\": 1, \"first_k_dense_replace\": 1, \"q_lora_rank\": 3, \"kv_lora_rank\": 2, " \
    "\"qk_nope_head_dim\": 1, \"qk_rope_head_dim\": 2, \"v_head_dim\": 1, \"index_n_heads\": 2, " \
    "\"index_head_dim\": 5" rest "}"

static uint64_t indexed_total(const char *text, size_t with) {
    spw_model m;
    CHECK_OK(parse(text, &m));
    CHECK(spw_model_indexer_layers(&m) == with);
    return spw_model_parameters(&m).total;
}

/* An indexer: queries 3 x 10, a key 4 x 5 with a norm of 5 and its bias, weights 4 x 2. */
static void test_indexers(void) {
    const uint64_t one = 30 + 20 + 10 + 8, all = indexed_total(INDEXED(""), 4);
    spw_model m;
    CHECK_OK(parse(INDEXED(""), &m));
    CHECK(spw_model_parameters(&m).indexer_per_layer == one);
    CHECK(indexed_total(INDEXED(", \"indexer_types\": [\"full\", \"shared\", \"full\", \"shared\"]"), 2) ==
          all - 2 * one);
    CHECK(indexed_total(INDEXED(", \"index_topk_pattern\": \"FSSS\""), 1) == all - 3 * one);
    /* every second from the layer before `offset` on: 0, 2 */
    CHECK(indexed_total(INDEXED(", \"index_topk_freq\": 2, \"index_skip_topk_offset\": 1"), 2) ==
          all - 2 * one);
    CHECK(indexed_total(INDEXED(", \"index_topk_freq\": 4"), 2) == all - 2 * one); /* offset 2: 0 and 1 */
    CHECK_OK(parse(INDEXED(", \"index_topk_freq\": 4"), &m));
    CHECK(m.shares_indexer[0] == 0 && m.shares_indexer[1] == 0 && m.shares_indexer[2] == 1 &&
          m.shares_indexer[3] == 1);
    CHECK(
        indexed_total(INDEXED(", \"index_share_for_mtp_iteration\": true, \"layer_types\": "
                              "[\"deepseek_sparse_attention\", \"indexed_attention\", \"indexed_attention\", "
                              "\"indexed_attention\"]"),
                      4) == all);
    refuse(INDEXED(", \"indexer_types\": [\"full\", \"shared\", \"half\", \"shared\"]"),
           "'indexer_types' has the entry 'half' at layer 2; glm_moe_dsa models have 'shared' and 'full' "
           "there");
    refuse(INDEXED(", \"indexer_types\": [\"full\"]"),
           "'indexer_types' must be a list of 4 entries, one a layer");
    refuse(INDEXED(", \"indexer_types\": [\"shared\", \"full\", \"full\", \"full\"]"),
           "layer 0 shares an indexer by 'indexer_types', but no layer before it has one");
    refuse(INDEXED(", \"index_topk_pattern\": \"FSX\""),
           "'index_topk_pattern' is 'FSX'; it must be a text of 4 letters");
    refuse(
        INDEXED(", \"index_topk_freq\": 4, \"indexer_types\": [\"full\", \"shared\", \"full\", \"shared\"]"),
        "'indexer_types' says that layer 1 shares an indexer, but by 'index_topk_freq' (4) it has one");
}

/* A switch of a part that the family always has says nothing new; of a part that it lacks it is refused. */
static void test_switches(void) {
    spw_model with, m;
#define QWEN3(rest) \
    "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"hidden_size\": 4, \"vocab_size\": 10, " \
    "\"num_attention_heads\": 2, \"moe_intermediate_size\": 2, \"num_experts\": 2, " \
    "\"num_experts_per_tok\": 1" rest "}"
    CHECK_OK(parse(QWEN3(""), &with));
    CHECK_OK(parse(QWEN3(", \"use_qk_norm\": true, \"qkv_bias\": false"), &m));
    CHECK(spw_model_parameters(&m).total == spw_model_parameters(&with).total);
    refuse(QWEN3(", \"use_routing_bias\": true"), "key 'use_routing_bias' (true)");
    refuse(MIXTRAL("4", ", \"use_qk_norm\": true"), "key 'use_qk_norm' (true)");
}

/* As transformers 5.24 saves Gemma 4: full layers have numbers of their own by their layer. */
#define GEMMA(rest) \
    "{\"model_type\": \"gemma4_text\", \"num_hidden_layers\": 3, \"hidden_size\": 4, \"vocab_size\": 10, " \
    "\"num_attention_heads\": 2, \"head_dim\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 3, " \
    "\"moe_intermediate_size\": 2, " \
    "\"num_experts\": 2, " \
    "\"top_k_experts\": 1, \"layer_types\": [\"sliding_attention\", \"full_attention\", " \
    "\"full_attention\"], \"attention_k_eq_v\": true" rest "}"

static void test_per_layer(void) {
    spw_model keys, m;
    CHECK_OK(parse(GEMMA(", \"global_head_dim\": 6, \"num_global_key_value_heads\": 1"), &keys));
    CHECK_OK(parse(GEMMA(", \"per_layer_config\": {\"01\": {\"head_dim\": 6, \"num_key_value_heads\": 1}, "
                         "\"02\": {\"num_key_value_heads\": 1, \"head_dim\": 6}}"),
                   &m));
    CHECK(m.other_layers == 2 &&
          spw_matrices_elements(&m, SPW_IN_MIXER, 1) == spw_matrices_elements(&keys, SPW_IN_MIXER, 1));
    CHECK(spw_model_parameters(&m).total == spw_model_parameters(&keys).total);
    /* q 4 x 12, k that is v 4 x 6, o 12 x 4, two norms of 6: what is not said is the model's, 1 KV head */
    CHECK_OK(
        parse(GEMMA(", \"per_layer_config\": {\"1\": {\"head_dim\": 6}, \"2\": {\"head_dim\": 6}}"), &m));
    CHECK(spw_matrices_elements(&m, SPW_IN_MIXER, 1) == 2 * 48 + 24 + 12);
    refuse(GEMMA(", \"per_layer_config\": {\"1\": {\"head_dim\": 6}}"),
           "'per_layer_config' has no numbers for layer 2");
    refuse(GEMMA(", \"per_layer_config\": {\"0\": {\"head_dim\": 6}}"),
           "at layer 0 that is of the model's own kind");
    refuse(GEMMA(", \"per_layer_config\": {\"1\": {\"head_dim\": 6}, \"2\": {\"head_dim\": 8}}"),
           "at layer 2 that differ from those before it");
    refuse(GEMMA(", \"per_layer_config\": {\"1\": {\"width\": 6}, \"2\": {\"width\": 6}}"),
           "'per_layer_config' has the key 'width', and it could hold parameters");
    refuse(GEMMA(", \"per_layer_config\": {\"3\": {}}"), "'per_layer_config' has the key '3'; it must be");
    refuse(GEMMA(", \"per_layer_config\": {\"1\": {\"head_dim\": \"6\"}, \"2\": {\"head_dim\": \"6\"}}"),
           "'head_dim' within 'per_layer_config' is '6'; it must be a whole number in [1, 65535]");
}

/* The language model within a file that holds more, under each of the names, with and without a model_type of its own. */
static void test_wrappers(void) {
#define WITHIN(type, name, text_type, rest) \
    "{\"model_type\": \"" type "\", \"vision_config\": {\"hidden_size\": 9}" rest ", \"" name \
    "\": {" text_type "\"num_hidden_layers\": 2, \"hidden_size\": 4, \"vocab_size\": 10, " \
    "\"num_attention_heads\": 2, \"intermediate_size\": 3, " \
    "\"moe_intermediate_size\": 2, \"n_routed_experts\": 2, \"num_experts_per_tok\": 1, \"kv_lora_rank\": " \
    "2, " \
    "\"qk_nope_head_dim\": 1, \"qk_rope_head_dim\": 2, \"v_head_dim\": 1}}"
    static const char *const same[] = {
        WITHIN("any_vl", "text_config", "\"model_type\": \"deepseek_v3\", ", ""),
        WITHIN("any_vl", "llm_config", "\"model_type\": \"deepseek_v3\", ", ""),
        WITHIN("any_vl", "language_config", "\"model_type\": \"deepseek_v3\", ", ""),
        WITHIN("kimi_vl", "text_config", "", ""),
        WITHIN("kimi_k25", "text_config", "", ", \"tie_word_embeddings\": false"),
    };
    spw_model m;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        CHECK_OK(parse(same[i], &m));
        CHECK(spw_attention_is_latent(&m) && m.sigmoid_router && !m.tied_embeddings && m.hidden == 4);
        CHECK(strstr(m.doubt[0], "only the language model") != NULL);
    }
    CHECK_OK(parse(WITHIN("kimi_k25", "text_config", "", ""), &m)); /* the class's own default */
    CHECK(m.tied_embeddings);
    CHECK_OK(parse(WITHIN("any_vl", "text_config", "", ""), &m)); /* by its keys */
    CHECK(spw_attention_is_latent(&m) && strstr(m.doubt[0], "model_type 'any_vl' is not known") != NULL);
    refuse("{\"model_type\": \"any_vl\", \"text_config\": 7, \"experts\": 8}",
           "'text_config' is 7; it must be a mapping");
}

/* Heads of a width that the file does not say: 5 by 2 rounded down, as transformers builds them. */
static void test_head_dim(void) {
    spw_model m;
    CHECK_OK(parse(MIXTRAL("5", ""), &m));
    CHECK(m.head_dim == 2 && strstr(m.doubt[0], "heads are taken as 2 wide") != NULL);
    CHECK_OK(parse(MIXTRAL("4", ""), &m));
    CHECK(m.head_dim == 2 && m.doubt[0][0] == '\0');
    refuse(MIXTRAL("1", ""), "hidden_size 1 is not a multiple of num_attention_heads 2; give 'head_dim'");
}

/* What transformers 4 wrote into every file, and names that end as no size does. */
static void test_quiet(void) {
    spw_model plain, m;
    CHECK_OK(parse(MIXTRAL("4", ""), &plain));
    CHECK_OK(parse(
        MIXTRAL("4",
                ", \"max_length\": 20, \"num_beams\": 4, \"top_k\": 50, \"boi_token_index\": 200080, "
                "\"own_token_ids\": [7, 8], \"layer_rope_theta\": [10000, 20000], \"moe_router_dtype\": 7, "
                "\"use_associative_scan\": true, \"time_step_limit\": [0.0, 3.0], \"chunk_size\": 256"),
        &m));
    CHECK(spw_model_parameters(&m).total == spw_model_parameters(&plain).total);
    refuse(MIXTRAL("4", ", \"tokens\": [7, 8]"), "key 'tokens' (a list) is not known");
    refuse(MIXTRAL("4", ", \"_theta\": 2, \"theta\": 2"), "key 'theta' (2) is not known");
    /* a number under a second name of the same number */
    CHECK_OK(parse(MIXTRAL("4", ", \"num_experts\": 2, \"n_routed_experts\": 2"), &m));
    refuse(MIXTRAL("4", ", \"n_routed_experts\": 3"), "both are the number of experts in a layer");
    refuse(MIXTRAL("4", ", \"num_shared_experts\": 2"), "key 'num_shared_experts' (2) is not read");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    test_words();
    test_indexers();
    test_switches();
    test_per_layer();
    test_quiet();
    test_head_dim();
    test_wrappers();
    test_length(argv[1]);
    test_file_name(argv[1]);
    return check_done();
}
