/* Families whose layers are of several kinds: what an entry of their lists of layers says, and which weights each kind has
 * (model_mixer.c). Sources: transformers 5.24, src/transformers/models/<model_type>/modeling_*.py and configuration_*.py; of
 * deepseek_ref, minimax_m3 and step3p7 the published configurations, which have other names for the same. */
#include "sim/model/config/model_family.h"

#define ROUTED \
    .experts = {"n_routed_experts", "num_local_experts"}, .top_k = {"num_experts_per_tok"}, \
    .expert_ffn = {"moe_intermediate_size"}
#define QK_NORMS .qk_norm = true, .qk_norm_per_head = true

static const spw_layer_word nemotron_layers[] = {{"mamba", 'M', -1, 1, SPW_FFN_NONE},
                                                 {"linear_attention", '\0', -1, 1, SPW_FFN_NONE},
                                                 {"attention", '*', -1, 0, SPW_FFN_NONE},
                                                 {"full_attention", '\0', -1, 0, SPW_FFN_NONE},
                                                 {"moe", 'E', -1, 2, SPW_FFN_EXPERTS},
                                                 {"mlp", '-', -1, 2, SPW_FFN_DENSE},
                                                 {.word = NULL}};
static const spw_layer_word deepseek_layers[] = {
    {"sliding_attention", '\0', 0, 0, SPW_FFN_COUNTED},
    {"compressed_sparse_attention", '\0', 4, 1, SPW_FFN_COUNTED},
    {"heavily_compressed_attention", '\0', 128, 2, SPW_FFN_COUNTED},
    {.word = NULL}};
static const spw_layer_word qwen_layers[] = {{"full_attention", '\0', -1, 0, SPW_FFN_COUNTED},
                                             {"attention", '\0', -1, 0, SPW_FFN_COUNTED},
                                             {"qwen_sparse_attention", '\0', -1, 0, SPW_FFN_COUNTED},
                                             {"indexed_attention", '\0', -1, 0, SPW_FFN_COUNTED},
                                             {"linear_attention", '\0', -1, 1, SPW_FFN_COUNTED},
                                             {.word = NULL}};
static const spw_layer_word minimax_layers[] = {{"full_attention", '\0', 0, 0, SPW_FFN_COUNTED},
                                                {"minimax_m3_sparse", '\0', 1, 1, SPW_FFN_COUNTED},
                                                {.word = NULL}};
static const spw_layer_word step_layers[] = {{"full_attention", '\0', 0, 0, SPW_FFN_COUNTED},
                                             {"sliding_attention", '\0', 1, 1, SPW_FFN_COUNTED},
                                             {.word = NULL}};

/* Two names of one architecture: of transformers, and of the code beside the published weights. */
#define DEEPSEEK_V4 \
    ROUTED, \
        .spelled = {{"compress_rates.compressed_sparse_attention", "compress_rate_csa"}, \
                    {"compress_rates.heavily_compressed_attention", "compress_rate_hca"}}, \
        .quiet = {"hc_eps", "compress_rope_theta", "expert_dtype", "qk_rope_head_dim"}, \
        .parts = SPW_SHARED_COUNT | SPW_SCORING | SPW_STREAMS | SPW_HASH | SPW_WINDOW, \
        .layer_list = {"layer_types", "compress_ratios"}, .layer_words = deepseek_layers, \
        .kinds = {&spw_window_grouped, &spw_compressed, &spw_heavily_compressed}, .listed_attention = true, \
        .sigmoid_router = true
#define MINIMAX_M3 \
    .experts = {"num_local_experts", "num_experts"}, .top_k = {"num_experts_per_tok"}, \
    .expert_ffn = {"intermediate_size"}, \
    .spelled = {{"shared_expert_intermediate_size", "shared_intermediate_size"}, \
                {"index_n_heads", "sparse_attention_config.sparse_num_index_heads"}, \
                {"index_head_dim", "sparse_attention_config.sparse_index_dim"}, \
                {"index_block_size", "sparse_attention_config.sparse_block_size"}, \
                {"index_topk_blocks", "sparse_attention_config.sparse_topk_blocks"}}, \
    .flags = {{"use_routing_bias", offsetof(spw_model, selection_bias)}, \
              {"use_qk_norm", offsetof(spw_model, qk_norm)}}, \
    .quiet = {"moe_intermediate_size", \
              "n_shared_experts", \
              "qk_norm_type", \
              "use_gemma_norm", \
              "rotary_dim", \
              "index_local_blocks", \
              "sparse_attention_config.sparse_disable_index_value", \
              "sparse_attention_config.sparse_init_block", \
              "sparse_attention_config.sparse_local_block", \
              "sparse_attention_config.sparse_score_type", \
              "sparse_attention_config.use_sparse_attention", \
              "num_mtp_modules"}, \
    .parts = SPW_SHARED_WIDTH | SPW_DENSE_WIDTH | SPW_SCORING | SPW_BY_FIRST, .shared = SPW_SHARED_BY_WIDTH, \
    .text = true, .list = "moe_layer_freq", \
    .layer_list = {"layer_types", "sparse_attention_config.sparse_attention_freq"}, \
    .layer_words = minimax_layers, .kinds = {NULL, &spw_block_sparse}, QK_NORMS, .sigmoid_router = true
