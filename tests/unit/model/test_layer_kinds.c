/* Models whose layers are of several kinds: parameters by pencil and paper, and keys that a query sees by counting. */
#include "sim/model/model.h"
#include "sim/model/token_work.h"

#include "tests/unit/check.h"
#include "tests/unit/model/layer_kinds.h"

#include <math.h>

/* --- Pencil and paper --- */

static void test_halves(void) {
    spw_model m;
    read(NEMOTRON("\"hybrid_override_pattern\": \"ME*-E\""), &m);
    const spw_parameters p = spw_model_parameters(&m);
    CHECK(m.layers == 5 && m.moe_layers == 2 && m.bare_layers == 2 && spw_model_dense_layers(&m) == 1);
    CHECK(m.mixer[1].layers == 1 && m.mixer[2].layers == 3 && m.other_layers == 4 && m.half_layers);
    CHECK(p.expert == 2 * 4 * 6); /* two matrices between rows of 4 */
    CHECK(p.shared_per_layer == 2 * 8 * 10 && p.dense_ffn_per_layer == 2 * 8 * 5);
    CHECK(p.latent_per_layer == 2 * 8 * 4 && p.router_per_layer == 4 * 8 + 4 + 2 * 8 * 4);
    CHECK(p.attention_per_layer == 8 * 8 + 2 * 8 * 4 + 8 * 8);
    const uint64_t wide = 8,
                   convolved =
                       8 +
                       2 * 3; /* z, x, B, C, a step; convolution with a bias; three a head; norm; output */
    CHECK(p.mixer_per_layer[1] == 8 * (wide + convolved + 2) + convolved * 5 + 3 * 2 + wide + wide * 8);
    CHECK(p.mixer_per_layer[2] == 0);
    CHECK(m.mixer[1].state == wide * 3 + convolved * 4);
    CHECK(p.total == 2 * 16 * 8 + 8 + 5 * 8 + p.mixer_per_layer[1] + p.attention_per_layer + 80 +
                         2 * (160 + p.router_per_layer + 4 * 48));
    CHECK(p.active == p.total - 2 * 2 * 48);
    /* a layer of experts, as every half, has no mixer beside them; without experts the wider of Mamba and attention is the most */
    const uint64_t mamba = p.mixer_per_layer[1];
    CHECK(spw_model_mixer_most(&m, true) == 0);
    CHECK(spw_model_mixer_most(&m, false) == (mamba > p.attention_per_layer ? mamba : p.attention_per_layer));
    /* the same layers by words, under both names of the list */
    spw_model words;
    read(NEMOTRON("\"layers_block_type\": [\"mamba\", \"moe\", \"attention\", \"mlp\", \"moe\"]"), &words);
    CHECK(spw_model_parameters(&words).total == p.total && words.layers == 5);
    read(NEMOTRON("\"layer_types\": [\"linear_attention\", \"moe\", \"full_attention\", \"mlp\", \"moe\"]"),
         &words);
    CHECK(spw_model_parameters(&words).total == p.total);
    refuse(NEMOTRON("\"hybrid_override_pattern\": \"ME*xE\""), "has the entry x at layer 3");
    refuse(NEMOTRON("\"hybrid_override_pattern\": \"MEM\", \"layers_block_type\": [\"mamba\", \"moe\", "
                    "\"attention\"]"),
           "differ at layer 2");
    refuse(NEMOTRON("\"hybrid_override_pattern\": \"ME\", \"num_hidden_layers\": 3"),
           "must have one a layer, 3");
    refuse(NEMOTRON("\"mamba_hidden_act\": \"silu\""), "key 'num_hidden_layers' is missing");
}

