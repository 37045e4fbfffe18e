#include "sim/input/model_family.h"

#include <string.h>

/* --- Families: what a model_type implies without saying so in its config.json. Sources: transformers 5.23,
 * src/transformers/models/<model_type>/modeling_*.py and configuration_*.py; of bailing_moe and arctic the code beside their
 * published weights. Checked in tests/models. --- */

#define NAMES_OF(e, k, f) .experts = {e}, .top_k = {k}, .expert_ffn = {f}
#define ROUTED \
    .experts = {"n_routed_experts", "num_local_experts"}, .top_k = {"num_experts_per_tok"}, \
    .expert_ffn = {"moe_intermediate_size"}
#define PLAIN \
    .experts = {"num_experts", "num_local_experts"}, .top_k = {"num_experts_per_tok"}, \
    .expert_ffn = {"moe_intermediate_size"}
#define WHOLE_WIDTH \
    .experts = {"num_local_experts", "num_experts"}, .top_k = {"num_experts_per_tok"}, \
    .expert_ffn = {"intermediate_size"}
#define DEEPSEEK \
    ROUTED, .attention = SPW_ATTENTION_MLA, \
            .parts = SPW_SHARED_COUNT | SPW_BY_FIRST | SPW_BY_FREQUENCY | SPW_SCORING
#define DEEPSEEK_SPARSE \
    ROUTED, .attention = SPW_ATTENTION_MLA, \
            .parts = SPW_SHARED_COUNT | SPW_BY_FIRST | SPW_BY_FREQUENCY | SPW_SCORING | SPW_INDEXER
#define QK_NORMS .qk_norm = true, .qk_norm_per_head = true