#define STEP_37 \
    .experts = {"n_routed_experts", "num_experts", "moe_num_experts"}, \
    .top_k = {"num_experts_per_tok", "moe_top_k"}, .expert_ffn = {"moe_intermediate_size"}, \
    .spelled = {{"shared_expert_intermediate_size", "share_expert_dim"}, \
                {"num_key_value_heads", "num_attention_groups"}, \
                {"num_sliding_attention_heads", "attention_other_setting.num_attention_heads"}}, \
    .flags = {{"use_moe_router_bias", offsetof(spw_model, selection_bias)}}, \
    .quiet = {"n_shared_experts", "moe_router_scaling_factor"}, \
    .parts = SPW_SHARED_WIDTH | SPW_BY_FIRST | SPW_SCORING | SPW_WINDOW, .shared = SPW_SHARED_BY_WIDTH, \
    .text = true, .layer_list = {"layer_types"}, .layer_words = step_layers, \
    .kinds = {&spw_head_gate, &spw_sliding_gated}, QK_NORMS, .first_dense = 3, .sigmoid_router = true

#define DEEPSEEK_41 \
    ROUTED, \
        .quiet = {"hc_eps", \
                  "compress_rope_theta", \
                  "expert_dtype", \
                  "qk_rope_head_dim", \
                  "candidate_source_layer_id", \
                  "candidate_topk_blocks", \
                  "candidate_block_size", \
                  "engram_vocab_size", \
                  "engram_compressed_vocab_size", \
                  "dspark_block_size", \
                  "dspark_target_layer_ids", \
                  "dspark_markov_rank", \
                  "dspark_n_routed_experts", \
                  "dspark_num_experts_per_tok", \
                  "hc_pre_from_prev_sublayer"}, \
        .parts = SPW_SHARED_COUNT | SPW_SCORING | SPW_STREAMS | SPW_WINDOW | SPW_TABLES | SPW_SOURCES, \
        .layer_list = {"compress_ratios"}, .layer_words = deepseek_layers, \
        .kinds = {&spw_window_grouped, &spw_reads_joined,   &spw_chooses_joined, &spw_joins_keys, \
                  &spw_reads_joined,   &spw_chooses_joined, &spw_joins_keys,     &spw_reads_joined, \
                  &spw_chooses_joined, &spw_joins_keys}, \
        .listed_attention = true, .text = true, .no_stream_head = true, .sigmoid_router = true
#define QWEN_4 \
    .experts = {"num_experts", "num_local_experts"}, .top_k = {"num_experts_per_tok"}, \
    .expert_ffn = {"moe_intermediate_size"}, .spelled = {{"hc_mult", "hc_count"}}, \
    .quiet = {"attn_output_gate", "mtp_use_dedicated_embeddings", "mtp", \
              "make_ngram_vocab_size_divisible_by", "split_ngram_parts"}, \
    .parts = SPW_BY_STEP | SPW_SHARED_WIDTH | SPW_INTERVAL | SPW_STREAMS | SPW_TABLES, \
    .shared = SPW_SHARED_BY_GATED_WIDTH, .layer_list = {"layer_types"}, .layer_words = qwen_layers, \
    .kinds = {&spw_query_indexer, &spw_gated_delta}, .interval = 4, .text = true, QK_NORMS, \
    .query_gate = true, .gate_bias = true, .no_layer_norms = true

const spw_family spw_kind_families[] = {
    {.model_type = "deepseek_v41", DEEPSEEK_41},
    {.model_type = "qwen4_exp", QWEN_4},
    {.model_type = "qwen3_8_flash_next", QWEN_4},
    {.model_type = "nemotron_h",
     .experts = {"n_routed_experts", "num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"moe_intermediate_size"},
     .spelled = {{"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
                 {"n_groups", "mamba_n_groups"},
                 {"conv_kernel", "mamba_d_conv"}},
     .flags = {{"use_conv_bias", offsetof(spw_model, conv_bias)},
               {"use_bias", offsetof(spw_model, projection_bias)}},
     .no_bias = true,
     .quiet = {"n_shared_experts", "chunk_size", "expand", "mtp_layers_block_type",
               "mtp_hybrid_override_pattern", "time_step_limit", "mamba_proj_bias", "num_logits_to_keep",
               "moe_shared_expert_overlap", "rescale_prenorm_residual", "use_mamba_kernels", "mamba_expand",
               "mamba_chunk_size"},
     .parts = SPW_SHARED_WIDTH | SPW_LATENT | SPW_FROM_LIST,
     .shared = SPW_SHARED_BY_WIDTH,
     .layer_list = {"layers_block_type", "hybrid_override_pattern", "layer_types"},
     .layer_words = nemotron_layers,
     .kinds = {NULL, &spw_mamba2_nemotron, &spw_no_mixer},
     .half_layers = true,
     .plain_experts = true,
     .layer_norms = 1,
     .sigmoid_router = true},
    {.model_type = "deepseek_v4", DEEPSEEK_V4},
    {.model_type = "deepseek_ref", DEEPSEEK_V4},
    {.model_type = "minimax_m3", MINIMAX_M3},
    {.model_type = "minimax_m3_vl", MINIMAX_M3},
    {.model_type = "step3p7", STEP_37},
    {.model_type = "step3p5", STEP_37},
    {.model_type = NULL}};