static void test_compressed(void) {
    spw_model m;
    read(DEEPSEEK("\"compress_ratios\": [0, 4, 128], \"num_hash_layers\": 1"), &m);
    const spw_parameters p = spw_model_parameters(&m);
    /* q through 5, one head of 6, an output of 2 groups of 12 through 3 each; norms; a sink a head */
    const uint64_t sliding = 8 * 5 + 5 * 24 + 8 * 6 + 2 * 12 * 3 + 6 * 8 + 5 + 6 + 4;
    const uint64_t sparse = sliding + 2 * 8 * 12 + 4 * 12 + 6 + 2 * 8 * 8 + 4 * 8 + 4 + 5 * 8 + 8 * 2;
    const uint64_t heavy = sliding + 2 * 8 * 6 + 128 * 6 + 6;
    CHECK(p.attention_per_layer == sliding && p.mixer_per_layer[1] == sparse &&
          p.mixer_per_layer[2] == heavy);
    CHECK(p.mixers == sliding + sparse + heavy && p.mixer_most == heavy);
    CHECK(p.norms_per_layer ==
          2 * 8 + 2 * (8 * 16 + 8 + 3)); /* mixing of 2 streams: (2 + 2) 2 numbers of 16 */
    CHECK(p.final_norm == 8 + 2 * 16 + 2 + 1);
    CHECK(m.hash_layers == 1 && spw_model_carried(&m) == 16);
    /* layers by the token's id have no bias */
    CHECK(p.total == 2 * 16 * 8 + p.final_norm + p.mixers +
                         3 * (p.norms_per_layer + 3 * 8 * 6 + 4 * 8 + 4 + 4 * 3 * 8 * 6) - 4);
    spw_model other;
    read(DEEPSEEK("\"layer_types\": [\"sliding_attention\", \"compressed_sparse_attention\", "
                  "\"heavily_compressed_attention\"], \"mlp_layer_types\": [\"hash_moe\", \"moe\", \"moe\"]"),
         &other);
    CHECK(spw_model_parameters(&other).total == p.total);
    refuse(DEEPSEEK("\"compress_ratios\": [0, 8, 128]"), "has the entry 8 at layer 1");
    refuse(DEEPSEEK("\"compress_ratios\": [0, 4, 128], \"mlp_layer_types\": [\"moe\", \"moe\", \"moe\"], "
                    "\"num_hash_layers\": 1"),
           "they must agree");
}

/* One matrix of Kimi K3's experts in its published file: 3072 x 1792 bytes of two elements, 3072 x 112 of scale. Blocks of FP8 have a
 * scale of fp32 each. */
static void test_storage(void) {
    spw_model m;
    read("{\"model_type\": \"mixtral\", \"num_hidden_layers\": 1, \"hidden_size\": 3584, \"vocab_size\": 16, "
         "\"num_attention_heads\": 2, \"num_local_experts\": 1, \"num_experts_per_tok\": 1, "
         "\"intermediate_size\": 3072, "
         "\"quantization_config\": {\"format\": \"mxfp4-pack-quantized\", \"config_groups\": {\"group_0\": "
         "{\"weights\": "
         "{\"group_size\": 32}}}}}",
         &m);
    CHECK(m.stored_bits == 4 && spw_model_stored_experts(&m) == 3 * (3072 * 1792 + 3072 * 112));
    read("{\"model_type\": \"mixtral\", \"num_hidden_layers\": 1, \"hidden_size\": 256, \"vocab_size\": 16, "
         "\"num_attention_heads\": 2, \"num_local_experts\": 2, \"num_experts_per_tok\": 1, "
         "\"intermediate_size\": 128, "
         "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}}",
         &m);
    CHECK(m.stored_bits == 8 && spw_model_stored_experts(&m) == 2 * 3 * (256 * 128 + 2 * 4));
    read(DEEPSEEK("\"compress_ratios\": [0, 4, 128], \"expert_dtype\": \"fp4\", \"quantization_config\": "
                  "{\"quant_method\": "
                  "\"fp8\", \"weight_block_size\": [128, 128]}"),
         &m);
    CHECK(m.stored_bits == 4 && m.stored_group == 32);
    read(DEEPSEEK("\"compress_ratios\": [0, 4, 128]"), &m);
    CHECK(m.stored_bits == 0 && spw_model_stored_experts(&m) == 0);
}

/* A generic model says all of it by keys: the same layers as Nemotron's, but for its selection bias, which 'topk_method' adds. */
#define GENERIC(rest) \
    "{\"model_type\": \"generic\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 5, \"num_experts\": 4, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"num_hidden_layers\": 5, " rest "}"
#define MAMBA \
    "\"mamba_num_heads\": 2, \"mamba_head_dim\": 4, \"n_groups\": 1, \"ssm_state_size\": 3, " \
    "\"conv_kernel\": 4, "

