/* What a config.json says twice: ties in a file and in its text_config, numbers under two names, lists beside counts; and
 * keys that are kept from being read. */
#include "sim/model/model.h"

#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

static spw_status parse(const char *text, spw_model *model) {
    return spw_model_parse("config.json", text, strlen(text), model);
}

static void refuse(const char *text, const char *message) {
    spw_model model;
    CHECK_STATUS(parse(text, &model), SPW_ECONFIG);
    const bool same = strcmp(spw_last_error(), message) == 0;
    CHECK(same);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), message);
}

static bool doubts(const spw_model *m, const char *words) {
    for (size_t i = 0; i < SPW_MODEL_DOUBTS; i++)
        if (strstr(m->doubt[i], words) != NULL) return true;
    return false;
}

#define WHOLE_WIDTH \
    "\"num_hidden_layers\": 4, \"hidden_size\": 8, \"vocab_size\": 10, \"num_attention_heads\": 2, " \
    "\"head_dim\": 4, \"intermediate_size\": 6"
#define SIZES WHOLE_WIDTH ", \"moe_intermediate_size\": 5"
#define QWEN "\"num_experts\": 4, \"num_experts_per_tok\": 2, " SIZES

/* --- Ties --- */

/* Whether transformers 5.24 ties the whole model: [outer absent, false, true][text absent, false, true]. Read off the classes:
 * configuration_*.py (defaults), get_expanded_tied_weights_keys and _tied_weights_keys; not off our table. */
static const struct {
    const char *outer, *text, *rest;
    bool tied[3][3];
} classes[] = {
    /* Qwen3VLMoeConfig: False; its text class's default, True, is not asked */
    {"qwen3_vl_moe", "qwen3_vl_moe_text", QWEN, {{0, 0, 0}, {0, 0, 0}, {1, 1, 1}}},
    {"qwen3_5_moe",
     "qwen3_5_moe_text",
     QWEN ", \"linear_num_key_heads\": 1, \"linear_num_value_heads\": 1, \"linear_key_head_dim\": 2, "
          "\"linear_value_head_dim\": 2, \"linear_conv_kernel_dim\": 2",
     {{0, 0, 0}, {0, 0, 0}, {1, 1, 1}}},
    /* Llama4ForConditionalGeneration has no tied weights; its Llama4ForCausalLM ties by Llama4TextConfig */
    {"llama4",
     "llama4_text",
     "\"num_local_experts\": 4, \"num_experts_per_tok\": 1, \"intermediate_size_mlp\": 6, "
     "\"num_hidden_layers\": 4, \"hidden_size\": 8, \"vocab_size\": 10, \"num_attention_heads\": 2, "
     "\"intermediate_size\": 6",
     {{0, 0, 1}, {0, 0, 1}, {0, 0, 1}}},
    /* Gemma4Config: True */
    {"gemma4",
     "gemma4_text",
     "\"num_experts\": 4, \"top_k_experts\": 2, " SIZES
     ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
     "\"sliding_attention\"]",
     {{1, 1, 1}, {0, 0, 0}, {1, 1, 1}}},
    /* InternVLConfig: True */
    {"internvl", "qwen3_moe", QWEN, {{1, 1, 1}, {0, 0, 0}, {1, 1, 1}}},
    /* Glm4vMoeConfig forwards its text's True */
    {"glm4v_moe",
     "glm4v_moe_text",
     "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_shared_experts\": 1, " SIZES,
     {{0, 0, 1}, {0, 0, 1}, {1, 1, 1}}},
};

