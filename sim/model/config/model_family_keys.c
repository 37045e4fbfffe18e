/* Which keys of a config.json a family reads. */
#include "sim/model/config/model_family.h"

#include <string.h>

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
    SPW_PART_KEY(SPW_SHARED_TURNS, "cla_share_factor", shared_turns, 1, SPW_MODEL_MAX_LAYERS, false),
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
    SPW_PART_KEY(SPW_STREAMS, "hc_sinkhorn_iters", stream_rounds, 1, 1024, false),
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
                 {"use_cla", SPW_SHARED_TURNS},
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
static bool reads_ours(const spw_family *f, const spw_attention_kind *kind, const char *key) {
    for (size_t i = 0; i < sizeof word_keys / sizeof *word_keys; i++) {
        if (strcmp(word_keys[i].key, key) == 0) return spw_family_has(f, word_keys[i].part);
    }
    for (size_t i = 0; i < SPW_MODEL_FLAGS && f->flags[i].key != NULL; i++) {
        if (strcmp(f->flags[i].key, key) == 0) return true;
    }
    return is_row(spw_common_keys, key, f) || is_row(kind->keys, key, f) ||
           (f->mixer != NULL && is_row(f->mixer->keys, key, f)) || is_kind_row(f, key) ||
           is_name(f->layer_list, SPW_MODEL_KEYS, key) || is_name(f->experts, SPW_MODEL_KEYS, key) ||
           is_name(f->top_k, SPW_MODEL_KEYS, key) || is_name(f->expert_ffn, SPW_MODEL_KEYS, key) ||
           (f->mixer != NULL && strcmp(key, "layer_types") == 0) ||
           (f->mixer == &spw_global && strcmp(key, "per_layer_config") == 0) ||
           (f->list != NULL && strcmp(key, f->list) == 0) || (f->text && strcmp(key, "text_config") == 0);
}

bool spw_family_reads(const spw_family *f, const spw_attention_kind *kind, const char *key) {
    for (size_t i = 0; i < SPW_MODEL_SPELLED && f->spelled[i][0] != NULL; i++) {
        if (strcmp(f->spelled[i][1], key) == 0) return true;
    }
    return reads_ours(f, kind, key);
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

void spw_family_offer(const spw_family *f, const spw_attention_kind *kind, spw_nearest *nearest) {
    const char *const *const names[] = {f->experts, f->top_k, f->expert_ffn};
    for (size_t i = 0; i < SPW_MODEL_SPELLED && f->spelled[i][0] != NULL; i++)
        spw_nearest_offer(nearest, f->spelled[i][1]);
    for (size_t i = 0; i < sizeof word_keys / sizeof *word_keys; i++) {
        if (spw_family_has(f, word_keys[i].part)) offer_ours(f, word_keys[i].key, nearest);
    }
    offer_rows(f, spw_common_keys, nearest);
    offer_rows(f, kind->keys, nearest);
    if (f->mixer != NULL) offer_rows(f, f->mixer->keys, nearest);
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++)
        if (f->kinds[k] != NULL) offer_rows(f, f->kinds[k]->keys, nearest);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (size_t i = 0; i < SPW_MODEL_KEYS && names[n][i] != NULL; i++)
            spw_nearest_offer(nearest, names[n][i]);
    }
}

bool spw_any_family_reads(const char *key) {
    for (size_t i = 0; spw_family_at(i) != NULL; i++)
        for (size_t k = 0; spw_attention_kind_at(k) != NULL; k++)
            if (spw_family_reads(spw_family_at(i), spw_attention_kind_at(k), key)) return true;
    return false;
}

bool spw_family_is_quiet(const spw_family *f, const char *key) {
    const bool scores = strcmp(key, "scoring_func") == 0 || strcmp(key, "topk_method") == 0;
    return scores || is_name(f->quiet, SPW_MODEL_QUIET, key);
}