static void test_generic(void) {
    spw_model m, nemotron, plain;
    read(NEMOTRON("\"hybrid_override_pattern\": \"ME*-E\""), &nemotron);
    read(GENERIC(MAMBA
                 "\"layer_types\": [\"mamba2_alone\", \"experts_alone\", \"attention_alone\", \"ffn_alone\", "
                 "\"experts_alone\"], \"moe_latent_size\": 4, \"expert_matrices\": 2, \"ffn_matrices\": 2, "
                 "\"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\""),
         &m);
    const spw_parameters p = spw_model_parameters(&m), n = spw_model_parameters(&nemotron);
    /* a prediction is a mixer and an FFN, of which each has its norm: attention 3 x 8 x 8, norms 2 x 8; 2 x 8 x 8 that joins, 3 norms */
    CHECK(spw_mtp_parameters_of(&nemotron).rest ==
          192 + 16 + n.shared_per_layer + n.router_per_layer + 128 + 24);
    CHECK(m.half_layers && m.bare_layers == 2 && m.moe_layers == 2);
    CHECK(p.mixers == n.mixers && p.routed_per_layer == n.routed_per_layer &&
          p.router_per_layer == n.router_per_layer);
    CHECK(p.dense_ffn_per_layer == n.dense_ffn_per_layer);
    CHECK(p.total == n.total - 2 * n.shared_per_layer + 5 * 8); /* two norms a layer here */
    read(GENERIC("\"n_shared_experts\": 0"), &plain);
    read(GENERIC(MAMBA
                 "\"layer_types\": [\"mamba2\", \"full_attention\", \"mamba2\", \"mamba2\", \"mamba2\"], "
                 "\"hc_mult\": 2"),
         &m);
    CHECK(!m.half_layers && m.mixer[1].layers == 4 && m.moe_layers == 5 && spw_model_carried(&m) == 16);
    const uint64_t streams = 5 * 2 * (8 * 16 + 8 + 3) + 2 * 16 + 3;
    CHECK(spw_model_parameters(&m).total ==
          spw_model_parameters(&plain).total + streams + 4 * (n.mixer_per_layer[1] - n.attention_per_layer));
    refuse(GENERIC("\"layer_types\": [\"mamba2\", \"mamba2\", \"mamba2\", \"mamba2\", \"mamba2\"]"),
           "key 'mamba_num_heads' is missing");
    refuse(GENERIC("\"layer_types\": [\"rwkv\", \"mamba2\", \"mamba2\", \"mamba2\", \"mamba2\"]"),
           "generic models have one of");
    refuse(GENERIC("\"expert_matrices\": 4"), "must be a whole number in [2, 3]");
}

/* --- Keys that a query sees, one by one --- */

static void test_keys(void) {
    const spw_mixer kinds[] = {{.window = 3},
                               {.window = 128},
                               {.every = 1, .most = 7},
                               {.window = 3, .every = 4, .most = 2},
                               {.window = 5, .every = 128},
                               {.every = 4}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t length = 1; length < 600; length += 1 + length / 7) {
            double sum = 0.0;
            for (size_t i = 1; i <= length; i++) {
                const size_t near_keys = kinds[k].window < i ? kinds[k].window : i;
                size_t joined = kinds[k].every > 0 ? i / kinds[k].every : 0;
                if (kinds[k].most > 0 && joined > kinds[k].most) joined = kinds[k].most;
                sum += (double)(near_keys + joined);
            }
            CHECK(near(spw_mixer_keys(&kinds[k], length), sum / (double)length));
        }
    }
}

static void test_scores(void) {
    spw_model m;
    read(DEEPSEEK("\"compress_ratios\": [0, 4, 128]"), &m);
    double flops =
        0.0; /* of 16 tokens: 4 heads, keys and values of 6; an indexer of 8 over the joined keys */
    for (size_t i = 1; i <= 16; i++) {
        const double near_keys = i < 3 ? (double)i : 3.0, joined = floor((double)i / 4.0),
                     chosen = joined < 2 ? joined : 2.0;
        flops += 2.0 * 4 * 12 * (near_keys + near_keys + chosen + near_keys + 0.0) + 2.0 * joined * 8;
    }
    CHECK(near(spw_token_work_of(&m, 16).scores, flops / 16.0));
}

/* --- Latent experts: rows of that width travel --- */

static void test_kimi(void) {
    spw_model m;
    read(KIMI, &m);
    const spw_parameters p = spw_model_parameters(&m);
    CHECK(p.latent_per_layer == 8 * 4 + 4 + 4 * 8 && p.expert == 3 * 4 * 6);
    CHECK(p.norms_per_layer == 2 * 8 + 4 * 8 && p.final_norm == 8 + 2 * 8);
    /* a gate as wide as the output; Kimi Delta Attention's of one matrix in place of two through a head's width */
    const uint64_t mla = 8 * 3 + 3 + 3 * 2 * 6 + 8 * 6 + 4 + 4 * 2 * 8 + 8 * 8;
    CHECK(p.attention_per_layer == mla + 8 * 8);
    CHECK(p.mixer_per_layer[1] == 5 * 8 * 8 + 8 * 4 + 4 * 8 + 8 * 2 + 3 * 8 * 4 + 8 + 2 + 4);
}

