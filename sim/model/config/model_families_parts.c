/* Models that are said part by part: `generic`, whose keys have one name each, and any model_type without a row, whose keys are read
 * by their meaning. */
#include "sim/model/config/model_family.h"

/* A mixer and an FFN, as other keys say; or one of them alone. */
#define LAYER_WORDS \
    {"full_attention", '\0', -1, 0, SPW_FFN_COUNTED}, {"sliding_attention", '\0', -1, 0, SPW_FFN_COUNTED}, \
        {"chunked_attention", '\0', -1, 0, SPW_FFN_COUNTED}, \
        {"indexed_attention", '\0', -1, 0, SPW_FFN_COUNTED}, \
        {"mamba2", '\0', -1, SPW_KIND_MAMBA2, SPW_FFN_COUNTED}, \
        {"gated_delta_net", '\0', -1, SPW_KIND_GATED_DELTA, SPW_FFN_COUNTED}, \
        {"kimi_delta", '\0', -1, SPW_KIND_KIMI_DELTA, SPW_FFN_COUNTED}, \
        {"lightning_attention", '\0', -1, SPW_KIND_LIGHTNING, SPW_FFN_COUNTED}, \
        {"conv", '\0', -1, SPW_KIND_CONVOLUTION, SPW_FFN_COUNTED}, \
        {"sliding_apart", '\0', -1, SPW_KIND_SLIDING, SPW_FFN_COUNTED}, \
        {"grouped_window", '\0', -1, SPW_KIND_WINDOW, SPW_FFN_COUNTED}, \
        {"compressed_sparse_attention", '\0', -1, SPW_KIND_COMPRESSED, SPW_FFN_COUNTED}, \
        {"heavily_compressed_attention", '\0', -1, SPW_KIND_HEAVILY, SPW_FFN_COUNTED}, \
        {"block_sparse_attention", '\0', -1, SPW_KIND_BLOCKS, SPW_FFN_COUNTED}, \
        {"attention_alone", '\0', -1, 0, SPW_FFN_NONE}, \
        {"mamba2_alone", '\0', -1, SPW_KIND_MAMBA2, SPW_FFN_NONE}, \
        {"gated_delta_net_alone", '\0', -1, SPW_KIND_GATED_DELTA, SPW_FFN_NONE}, \
        {"experts_alone", '\0', -1, SPW_KIND_NONE, SPW_FFN_EXPERTS}, { \
        "ffn_alone", '\0', -1, SPW_KIND_NONE, SPW_FFN_DENSE \
    }

const spw_layer_word spw_generic_layers[] = {LAYER_WORDS, {.word = NULL}};
/* Other families' words for them. */
const spw_layer_word spw_meant_layers[] = {LAYER_WORDS,
                                           {"attention", '*', -1, 0, SPW_FFN_COUNTED},
                                           {"deepseek_sparse_attention", '\0', -1, 0, SPW_FFN_COUNTED},
                                           {"global_attention", '\0', -1, 0, SPW_FFN_COUNTED},
                                           {"local_attention", '\0', -1, 0, SPW_FFN_COUNTED},
                                           {"hybrid", '\0', -1, 0, SPW_FFN_COUNTED},
                                           {"hybrid_sliding", '\0', -1, 0, SPW_FFN_COUNTED},
                                           {"linear_attention", '\0', -1, SPW_MIXER_BY_KEYS, SPW_FFN_COUNTED},
                                           {"mamba", 'M', -1, SPW_MIXER_BY_KEYS, SPW_FFN_COUNTED},
                                           {"minimax_m3_sparse", '\0', -1, SPW_KIND_BLOCKS, SPW_FFN_COUNTED},
                                           {"moe", 'E', -1, SPW_KIND_NONE, SPW_FFN_EXPERTS},
                                           {"mlp", '-', -1, SPW_KIND_NONE, SPW_FFN_DENSE},
                                           {.word = NULL}};

#define PARTS \
    (SPW_SHARED_COUNT | SPW_SHARED_WIDTH | SPW_BY_FIRST | SPW_BY_FREQUENCY | SPW_BY_STEP | SPW_BY_LAST | \
     SPW_SCORING | SPW_LATENT | SPW_STREAMS | SPW_RESIDUALS | SPW_ZERO_EXPERTS | SPW_MATRICES | \
     SPW_INDEXER | SPW_HASH | SPW_WINDOW | SPW_VALUE_DIM | SPW_LISTED | SPW_TABLES | SPW_LOOP | \
     SPW_HEAD_WIDTH)