static void test_ties(void) {
    static const char *const says[] = {"", "\"tie_word_embeddings\": false, ",
                                       "\"tie_word_embeddings\": true, "};
    size_t right = 0;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        for (size_t outer = 0; outer < 3; outer++) {
            for (size_t text = 0; text < 3; text++) {
                char file[1024];
                spw_model m;
                (void)snprintf(file, sizeof file,
                               "{%s\"model_type\": \"%s\", \"text_config\": {%s\"model_type\": \"%s\", %s}}",
                               says[outer], classes[i].outer, says[text], classes[i].text, classes[i].rest);
                CHECK_OK(parse(file, &m));
                const bool want = classes[i].tied[outer][text];
                CHECK(m.tied_embeddings == want && (spw_model_parameters(&m).head == 0) == want);
                if (m.tied_embeddings != want) fprintf(stderr, "  %s\n", file);
                right += m.tied_embeddings == want;
            }
        }
    }
    CHECK(right == 54);
}

/* A word that does not count is said; of a class that nobody knows, two words that differ are an error. */
static void test_tie_words(void) {
    spw_model m;
#define WHOLE(type, outer, text) \
    "{\"model_type\": \"" type "\", \"tie_word_embeddings\": " outer \
    ", \"text_config\": {\"model_type\": \"qwen3_moe\", \"tie_word_embeddings\": " text ", " QWEN "}}"
    CHECK_OK(parse(WHOLE("internvl", "false", "true"), &m));
    CHECK(doubts(&m, "'tie_word_embeddings' of text_config is not read"));
    CHECK_OK(parse(WHOLE("internvl", "true", "true"), &m));
    CHECK(!doubts(&m, "tie_word_embeddings"));
    CHECK_OK(parse(WHOLE("some_vl", "true", "true"), &m));
    CHECK(m.tied_embeddings && doubts(&m, "only the language model"));
    refuse(WHOLE("some_vl", "false", "true"),
           "config.json: 'tie_word_embeddings' is false in the file and true in its 'text_config', and which "
           "of them counts is not known of this model_type; give both the right value");
    refuse(WHOLE("internvl", "3", "true"),
           "config.json: 'tie_word_embeddings' is 3; it must be true or false");
    /* Qwen-Omni's language model is a mapping deeper */
    CHECK_OK(parse(
        "{\"model_type\": \"qwen3_omni_moe\", \"thinker_config\": {\"model_type\": "
        "\"qwen3_omni_moe_thinker\", \"text_config\": {\"model_type\": \"qwen3_omni_moe_text\", " QWEN "}}}",
        &m));
    CHECK(!m.tied_embeddings && m.experts == 4 && doubts(&m, "only the language model"));
}

/* --- Numbers --- */