/* --- Tables of n-grams, joined keys that layers share, streams through a low rank --- */

static void test_tables(void) {
    spw_model m;
    read("{\"model_type\": \"deepseek_v41\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_hidden_layers\": "
         "4, \"num_attention_heads\": 4, "
         "\"head_dim\": 6, \"q_lora_rank\": 5, \"o_groups\": 2, \"o_lora_rank\": 3, \"index_n_heads\": 2, "
         "\"index_head_dim\": 4, "
         "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
         "\"n_shared_experts\": 1, \"hc_mult\": 2, "
         "\"sliding_window\": 3, \"compress_ratios\": [0, 2, 2, 1, 0], \"kv_source_layer_ids\": [1, 3], "
         "\"index_source_layer_ids\": [1, 2, 3], "
         "\"engram_layer_ids\": [1], \"engram_num_embeddings\": [100], \"engram_max_ngram_size\": 3, "
         "\"engram_n_heads\": 2, "
         "\"engram_head_dim\": 4}",
         &m);
    const uint64_t window = 8 * 5 + 5 * 24 + 8 * 6 + 12 * 3 * 2 + 6 * 8 + 4 + 5 + 6, chooses = 5 * 8 + 8 * 2,
                   joins = 8 * 6 + 6 * 4 + 6 + 4; /* of two tokens a gate as well */
    spw_parameters p = spw_model_parameters(&m);
    CHECK(p.mixers == 4 * window + 3 * chooses + 2 * joins + 8 * 6);
    CHECK(p.norms_per_layer == 2 * 8 + 2 * 16 * 8 + 2 * (8 + 3));
    CHECK(p.tables == 100 * 4 && p.final_norm == 8 + 16 * 24 + 2 * 16);
    CHECK(p.total ==
          p.mixers + 4 * (4 * 144 + 144 + 8 * 4 + 4 + p.norms_per_layer) + 2 * 128 + p.final_norm + 400);
    CHECK(p.active == p.total - p.tables - 4 * 2 * 144);
    CHECK(m.mixer[m.mixer_of[1]].every == 2 && m.mixer[m.mixer_of[3]].every == 1 && m.mixer_of[0] == 0);
    read("{\"model_type\": \"qwen4_exp_text\", \"hidden_size\": 8, \"vocab_size\": 16, "
         "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
         "\"num_key_value_heads\": 1, \"head_dim\": 4, \"full_attention_interval\": 2, "
         "\"linear_num_key_heads\": 1, "
         "\"linear_num_value_heads\": 2, \"linear_key_head_dim\": 3, \"linear_value_head_dim\": 3, "
         "\"linear_conv_kernel_dim\": 4, "
         "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
         "\"shared_expert_intermediate_size\": 10, "
         "\"hc_count\": 2, \"hc_lowrank\": 3, \"indexer_n_heads\": 2, \"indexer_head_dim\": 5, "
         "\"indexer_kv_heads\": 1, "
         "\"ple_layer_ids\": [1], \"ple_embed_dim\": 8, \"ple_conv_kernel_size\": 4, \"ngram_size\": 3, "
         "\"heads_per_ngram\": 2, "
         "\"ngram_vocab_size_base\": 50}",
         &m);
    p = spw_model_parameters(&m);
    CHECK(p.mixer_per_layer[0] == 8 * 16 + 2 * 8 * 4 + 8 * 8 + 8 + 8 * 15 + 10);
    CHECK(p.mixer_per_layer[1] == 8 * 18 + 8 * 4 + 6 * 8 + 12 * 4 + 4 + 3);
    CHECK(p.norms_per_layer == 2 * (16 + 16 * 5 + 3 * 16) && p.tables == 4 * 50 * 2);
    CHECK(p.final_norm == 8 + 16 * 6 + 16 + 8 * 24 + 7 * 16);
    refuse("{\"model_type\": \"longcat_flash\", \"hidden_size\": 24, \"vocab_size\": 10, \"num_layers\": 1, "
           "\"num_attention_heads\": 2, "
           "\"n_routed_experts\": 4, \"moe_topk\": 2, \"expert_ffn_hidden_size\": 6, \"ffn_hidden_size\": 5, "
           "\"kv_lora_rank\": 4, "
           "\"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, \"v_head_dim\": 4, \"ple_layer_ids\": [0]}",
           "key 'ngram_vocab_size_base' is missing");
}