#define KINDS \
    .kinds = {[SPW_KIND_MAMBA2] = &spw_mamba2_nemotron, [SPW_KIND_GATED_DELTA] = &spw_gated_delta, \
              [SPW_KIND_NONE] = &spw_no_mixer,          [SPW_KIND_KIMI_DELTA] = &spw_kimi_delta, \
              [SPW_KIND_LIGHTNING] = &spw_lightning,    [SPW_KIND_CONVOLUTION] = &spw_short_convolution, \
              [SPW_KIND_SLIDING] = &spw_sliding,        [SPW_KIND_WINDOW] = &spw_window_grouped, \
              [SPW_KIND_COMPRESSED] = &spw_compressed,  [SPW_KIND_HEAVILY] = &spw_heavily_compressed, \
              [SPW_KIND_BLOCKS] = &spw_block_sparse}
#define OF(field) offsetof(spw_model, field)

const spw_family spw_generic_family = {.model_type = "generic",
                                       .experts = {"num_experts", "n_routed_experts", "num_local_experts"},
                                       .top_k = {"num_experts_per_tok", "experts_per_token"},
                                       .expert_ffn = {"moe_intermediate_size"},
                                       .parts = PARTS,
                                       .shared = SPW_SHARED_BY_BOTH,
                                       .flags = {{"latent_moe_use_norm", OF(latent_norm)},
                                                 {"mla_use_output_gate", OF(output_gate)},
                                                 {"use_qk_norm", OF(qk_norm)},
                                                 {"qkv_bias", OF(attention_bias)},
                                                 {"attn_output_gate", OF(query_gate)},
                                                 {"attention_sinks", OF(attention_sinks)},
                                                 {"use_routing_bias", OF(selection_bias)},
                                                 {"router_bias", OF(router_bias)},
                                                 {"expert_bias", OF(expert_bias)},
                                                 {"shared_expert_gate", OF(shared_gate)},
                                                 {"norm_bias", OF(norm_bias)},
                                                 {"lm_head_bias", OF(head_bias)}},
                                       .layer_list = {"layer_types"},
                                       .layer_words = spw_generic_layers,
                                       KINDS,
                                       .any_attention = true,
                                       .qk_norm_per_head = true};

const spw_family spw_meant_family = {
    .model_type = "mixture of experts",
    .experts = {"num_experts", "n_routed_experts", "num_local_experts"},
    .top_k = {"num_experts_per_tok", "experts_per_token"},
    .expert_ffn = {"moe_intermediate_size", "intermediate_size"},
    .spelled = {{"n_groups", "mamba_n_groups"},
                {"mamba_num_heads", "mamba_n_heads"},
                {"mamba_head_dim", "mamba_d_head"},
                {"ssm_state_size", "mamba_d_state"},
                {"conv_kernel", "mamba_d_conv"},
                {"linear_attn_config.num_heads", "linear_num_heads"},
                {"linear_attn_config.head_dim", "linear_head_dim"},
                {"linear_attn_config.short_conv_kernel_size", "short_conv_kernel_size"},
                {"linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"},
                {"dense_intermediate_size", "prefix_dense_intermediate_size"},
                {"hc_mult", "hc_count"}},
    .parts = PARTS | SPW_DENSE_WIDTH | SPW_INTERVAL | SPW_FROM_LIST,
    .shared = SPW_SHARED_BY_BOTH,
    .flags = {{"latent_moe_use_norm", OF(latent_norm)},
              {"mla_use_output_gate", OF(output_gate)},
              {"use_qk_norm", OF(qk_norm)},
              {"qk_norm", OF(qk_norm)},
              {"qk_layernorm", OF(qk_norm)},
              {"qkv_bias", OF(attention_bias)},
              {"use_qkv_bias", OF(attention_bias)},
              {"attn_output_gate", OF(query_gate)},
              {"gated_attention", OF(query_gate)},
              {"use_sink_attention", OF(attention_sinks)},
              {"enable_sink_attention", OF(attention_sinks)},
              {"use_routing_bias", OF(selection_bias)},
              {"use_expert_bias", OF(selection_bias)},
              {"moe_router_enable_expert_bias", OF(selection_bias)},
              {"router_bias", OF(router_bias)},
              {"use_shared_expert_gate", OF(shared_gate)},
              {"lm_head_bias", OF(head_bias)}},
    .layer_list = {"layer_types", "layers_block_type", "hybrid_override_pattern"},
    .quiet = {"full_attention_layers", "num_hybrid_layers_block", "group_norm_size", "linear_attention_type",
              "no_kda_lora"},
    .layer_words = spw_meant_layers,
    KINDS,
    .any_attention = true,
    .by_meaning = true,
    .qk_norm_per_head = true};
