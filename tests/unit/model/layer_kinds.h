/* Small models whose layers are of several kinds. */
#ifndef SPW_TESTS_LAYER_KINDS_H
#define SPW_TESTS_LAYER_KINDS_H

#include "sim/model/model.h"

#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static inline bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b) + 1e-9; }

static inline void read(const char *text, spw_model *out) {
    CHECK_OK(spw_model_parse("config.json", text, strlen(text), out));
}

static inline void refuse(const char *text, const char *want) {
    spw_model m;
    CHECK(spw_model_parse("config.json", text, strlen(text), &m) == SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), want) != NULL);
    if (strstr(spw_last_error(), want) == NULL) fprintf(stderr, "  %s\n", spw_last_error());
}

/* Hidden 8, 4 experts of 6 columns with rows of 4, 2 a token, a shared one of 10, Mamba-2 of 2 heads of 4, 1 group, state 3. */
#define NEMOTRON(list) \
    "{\"model_type\": \"nemotron_h\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 5, \"n_routed_experts\": 4, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"moe_latent_size\": 4, " \
    "\"moe_shared_expert_intermediate_size\": 10, \"mamba_num_heads\": 2, \"mamba_head_dim\": 4, " \
    "\"n_groups\": 1, " \
    "\"ssm_state_size\": 3, \"conv_kernel\": 4, " list "}"
#define DEEPSEEK(rest) \
    "{\"model_type\": \"deepseek_v4\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_hidden_layers\": 3, " \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 6, \"q_lora_rank\": 5, " \
    "\"o_groups\": 2, " \
    "\"o_lora_rank\": 3, \"index_n_heads\": 2, \"index_head_dim\": 4, \"index_topk\": 2, " \
    "\"sliding_window\": 3, " \
    "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, " \
    "\"n_shared_experts\": 1, " \
    "\"hc_mult\": 2, " rest "}"

/* --- Latent experts: rows of that width travel --- */

#define KIMI \
    "{\"model_type\": \"kimi_linear\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_hidden_layers\": 3, " \
    "\"num_attention_heads\": 2, \"q_lora_rank\": 3, \"kv_lora_rank\": 4, \"qk_nope_head_dim\": 4, " \
    "\"qk_rope_head_dim\": 2, " \
    "\"v_head_dim\": 4, \"num_experts\": 4, \"num_experts_per_token\": 2, \"moe_intermediate_size\": 6, " \
    "\"num_shared_experts\": 1, \"intermediate_size\": 12, \"first_k_dense_replace\": 1, " \
    "\"mla_use_output_gate\": true, " \
    "\"latent_moe_use_norm\": true, \"routed_expert_hidden_size\": 4, \"attn_res_block_size\": 2, " \
    "\"linear_attn_config\": {\"full_attn_layers\": [2], \"kda_layers\": [1, 3], \"num_heads\": 2, " \
    "\"head_dim\": 4, " \
    "\"short_conv_kernel_size\": 4, \"use_full_rank_gate\": true}}"

#endif