/* A looped layer works in every pass: two of Inkling's four, three times. */
#define LOOP(passes) \
    "{\"model_type\": \"inkling2_loop_text\", \"hidden_size\": 8, \"vocab_size\": 16, " \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"swa_num_attention_heads\": 2, " \
    "\"swa_num_key_value_heads\": 1, \"swa_head_dim\": 4, " \
    "\"sliding_window_size\": 4, \"d_rel\": 2, \"rel_extent\": 4, \"conv_kernel_size\": 2, " \
    "\"n_routed_experts\": 4, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"loop_gate_rank\": 2, " \
    "\"loop_layer_index_start\": 1, " \
    "\"loop_layer_index_end\": 3, \"layer_types\": [\"hybrid_sliding\", \"hybrid_sliding\", " \
    "\"hybrid_sliding\", \"hybrid_sliding\"], " \
    "\"loop_num_passes\": " passes "}"

static void test_loops(void) {
    spw_model once, thrice;
    read(LOOP("1"), &once);
    read(LOOP("3"), &thrice);
    const spw_parameters p = spw_model_parameters(&once);
    CHECK(p.total == spw_model_parameters(&thrice).total);
    const spw_token_work a = spw_token_work_of(&once, 64), b = spw_token_work_of(&thrice, 64);
    const double layer =
        (double)(p.mixer_per_layer[3] + p.norms_per_layer + p.router_per_layer + 2 * p.expert);
    CHECK(near(b.weights - a.weights, 2 * 2 * 2 * layer));
    CHECK(near(b.scores, a.scores * 2)); /* 8 runs of 4 layers alike */
}

/* Hunyuan-Large: layers between those with keys and values of their own have queries and an output alone. By hand: of five layers of
 * hidden size 8 with two heads of 4 and one of keys and values, two are such at a distance of 3 between the others. */
#define TURNS(rest) \
    "{\"model_type\": \"hunyuan\", \"num_hidden_layers\": 5, \"hidden_size\": 8, \"vocab_size\": 50, " \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 6, \"num_experts\": 4, " \
    "\"moe_topk\": 1, \"num_shared_expert\": 1, \"use_qk_norm\": false" rest "}"
static void test_turns(void) {
    static const struct {
        const char *text;
        size_t without;
    } cases[] = {{TURNS(""), 0},
                 {TURNS(", \"cla_share_factor\": 3"), 0},
                 {TURNS(", \"cla_share_factor\": 3, \"use_cla\": false"), 0},
                 {TURNS(", \"use_cla\": true"), 0},
                 {TURNS(", \"cla_share_factor\": 2, \"use_cla\": true"), 2},
                 {TURNS(", \"cla_share_factor\": 3, \"use_cla\": true"), 3}};
    const uint64_t queries_and_output = 2 * 8 * 8, keys_and_values = 2 * 8 * 4, expert = 3 * 8 * 6;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_model m;
        read(cases[i].text, &m);
        const uint64_t layer = queries_and_output + keys_and_values + 5 * expert + 4 * 8 + 2 * 8;
        CHECK(spw_model_parameters(&m).total ==
              2 * 50 * 8 + 8 + 5 * layer - cases[i].without * keys_and_values);
        CHECK(m.other_layers == cases[i].without && m.mixer_of[0] == 0);
    }
}

/* Work of a token with the head's table of its own and with the embedding's: the same, and by hand. An embedding is looked up, which is no
 * product; the head is one, whosever table it has. */
static void test_work_of_tables(void) {
    static const char *texts[] = {
        "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 3, \"hidden_size\": 8, \"vocab_size\": 50, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 6, "
        "\"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"tie_word_embeddings\": false}",
        "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 3, \"hidden_size\": 8, \"vocab_size\": 50, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 6, "
        "\"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"tie_word_embeddings\": true}"};
    /* queries, keys, values, output; two experts of three matrices; the router; two norms */
    const double layer = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8 + 2 * 3 * 8 * 6 + 8 * 5 + 2 * 8;
    for (int tied = 0; tied < 2; tied++) {
        spw_model m;
        read(texts[tied], &m);
        CHECK(m.tied_embeddings == (tied == 1));
        CHECK(near(spw_token_work_of(&m, 16).weights, 2 * (3 * layer + 50 * 8 + 8)));
    }
}

int main(void) {
    test_halves();
    test_compressed();
    test_kimi();
    test_generic();
    test_storage();
    test_keys();
    test_scores();
    test_tables();
    test_loops();
    test_turns();
    test_work_of_tables();
    return check_done();
}