/* Two names of one number in a file, with another value each; and the same with one value, which is read. */
static void test_names(void) {
    static const struct {
        const char *type, *rest, *one, *other;
    } pairs[] = {
        {"gpt_oss", "\"num_experts_per_tok\": 2, " WHOLE_WIDTH, "num_local_experts", "num_experts"},
        {"minimax_m2", "\"num_experts_per_tok\": 2, " WHOLE_WIDTH, "num_local_experts", "num_experts"},
        {"olmoe", "\"num_experts_per_tok\": 2, " WHOLE_WIDTH, "num_experts", "num_local_experts"},
        {"qwen3_moe", "\"num_experts_per_tok\": 2, " SIZES, "num_experts", "num_local_experts"},
        {"glm4_moe", "\"n_shared_experts\": 1, \"num_experts_per_tok\": 2, " SIZES, "n_routed_experts",
         "num_local_experts"},
        {"generic", "\"num_experts_per_tok\": 2, " SIZES, "n_routed_experts", "num_experts"},
        {"gpt_oss", "\"num_local_experts\": 8, " WHOLE_WIDTH, "num_experts_per_tok", "experts_per_token"},
        {"hunyuan_v1_moe", "\"num_experts\": 8, " SIZES, "moe_topk", "num_experts_per_tok"},
        {"afmoe", "\"num_experts\": 8, \"num_experts_per_tok\": 2, " SIZES, "n_group", "num_expert_groups"},
        {"afmoe", "\"num_experts\": 8, \"num_experts_per_tok\": 2, " SIZES, "first_k_dense_replace",
         "num_dense_layers"},
        {"qwen3_moe", QWEN, "num_nextn_predict_layers", "mtp_num_layers"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char file[1024], want[160];
        spw_model m;
        for (int second = 2; second <= 3; second++) {
            (void)snprintf(file, sizeof file, "{\"model_type\": \"%s\", %s, \"%s\": 2, \"%s\": %d}",
                           pairs[i].type, pairs[i].rest, pairs[i].one, pairs[i].other, second);
            const spw_status status = parse(file, &m);
            CHECK_STATUS(status, second == 2 ? SPW_OK : SPW_ECONFIG);
            if (status == SPW_OK) continue;
            for (int swap = 0; swap < 2; swap++) {
                (void)snprintf(want, sizeof want, "'%s' is %d", swap ? pairs[i].other : pairs[i].one,
                               swap ? 3 : 2);
                CHECK(strstr(spw_last_error(), want) != NULL);
            }
        }
    }
    refuse(
        "{\"model_type\": \"qwen3_moe\", \"num_local_experts\": 8, " QWEN "}",
        "config.json: 'num_experts' is 4 and 'num_local_experts' is 8; both are the number of experts in a "
        "layer: keep the right one, or write the same value in both");
}

static void test_implied(void) {
    spw_model m;
#define LATENT \
    "{\"model_type\": \"deepseek_v3\", " SIZES ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, " \
    "\"kv_lora_rank\": 3, \"qk_nope_head_dim\": 2, \"qk_rope_head_dim\": 1, \"v_head_dim\": 2"
    CHECK_OK(parse(LATENT ", \"qk_head_dim\": 3}", &m));
    refuse(
        LATENT ", \"qk_head_dim\": 4}",
        "config.json: 'qk_nope_head_dim' 2 + 'qk_rope_head_dim' 1 is 3, but 'qk_head_dim' 4 is 4; they must "
        "be equal: change or leave out the wrong one");
    refuse(
        LATENT ", \"qk_head_dim\": 2}",
        "config.json: 'qk_nope_head_dim' 2 + 'qk_rope_head_dim' 1 is 3, but 'qk_head_dim' 2 is 2; they must "
        "be equal: change or leave out the wrong one");
    refuse("{\"model_type\": \"qwen3_vl_moe\", \"hidden_size\": 16, \"text_config\": {" QWEN "}}",
           "config.json: 'hidden_size' is 16 in the file and 8 in its 'text_config'; keep the right one, or "
           "write the same value in both");
}

/* --- Lists --- */

static void test_lists(void) {
    spw_model m;
#define DELTA \
    "{\"model_type\": \"qwen3_next\", " QWEN \
    ", \"linear_num_key_heads\": 1, \"linear_num_value_heads\": 1, " \
    "\"linear_key_head_dim\": 2, \"linear_value_head_dim\": 2, \"linear_conv_kernel_dim\": 2, " \
    "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\", \"full_attention\"]"
    CHECK_OK(parse(LATENT ", \"first_k_dense_replace\": 1, \"mlp_layer_types\": [\"dense\", \"sparse\", "
                          "\"sparse\", \"sparse\"]}",
                   &m));
    CHECK(m.moe_layers == 3);
    refuse(
        LATENT ", \"first_k_dense_replace\": 2, \"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\", "
               "\"sparse\"]}",
        "config.json: 'mlp_layer_types' says that layer 1 has experts, but by 'first_k_dense_replace' (2) it "
        "is dense; they must agree: leave out the wrong one");
    /* the file does not state a count: the list alone says */
    CHECK_OK(parse(LATENT ", \"mlp_layer_types\": [\"dense\", \"dense\", \"sparse\", \"sparse\"]}", &m));
    CHECK(m.moe_layers == 2);
    CHECK_OK(parse(DELTA ", \"full_attention_interval\": 2}", &m));
    refuse(
        DELTA ", \"full_attention_interval\": 4}",
        "config.json: 'layer_types' says that layer 1 has attention, but by 'full_attention_interval' (4) it "
        "has a mixer of another kind; they must agree: leave out the wrong one");
}

/* --- Keys that are not read --- */

static void test_silenced(void) {
    spw_model m;
    CHECK_OK(parse("{\"model_type\": \"qwen3_moe\", \"_source\": \"a page\", \"_name_or_path\": \"x\", "
                   "\"_attn_implementation_autoset\": true, " QWEN "}",
                   &m));
    CHECK(!doubts(&m, "not read"));
    CHECK_OK(parse("{\"model_type\": \"qwen3_moe\", \"_latent\": 3584, \"_gate\": true, " QWEN "}", &m));
    CHECK(doubts(&m,
                 "some keys are not read, as they begin with '_': _latent, _gate; if a layer has weights for "
                 "them, every figure leaves them out"));
    /* within a mapping, and in the file around text_config */
    CHECK_OK(parse("{\"model_type\": \"qwen3_vl_moe\", \"_outer\": 2, \"text_config\": {" QWEN
                   ", \"rope_scaling\": {\"_inner\": 1}}}",
                   &m));
    CHECK(doubts(&m, "_outer, rope_scaling._inner"));
}

/* A model_type without a row is read by its keys: as a family that has all of them, else part by part; what is neither is refused. */
static void test_unknown(void) {
    spw_model m;
    CHECK_OK(parse("{\"model_type\": \"qwen3_moe\", " QWEN "}", &m));
    const uint64_t want = spw_model_parameters(&m).total;
    CHECK_OK(parse("{\"model_type\": \"new_moe\", " QWEN ", \"rope_theta\": 1e4}", &m));
    CHECK(spw_model_parameters(&m).total == want && m.qk_norm);
    CHECK(strstr(m.doubt[0], "model_type 'new_moe' is not known: it is read as qwen3_moe") != NULL);
    /* other names of its numbers, and a switch that nothing knows: no norm of q and k is named */
    CHECK_OK(parse(
        "{\"model_type\": \"new_moe\", \"n_layer\": 2, \"d_model\": 4, \"vocab_size\": 10, \"n_heads\": 2, "
        "\"n_kv_heads\": 1, \"head_size\": 2, \"moe_num_experts\": 4, \"moe_top_k\": 2, "
        "\"moe_ffn_hidden_size\": 3, "
        "\"use_wonder\": true, \"moe_latent_size\": 2}",
        &m));
    CHECK(m.layers == 2 && m.hidden == 4 && m.kv_heads == 1 && m.experts == 4 && m.top_k == 2 &&
          m.expert_ffn == 3 && m.latent == 2);
    /* by hand: embedding and head, attention, 4 experts of rows of 2, two projections, router, norms */
    CHECK(spw_model_parameters(&m).total ==
          2 * 40 + 2 * (4 * 4 + 2 * 4 * 2 + 4 * 4 + 4 * 3 * 2 * 3 + 2 * 4 * 2 + 4 * 4 + 2 * 4) + 4);
    CHECK(strstr(m.doubt[0], "not counted is what these may add: use_wonder") != NULL);
    CHECK_STATUS(parse("{\"model_type\": \"new_moe\", " QWEN ", \"engram_heads\": 4}", &m), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "model_type 'new_moe' is unknown, and it cannot be read by its keys "
                                   "alone: key 'engram_heads' (4)") != NULL);
    CHECK_STATUS(parse("{\"model_type\": \"new_moe\", " QWEN ", \"index_n_heads\": 4}", &m), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "'index_n_heads' is of an indexer, but no layer has one") != NULL);
    /* a dense model is told so, whatever its model_type */
    CHECK_STATUS(parse("{\"model_type\": \"qwen3\", " WHOLE_WIDTH ", \"strange_width\": 4}", &m),
                 SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "config.json: a 'qwen3' without a key of experts") != NULL);
}

int main(void) {
    test_ties();
    test_tie_words();
    test_names();
    test_implied();
    test_lists();
    test_silenced();
    test_unknown();
    return check_done();
}