static const spw_family families[] = {
    {.model_type = "deepseek_v2", DEEPSEEK, .usual_top_k = 6},
    {.model_type = "deepseek_v3", DEEPSEEK, .sigmoid_router = true},
    {.model_type = "deepseek_v32", DEEPSEEK_SPARSE, .sigmoid_router = true},
    {.model_type = "kimi_k2", DEEPSEEK, .sigmoid_router = true},
    {.model_type = "axk1", DEEPSEEK, .sigmoid_router = true, .first_dense = 1, .moe_norm = true},
    {.model_type = "glm4_moe_lite", DEEPSEEK, .sigmoid_router = true, .first_dense = 1},
    {.model_type = "glm_moe_dsa", DEEPSEEK_SPARSE, .sigmoid_router = true, .first_dense = 3},
    {.model_type = "mistral4", DEEPSEEK},
    {.model_type = "kimi_linear",
     PLAIN,
     .spelled = {{"num_experts_per_tok", "num_experts_per_token"},
                 {"n_shared_experts", "num_shared_experts"},
                 {"n_group", "num_expert_group"},
                 {"full_attn_layers", "linear_attn_config.full_attn_layers"},
                 {"moe_latent_size", "routed_expert_hidden_size"},
                 {"linear_attn_config.num_heads", "linear_num_heads"},
                 {"linear_attn_config.head_dim", "linear_head_dim"},
                 {"linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"}},
     .flags = {{"mla_use_output_gate", offsetof(spw_model, output_gate)},
               {"linear_attn_config.use_full_rank_gate", offsetof(spw_model, full_rank_gate)},
               {"latent_moe_use_norm", offsetof(spw_model, latent_norm)}},
     .quiet = {"linear_attn_config.kda_layers", "linear_attn_config.gate_lower_bound", "use_grouped_topk",
               "mla_use_nope", "activation_situ_beta", "activation_situ_linear_beta"},
     .attention = SPW_ATTENTION_MLA,
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST | SPW_BY_FREQUENCY | SPW_LATENT | SPW_RESIDUALS,
     .mixer = &spw_kimi_delta,
     .first_dense = 1,
     .sigmoid_router = true},
    {.model_type = "longcat_flash",
     NAMES_OF("n_routed_experts", "moe_topk", "expert_ffn_hidden_size"),
     .spelled = {{"num_hidden_layers", "num_layers"}, {"intermediate_size", "ffn_hidden_size"}},
     .flags = {{"router_bias", offsetof(spw_model, router_bias)}},
     .quiet = {"mla_scale_q_lora", "mla_scale_kv_lora"},
     .attention = SPW_ATTENTION_MLA,
     .parts = SPW_ZERO_EXPERTS | SPW_TABLES,
     .shared = SPW_SHARED_DENSE,
     .layer_copies = 2,
     .selection_bias = true},
    {.model_type = "glm4_moe",
     ROUTED,
     .flags = {{"use_qk_norm", offsetof(spw_model, qk_norm)}},
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST | SPW_SCORING,
     .qk_norm_per_head = true,
     .no_output_bias = true,
     .first_dense = 1,
     .sigmoid_router = true},
    {.model_type = "glm4v_moe",
     ROUTED,
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST | SPW_SCORING,
     .text = true,
     .no_output_bias = true,
     .first_dense = 1,
     .sigmoid_router = true},
    {.model_type = "dots1",
     ROUTED,
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST | SPW_BY_FREQUENCY,
     QK_NORMS,
     .sigmoid_router = true},
    {.model_type = "solar_open",
     ROUTED,
     .quiet = {"intermediate_size"},
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST,
     .no_output_bias = true,
     .sigmoid_router = true},
    {.model_type = "exaone_moe",
     PLAIN,
     .spelled = {{"n_shared_experts", "num_shared_experts"}},
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST,
     .list = "is_moe_layer",
     QK_NORMS,
     .first_dense = 1,
     .sigmoid_router = true},
    {.model_type = "mimo_v2_flash",
     ROUTED,
     .spelled = {{"layer_types", "hybrid_layer_pattern"}},
     .quiet = {"add_swa_attention_sink_bias", "sliding_window_size", "attention_chunk_size",
               "swa_rope_theta"},
     .parts = SPW_VALUE_DIM | SPW_BY_FIRST | SPW_SHARED_COUNT,
     .mixer = &spw_sliding,
     .list = "moe_layer_freq",
     .sigmoid_router = true},
    {.model_type = "hy_v3",
     PLAIN,
     .spelled = {{"n_shared_experts", "num_shared_experts"}},
     .quiet = {"enable_moe_fp32_combine"},
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST,
     QK_NORMS,
     .first_dense = 1,
     .sigmoid_router = true},
    {.model_type = "afmoe",
     PLAIN,
     .spelled = {{"n_shared_experts", "num_shared_experts"}, {"first_k_dense_replace", "num_dense_layers"}},
     .quiet = {"global_attn_every_n_layers", "mup_enabled", "route_norm", "use_grouped_mm",
               "num_expert_groups", "num_limited_groups"},
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST,
     QK_NORMS,
     .query_gate = true,
     .layer_norms = 4,
     .first_dense = 1,
     .sigmoid_router = true},
    {.model_type = "bailing_moe",
     PLAIN,
     .spelled = {{"n_shared_experts", "num_shared_experts"}},
     .flags = {{"use_qkv_bias", offsetof(spw_model, attention_bias)},
               {"use_bias", offsetof(spw_model, output_bias)}},
     .quiet = {"norm_softmax"},
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST},
    {.model_type = "bailing_moe_v2",
     PLAIN,
     .spelled = {{"n_shared_experts", "num_shared_experts"},
                 {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"}},
     .flags = {{"use_qkv_bias", offsetof(spw_model, attention_bias)},
               {"use_bias", offsetof(spw_model, output_bias)},
               {"moe_router_enable_expert_bias", offsetof(spw_model, selection_bias)}},
     .quiet = {"norm_softmax", "use_rmsnorm", "use_qk_norm"},
     .parts = SPW_SHARED_COUNT | SPW_SHARED_WIDTH | SPW_BY_FIRST,
     .shared = SPW_SHARED_BY_BOTH,
     QK_NORMS,
     .sigmoid_router = true},
    {.model_type = "qwen2_moe",
     .experts = {"num_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"moe_intermediate_size"},
     .flags = {{"qkv_bias", offsetof(spw_model, attention_bias)}},
     .parts = SPW_BY_STEP | SPW_SHARED_WIDTH | SPW_SCORING,
     .shared = SPW_SHARED_BY_GATED_WIDTH,
     .qkv_bias = true,
     .no_output_bias = true},
    {.model_type = "qwen3_moe", PLAIN, .parts = SPW_BY_STEP | SPW_SCORING, QK_NORMS},
    {.model_type = "qwen3_vl_moe", PLAIN, .parts = SPW_BY_STEP, .text = true, QK_NORMS},
    {.model_type = "qwen3_omni_moe", PLAIN, .parts = SPW_BY_STEP, .text = true, QK_NORMS},
    {.model_type = "qwen3_next",
     PLAIN,
     .parts = SPW_BY_STEP | SPW_SHARED_WIDTH | SPW_INTERVAL,
     .shared = SPW_SHARED_BY_GATED_WIDTH,
     .mixer = &spw_gated_delta,
     .interval = 4,
     QK_NORMS,
     .gate_bias = true,
     .query_gate = true},
    {.model_type = "qwen3_5_moe",
     PLAIN,
     .quiet = {"attn_output_gate", "mtp_use_dedicated_embeddings"},
     .parts = SPW_BY_STEP | SPW_SHARED_WIDTH | SPW_INTERVAL,
     .shared = SPW_SHARED_BY_GATED_WIDTH,
     .mixer = &spw_gated_delta,
     .interval = 4,
     .text = true,
     QK_NORMS,
     .gate_bias = true,
     .query_gate = true},
    {.model_type = "minimax_m2",
     WHOLE_WIDTH,
     .flags = {{"use_routing_bias", offsetof(spw_model, selection_bias)},
               {"use_qk_norm", offsetof(spw_model, qk_norm)}},
     .quiet = {"attn_type_list", "mlp_intermediate_size", "mtp_transformer_layers", "use_mtp"},
     .parts = SPW_SCORING,
     .qk_norm = true,
     .sigmoid_router = true},
    {.model_type = "minimax", WHOLE_WIDTH, .quiet = {"block_size"}, .mixer = &spw_lightning, .interval = 2},
    {.model_type = "llama4",
     WHOLE_WIDTH,
     .spelled = {{"dense_intermediate_size", "intermediate_size_mlp"},
                 {"decoder_sparse_step", "interleave_moe_layer_step"}},
     .quiet = {"use_qk_norm", "attention_chunk_size", "no_rope_layers", "no_rope_layer_interval",
               "floor_scale", "attn_temperature_tuning", "boi_token_index", "eoi_token_index",
               "image_token_index"},
     .parts = SPW_BY_STEP | SPW_LISTED | SPW_DENSE_WIDTH,
     .shared = SPW_SHARED_ONE,
     .text = true,
     .sigmoid_router = true,
     .no_selection_bias = true},
    {.model_type = "hunyuan_v1_moe",
     .experts = {"num_experts"},
     .top_k = {"moe_topk", "num_experts_per_tok"},
     .expert_ffn = {"moe_intermediate_size", "intermediate_size"},
     .spelled = {{"n_shared_experts", "num_shared_expert"}},
     .flags = {{"use_qk_norm", offsetof(spw_model, qk_norm)}},
     .quiet = {"attention_head_dim", "cla_share_factor", "dense_list", "use_mixed_mlp_moe",
               "use_rotary_pos_emb", "eod_token_id", "sep_token_id"},
     .parts = SPW_SHARED_COUNT,
     .lists = true,
     QK_NORMS},
    {.model_type = "ernie4_5_moe",
     .experts = {"moe_num_experts"},
     .top_k = {"moe_k"},
     .expert_ffn = {"moe_intermediate_size"},
     .spelled = {{"n_shared_experts", "moe_num_shared_experts"},
                 {"first_k_dense_replace", "moe_layer_start_index"},
                 {"decoder_sparse_step", "moe_layer_interval"}},
     .flags = {{"use_bias", offsetof(spw_model, attention_bias)},
               {"use_bias", offsetof(spw_model, output_bias)},
               {"use_bias", offsetof(spw_model, ffn_bias)},
               {"use_bias", offsetof(spw_model, head_bias)}},
     .quiet = {"moe_capacity", "moe_use_aux_free"},
     .parts = SPW_SHARED_COUNT | SPW_BY_FIRST | SPW_BY_STEP | SPW_BY_LAST,
     .first_dense = 1,
     .selection_bias = true,
     .tied = true},
    {.model_type = "phimoe",
     WHOLE_WIDTH,
     .flags = {{"lm_head_bias", offsetof(spw_model, head_bias)}},
     .norm_bias = true},
    {.model_type = "jamba",
     .experts = {"num_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"intermediate_size"},
     .flags = {{"mamba_conv_bias", offsetof(spw_model, conv_bias)},
               {"mamba_proj_bias", offsetof(spw_model, projection_bias)}},
     .quiet = {"num_logits_to_keep", "use_mamba_kernels"},
     .parts = SPW_BY_PERIOD,
     .mixer = &spw_mamba},
    {.model_type = "dbrx",
     NAMES_OF("ffn_config.moe_num_experts", "ffn_config.moe_top_k", "ffn_config.ffn_hidden_size"),
     .spelled = {{"hidden_size", "d_model"},
                 {"num_attention_heads", "n_heads"},
                 {"num_hidden_layers", "n_layers"},
                 {"num_key_value_heads", "attn_config.kv_n_heads"}},
     .quiet = {"attn_config.clip_qkv", "attn_config.rope_theta", "ffn_config.hidden_size",
               "ffn_config.ffn_act_fn", "ffn_config.moe_normalize_expert_weights", "max_seq_len"}},
    {.model_type = "granitemoe", WHOLE_WIDTH},
    {.model_type = "granitemoeshared",
     WHOLE_WIDTH,
     .spelled = {{"shared_expert_intermediate_size", "shared_intermediate_size"}},
     .parts = SPW_SHARED_WIDTH,
     .shared = SPW_SHARED_BY_WIDTH},
    {.model_type = "granitemoehybrid",
     WHOLE_WIDTH,
     .spelled = {{"shared_expert_intermediate_size", "shared_intermediate_size"}},
     .flags = {{"mamba_conv_bias", offsetof(spw_model, conv_bias)},
               {"mamba_proj_bias", offsetof(spw_model, projection_bias)}},
     .quiet = {"mamba_chunk_size", "mamba_expand"},
     .parts = SPW_SHARED_WIDTH,
     .shared = SPW_SHARED_BY_WIDTH,
     .mixer = &spw_mamba2},
    {.model_type = "lfm2_moe",
     PLAIN,
     .spelled = {{"first_k_dense_replace", "num_dense_layers"}, {"tie_word_embeddings", "tie_embedding"}},
     .flags = {{"use_expert_bias", offsetof(spw_model, selection_bias)}},
     .parts = SPW_BY_FIRST,
     .mixer = &spw_short_convolution,
     QK_NORMS,
     .first_dense = 2,
     .sigmoid_router = true,
     .tied = true},
    {.model_type = "gemma4",
     .experts = {"num_experts"},
     .top_k = {"top_k_experts"},
     .expert_ffn = {"moe_intermediate_size"},
     .flags = {{"attention_k_eq_v", offsetof(spw_model, keys_are_values)}},
     .quiet = {"enable_moe_block", "final_logit_softcapping"},
     .parts = SPW_TABLES | SPW_SHARED_KEYS,
     .kinds = {[2] = &spw_shared_sliding, [3] = &spw_shared_global},
     .shared = SPW_SHARED_DENSE,
     .mixer = &spw_global,
     .layer_norms = 7,
     .text = true,
     .tied = true,
     QK_NORMS,
     .router_scales = true,
     .layer_scalar = true,
     .nested_scans = true},
    {.model_type = "arctic",
     .experts = {"num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"intermediate_size"},
     .spelled = {{"moe_layer_freq", "moe_layer_frequency"}},
     .quiet = {"max_sequence_length", "moe_eval_capacity_factor", "moe_train_capacity_factor",
               "moe_min_capacity", "parallel_attn_mlp_res", "use_residual",
               "enable_expert_tensor_parallelism"},
     .parts = SPW_BY_FREQUENCY,
     .shared = SPW_SHARED_HIDDEN,
     .layer_norms = 3},
    {.model_type = "mixtral",
     .experts = {"num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"intermediate_size"},
     .parts = SPW_SCORING},
    {.model_type = "olmoe",
     .experts = {"num_experts", "num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"intermediate_size"},
     .parts = SPW_SCORING,
     .qk_norm = true},
    {.model_type = "flex_olmo", WHOLE_WIDTH, .qk_norm = true},
    {.model_type = "gpt_oss",
     .experts = {"num_local_experts", "num_experts"},
     .top_k = {"num_experts_per_tok", "experts_per_token"},
     .expert_ffn = {"intermediate_size"},
     .parts = SPW_SCORING,
     .expert_bias = true,
     .router_bias = true,
     .attention_sinks = true,
     .layer_period = 2},
};

/* --- Keys --- */

const spw_key_row spw_common_keys[] = {
    SPW_KEY("num_hidden_layers", layers, 1, SPW_MODEL_MAX_LAYERS, false),
    SPW_KEY("hidden_size", hidden, 1, SPW_MODEL_WIDEST, true),
    SPW_KEY("vocab_size", vocab, 1, SPW_MODEL_WIDEST, true),
    SPW_KEY("num_attention_heads", heads, 1, 65535, true),
    SPW_KEY("intermediate_size", ffn, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_DENSE_WIDTH, "dense_intermediate_size", dense_ffn, 1, SPW_MODEL_WIDEST, true),
    SPW_PART_KEY(SPW_PREFIX_WIDTH, "prefix_dense_intermediate_size", dense_ffn, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_SHARED_COUNT, "n_shared_experts", shared_experts, 0, SPW_MODEL_MOST_EXPERTS, false),
    SPW_PART_KEY(SPW_SHARED_WIDTH, "shared_expert_intermediate_size", shared_ffn, 0, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_BY_FIRST, "first_k_dense_replace", first_dense, 0, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_BY_FREQUENCY, "moe_layer_freq", layer_freq, 1, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_BY_STEP, "decoder_sparse_step", sparse_step, 1, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_BY_LAST, "moe_layer_end_index", last_sparse, -1, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_BY_PERIOD, "expert_layer_period", expert_period, 1, SPW_MODEL_MAX_LAYERS, true),
    SPW_PART_KEY(SPW_BY_PERIOD, "expert_layer_offset", expert_offset, 0, SPW_MODEL_MAX_LAYERS, true),
    SPW_PART_KEY(SPW_BY_PERIOD, "attn_layer_period", attention_period, 1, SPW_MODEL_MAX_LAYERS, true),
    SPW_PART_KEY(SPW_BY_PERIOD, "attn_layer_offset", attention_offset, 0, SPW_MODEL_MAX_LAYERS, true),
    SPW_PART_KEY(SPW_INTERVAL, "full_attention_interval", interval, 1, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_INDEXER, "index_n_heads", indexer_heads, 1, 65535, true),
    SPW_PART_KEY(SPW_INDEXER, "index_head_dim", indexer_dim, 1, SPW_MODEL_WIDEST, true),
    SPW_PART_KEY(SPW_INDEXER, "index_topk_freq", indexer_every, 1, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_INDEXER, "index_skip_topk_offset", indexer_offset, 0, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_LATENT, "moe_latent_size", latent, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_MATRICES, "expert_matrices", expert_matrices, 2, 3, false),
    SPW_PART_KEY(SPW_MATRICES, "ffn_matrices", ffn_matrices, 2, 3, false),
    SPW_PART_KEY(SPW_STREAMS, "hc_mult", streams, 1, 64, false),
    SPW_PART_KEY(SPW_RESIDUALS, "attn_res_block_size", residual_blocks, 1, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_HASH, "num_hash_layers", hash_layers, 0, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_LOOP, "loop_layer_index_start", loop_start, 0, SPW_MODEL_MAX_LAYERS, true),
    SPW_PART_KEY(SPW_LOOP, "loop_layer_index_end", loop_end, 0, SPW_MODEL_MAX_LAYERS, true),
    SPW_PART_KEY(SPW_LOOP, "loop_num_passes", loop_passes, 1, 1024, true),
    SPW_PART_KEY(SPW_LOOP, "loop_gate_rank", loop_rank, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_HEAD_WIDTH, "unpadded_vocab_size", head_rows, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_SHARED_KEYS, "num_kv_shared_layers", shared_keys, 0, SPW_MODEL_MAX_LAYERS, false),
    SPW_PART_KEY(SPW_WINDOW, "sliding_window", window, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_TABLES, "ngram_vocab_size_ratio", ngram_ratio, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_TABLES, "emb_neighbor_num", ngram_length, 2, 64, false),
    SPW_PART_KEY(SPW_TABLES, "emb_split_num", ngram_splits, 1, 64, false),
    SPW_PART_KEY(SPW_TABLES, "vocab_size_per_layer_input", layer_table_rows, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_TABLES, "hidden_size_per_layer_input", layer_table_width, 0, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_TABLES, "ngram_vocab_size_base", hashed_rows, 1, INT32_MAX, false),
    SPW_PART_KEY(SPW_TABLES, "ngram_size", hashed_length, 2, 64, false),
    SPW_PART_KEY(SPW_TABLES, "heads_per_ngram", hashed_heads, 1, 1024, false),
    SPW_PART_KEY(SPW_TABLES, "ple_embed_dim", hashed_width, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_TABLES, "ple_conv_kernel_size", hashed_conv, 1, 1024, false),
    SPW_PART_KEY(SPW_TABLES, "engram_max_ngram_size", engram_length, 2, 64, false),
    SPW_PART_KEY(SPW_TABLES, "engram_n_heads", engram_heads, 1, 1024, false),
    SPW_PART_KEY(SPW_TABLES, "engram_head_dim", engram_width, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_STREAMS, "hc_lowrank", stream_rank, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_ZERO_EXPERTS, "zero_expert_num", zero_experts, 0, SPW_MODEL_MOST_EXPERTS, false),
    SPW_KEY("n_group", groups, 1, SPW_MODEL_MOST_EXPERTS, false),
    SPW_KEY("topk_group", groups_kept, 1, SPW_MODEL_MOST_EXPERTS, false),
    {.key = NULL}};

/* Read by name. */
static const struct {
    const char *key;
    unsigned part;
} word_keys[] = {{"attention_bias", SPW_ANY_PART},
                 {"mlp_bias", SPW_ANY_PART},
                 {"use_double_wide_mlp", SPW_SHARED_KEYS},
                 {"tie_word_embeddings", SPW_ANY_PART},
                 {"scoring_func", SPW_SCORING},
                 {"topk_method", SPW_SCORING},
                 {"mlp_only_layers", SPW_BY_STEP},
                 {"mlp_layer_types", SPW_BY_FIRST | SPW_HASH},
                 {"moe_layers", SPW_LISTED},
                 {"indexer_types", SPW_INDEXER},
                 {"index_topk_pattern", SPW_INDEXER},
                 {"ple_layer_ids", SPW_TABLES},
                 {"engram_layer_ids", SPW_TABLES},
                 {"engram_num_embeddings", SPW_TABLES},
                 {"kv_source_layer_ids", SPW_SOURCES},
                 {"index_source_layer_ids", SPW_SOURCES}};

const spw_key_row spw_gqa_keys[] = {
    SPW_KEY("num_key_value_heads", kv_heads, 1, 65535, false),
    SPW_KEY("head_dim", head_dim, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_VALUE_DIM, "v_head_dim", v_head_dim, 1, SPW_MODEL_WIDEST, false),
    {.key = NULL}};

const spw_key_row spw_mla_keys[] = {SPW_KEY("q_lora_rank", q_lora_rank, 1, SPW_MODEL_WIDEST, false),
                                    SPW_KEY("kv_lora_rank", kv_lora_rank, 1, SPW_MODEL_WIDEST, true),
                                    SPW_KEY("qk_nope_head_dim", nope_dim, 1, SPW_MODEL_WIDEST, true),
                                    SPW_KEY("qk_rope_head_dim", rope_dim, 0, SPW_MODEL_WIDEST, true),
                                    SPW_KEY("v_head_dim", v_head_dim, 1, SPW_MODEL_WIDEST, true),
                                    {.key = NULL}};

bool spw_family_has(const spw_family *f, unsigned part) {
    return part == SPW_ANY_PART || (f->parts & part) != 0;
}

static bool is_row(const spw_key_row *row, const char *key, const spw_family *f) {
    for (; row->key != NULL; row++) {
        if (strcmp(row->key, key) == 0) return spw_family_has(f, row->part);
    }
    return false;
}

static bool is_name(const char *const *names, size_t count, const char *key) {
    for (size_t i = 0; i < count && names[i] != NULL; i++) {
        if (strcmp(names[i], key) == 0) return true;
    }
    return false;
}

/* Of a kind of layers that the family may have. */
static bool is_kind_row(const spw_family *f, const char *key) {
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++)
        if (f->kinds[k] != NULL && is_row(f->kinds[k]->keys, key, f)) return true;
    return false;
}

/* By our name of the key. */
static bool reads_ours(const spw_family *f, bool latent, const char *key) {
    for (size_t i = 0; i < sizeof word_keys / sizeof *word_keys; i++) {
        if (strcmp(word_keys[i].key, key) == 0) return spw_family_has(f, word_keys[i].part);
    }
    for (size_t i = 0; i < SPW_MODEL_FLAGS && f->flags[i].key != NULL; i++) {
        if (strcmp(f->flags[i].key, key) == 0) return true;
    }
    return is_row(spw_common_keys, key, f) || is_row(latent ? spw_mla_keys : spw_gqa_keys, key, f) ||
           (f->mixer != NULL && is_row(f->mixer->keys, key, f)) || is_kind_row(f, key) ||
           is_name(f->layer_list, SPW_MODEL_KEYS, key) || is_name(f->experts, SPW_MODEL_KEYS, key) ||
           is_name(f->top_k, SPW_MODEL_KEYS, key) || is_name(f->expert_ffn, SPW_MODEL_KEYS, key) ||
           (f->mixer != NULL && strcmp(key, "layer_types") == 0) ||
           (f->mixer == &spw_global && strcmp(key, "per_layer_config") == 0) ||
           (f->list != NULL && strcmp(key, f->list) == 0) || (f->text && strcmp(key, "text_config") == 0);
}

bool spw_family_reads(const spw_family *f, bool latent, const char *key) {
    for (size_t i = 0; i < SPW_MODEL_SPELLED && f->spelled[i][0] != NULL; i++) {
        if (strcmp(f->spelled[i][1], key) == 0) return true;
    }
    return reads_ours(f, latent, key);
}

/* A key that the family spells in another way is not its own. */
static void offer_ours(const spw_family *f, const char *key, spw_nearest *nearest) {
    for (size_t i = 0; i < SPW_MODEL_SPELLED && f->spelled[i][0] != NULL; i++) {
        if (strcmp(f->spelled[i][0], key) == 0) return;
    }
    spw_nearest_offer(nearest, key);
}

static void offer_rows(const spw_family *f, const spw_key_row *row, spw_nearest *nearest) {
    for (; row->key != NULL; row++) {
        if (spw_family_has(f, row->part)) offer_ours(f, row->key, nearest);
    }
}

void spw_family_offer(const spw_family *f, bool latent, spw_nearest *nearest) {
    const char *const *const names[] = {f->experts, f->top_k, f->expert_ffn};
    for (size_t i = 0; i < SPW_MODEL_SPELLED && f->spelled[i][0] != NULL; i++)
        spw_nearest_offer(nearest, f->spelled[i][1]);
    for (size_t i = 0; i < sizeof word_keys / sizeof *word_keys; i++) {
        if (spw_family_has(f, word_keys[i].part)) offer_ours(f, word_keys[i].key, nearest);
    }
    offer_rows(f, spw_common_keys, nearest);
    offer_rows(f, latent ? spw_mla_keys : spw_gqa_keys, nearest);
    if (f->mixer != NULL) offer_rows(f, f->mixer->keys, nearest);
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++)
        if (f->kinds[k] != NULL) offer_rows(f, f->kinds[k]->keys, nearest);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (size_t i = 0; i < SPW_MODEL_KEYS && names[n][i] != NULL; i++)
            spw_nearest_offer(nearest, names[n][i]);
    }
}

bool spw_any_family_reads(const char *key) {
    for (size_t i = 0; spw_family_at(i) != NULL; i++) {
        if (spw_family_reads(spw_family_at(i), false, key) || spw_family_reads(spw_family_at(i), true, key))
            return true;
    }
    return false;
}

bool spw_family_is_quiet(const spw_family *f, const char *key) {
    const bool scores = strcmp(key, "scoring_func") == 0 || strcmp(key, "topk_method") == 0;
    return scores || is_name(f->quiet, SPW_MODEL_QUIET, key);
}

const spw_family *spw_family_at(size_t i) {
    const size_t first = sizeof families / sizeof *families;
    if (i < first) return &families[i];
    size_t more = 0;
    while (spw_more_families[more].model_type != NULL) more++;
    if (i - first < more) return &spw_more_families[i - first];
    size_t kinds = 0;
    while (spw_kind_families[kinds].model_type != NULL) kinds++;
    if (i - first - more < kinds) return &spw_kind_families[i - first - more];
    return i - first - more == kinds ? &spw_generic_family : NULL;
}

const spw_family *spw_family_find(const char *model_type) {
    size_t length = strlen(model_type);
    if (length > 5 && strcmp(model_type + length - 5, "_text") == 0) length -= 5;
    for (size_t i = 0; spw_family_at(i) != NULL; i++) {
        const spw_family *const family = spw_family_at(i);
        const size_t need = family->text ? length : strlen(model_type);
        if (strlen(family->model_type) == need && strncmp(model_type, family->model_type, need) == 0)
            return family;
    }
    return NULL;
}
