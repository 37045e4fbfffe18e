/* Families of models: what a model_type implies, and which keys of a config.json are read for it. One row a family. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_FAMILY_H
#define SPW_SIM_MODEL_CONFIG_MODEL_FAMILY_H

#include "base/nearest.h"
#include "sim/model/attention.h"
#include "sim/model/model.h"

enum {
    SPW_MODEL_KEYS = 3,
    SPW_MODEL_WIDEST = 1 << 24,
    SPW_MODEL_MOST_EXPERTS = 65535,
    SPW_MODEL_SPELLED = 12,
    SPW_MODEL_FLAGS = 20,
    SPW_MODEL_QUIET = 24
};

/* Parts that only some families have; their keys are read, and may be there, in those alone. */
enum {
    SPW_ANY_PART = 0,
    SPW_SHARED_COUNT = 1 << 0,  /* n_shared_experts */
    SPW_SHARED_WIDTH = 1 << 1,  /* shared_expert_intermediate_size */
    SPW_BY_FIRST = 1 << 2,      /* first_k_dense_replace, mlp_layer_types */
    SPW_BY_FREQUENCY = 1 << 3,  /* moe_layer_freq */
    SPW_BY_STEP = 1 << 4,       /* decoder_sparse_step, mlp_only_layers */
    SPW_BY_LAST = 1 << 5,       /* moe_layer_end_index */
    SPW_BY_PERIOD = 1 << 6,     /* expert_layer_period, expert_layer_offset; of attention too */
    SPW_SCORING = 1 << 7,       /* scoring_func, topk_method */
    SPW_INDEXER = 1 << 8,       /* index_n_heads, index_head_dim, indexer_types */
    SPW_INTERVAL = 1 << 9,      /* full_attention_interval */
    SPW_ZERO_EXPERTS = 1 << 10, /* zero_expert_num */
    SPW_VALUE_DIM = 1 << 11,    /* a width of values beside head_dim, without latent attention */
    SPW_LISTED = 1 << 12,       /* moe_layers: the layers with experts */
    SPW_DENSE_WIDTH =
        1 << 13, /* dense_intermediate_size: of dense layers, where intermediate_size is the experts' */
    SPW_LATENT = 1 << 14,    /* moe_latent_size: experts of narrower rows, between two projections */
    SPW_STREAMS = 1 << 15,   /* hc_mult: residual streams */
    SPW_RESIDUALS = 1 << 16, /* attn_res_block_size: attention over the residuals of earlier layers */
    SPW_HASH = 1 << 17,      /* num_hash_layers, and "hash_moe" in mlp_layer_types */
    SPW_WINDOW = 1 << 18,    /* sliding_window, of the layers that have one */
    SPW_MATRICES = 1 << 20,  /* expert_matrices, ffn_matrices: 2 without a gate, else 3 */
    SPW_LOOP = 1 << 21, /* loop_layer_index_start, _end, loop_num_passes: layers that run several times */
    SPW_SHARED_KEYS =
        1 << 26, /* num_kv_shared_layers: the last layers use keys and values of layers before */
    SPW_SHARED_TURNS =
        1 << 27, /* use_cla, cla_share_factor: keys and values of one layer in so many, for those behind it */
    SPW_HEAD_WIDTH = 1 << 22,   /* unpadded_vocab_size: rows of the head */
    SPW_SOURCES = 1 << 25,      /* compress_ratios beside kv_source_layer_ids and index_source_layer_ids */
    SPW_TABLES = 1 << 23,       /* tables that are looked up beside the embedding */
    SPW_FROM_LIST = 1 << 19,    /* num_hidden_layers may be absent: the list of layers says it */
    SPW_PREFIX_WIDTH = 1 << 24, /* prefix_dense_intermediate_size: of dense layers, else intermediate_size */
};

/* How wide the shared experts, or what runs beside the routed ones, are. */
typedef enum spw_shared_rule {
    SPW_SHARED_BY_COUNT,       /* n_shared_experts of the routed width; without the part: none */
    SPW_SHARED_BY_WIDTH,       /* shared_expert_intermediate_size */
    SPW_SHARED_BY_GATED_WIDTH, /* with a gate (Qwen2-MoE) */
    SPW_SHARED_BY_BOTH,        /* n_shared_experts of shared_expert_intermediate_size each (Ling 2.0) */
    SPW_SHARED_ONE,            /* one of the routed width (Llama 4) */
    SPW_SHARED_DENSE,          /* intermediate_size (Gemma 4, LongCat) */
    SPW_SHARED_HIDDEN          /* hidden_size (Arctic) */
} spw_shared_rule;

typedef struct spw_raw_config {
    int64_t layers, hidden, vocab, heads, kv_heads, head_dim, experts, top_k, expert_ffn, ffn, dense_ffn;
    int64_t shared_experts, shared_ffn, first_dense, layer_freq, sparse_step, groups, groups_kept;
    int64_t last_sparse, expert_period, expert_offset, attention_period, attention_offset, interval;
    int64_t q_lora_rank, kv_lora_rank, nope_dim, rope_dim, v_head_dim;
    int64_t indexer_heads, indexer_dim, indexer_every, indexer_offset, zero_experts;
    int64_t mixer_heads, mixer_kv_heads, mixer_value_heads, mixer_dim, mixer_value_dim, mixer_conv,
        mixer_groups, mixer_state, mixer_expand, mixer_rank, mixer_nope, mixer_chunk;
    int64_t expert_matrices, ffn_matrices;
    int64_t latent, streams, residual_blocks, hash_layers, window, output_groups, output_rank, chosen, blocks,
        block_tokens, compress_sparse, compress_heavy;
    int64_t loop_start, loop_end, loop_passes, loop_rank, head_rows, shared_keys, shared_turns;
    int64_t ngram_ratio, ngram_length, ngram_splits, layer_table_rows, layer_table_width;
    int64_t hashed_rows, hashed_length, hashed_heads, hashed_width, hashed_conv, engram_length, engram_heads,
        engram_width, stream_rank, stream_rounds, index_key_heads, index_every;
} spw_raw_config;

typedef struct spw_key_row {
    const char *key;
    size_t offset;
    int64_t minimum, maximum;
    bool required;
    unsigned part;
} spw_key_row;

#define SPW_PART_KEY(of, name, field, low, high, needed) \
    { (name), offsetof(spw_raw_config, field), (low), (high), (needed), (of) }
#define SPW_KEY(name, field, low, high, needed) SPW_PART_KEY(SPW_ANY_PART, name, field, low, high, needed)

/* A layer that mixes tokens otherwise than the model's attention: the words for it in layer_types, its keys, its counts. */
typedef struct spw_mixer_kind {
    const char *what, *words[2];
    const spw_key_row *keys;
    void (*count)(const spw_raw_config *raw, spw_model *model, size_t kind);
} spw_mixer_kind;
extern const spw_mixer_kind spw_gated_delta, spw_kimi_delta, spw_lightning, spw_mamba, spw_mamba2,
    spw_mamba2_nemotron, spw_short_convolution, spw_sliding, spw_global, spw_head_gate, spw_sliding_gated,
    spw_block_sparse, spw_window_grouped, spw_compressed, spw_heavily_compressed, spw_no_mixer,
    spw_bailing_delta, spw_laguna_gate, spw_laguna_sliding, spw_axk2_gates, spw_pooled_indexer, spw_dots_gate,
    spw_dots_sliding, spw_gated_sinks, spw_large4_rotary, spw_large4_plain, spw_attention_experts,
    spw_inkling_full, spw_inkling_sliding, spw_zaya_full, spw_zaya_sliding, spw_doge_mask, spw_inkling2_full,
    spw_inkling2_sliding, spw_inkling2_full_loop, spw_inkling2_sliding_loop, spw_query_indexer,
    spw_shared_sliding, spw_shared_global, spw_shared_turn, spw_reads_joined, spw_chooses_joined,
    spw_joins_keys;

/* What an entry of a list of layers says: by a word, by a number (-1: none), or by a letter of a pattern. */
typedef enum spw_layer_ffn { SPW_FFN_COUNTED, SPW_FFN_NONE, SPW_FFN_DENSE, SPW_FFN_EXPERTS } spw_layer_ffn;
typedef struct spw_layer_word {
    const char *word; /* NULL ends the list */
    char letter;
    int64_t number;
    uint8_t mixer;     /* which of the family's kinds; 0: the model's attention */
    spw_layer_ffn ffn; /* COUNTED: other keys say */
} spw_layer_word;

typedef struct spw_family {
    const char *model_type;
    const char *experts[SPW_MODEL_KEYS], *top_k[SPW_MODEL_KEYS],
        *expert_ffn[SPW_MODEL_KEYS]; /* names of the keys, the first that is there counts */
    const char
        *spelled[SPW_MODEL_SPELLED][2]; /* other names of keys: ours, the file's; "a.b" is b within a */
    const char *quiet[SPW_MODEL_QUIET]; /* keys of this family that hold no parameters */
    struct {
        const char *key;
        size_t offset; /* of a bool in spw_model; without the key it is what the family says below */
    } flags[SPW_MODEL_FLAGS];
    unsigned parts;
    const spw_attention_kind *attention; /* NULL: grouped queries */
    spw_shared_rule shared;
    const spw_mixer_kind *mixer; /* the kind beside the model's attention, where `layer_list` is absent */
    /* Models of several kinds of layers: names of the key that lists them, the first that is there counts; what its entries
     * say; what mixer[k] is. Kind 0 may be there too: its rows are then those of the model's attention. */
    const char *layer_list[SPW_MODEL_KEYS];
    const spw_layer_word *layer_words;
    const spw_mixer_kind *kinds[SPW_MODEL_MIXERS];
    bool listed_attention; /* all weights of the model's attention are those of kinds[0] */
    bool half_layers;      /* a layer is a mixer or an FFN alone */
    bool plain_experts;    /* two matrices, without a gate, in routed experts and in all other FFNs */
    size_t interval;       /* of layers that attend, where the file does not say; 0: it must */
    size_t first_dense;    /* dense layers first, where the file does not say */
    size_t
        layer_copies; /* layers of ours in one of the file (LongCat has two attentions and FFNs); 0 counts as 1 */
    const char *list;       /* a list of 0 or 1, or words, one a layer: whether it has experts */
    size_t layer_norms;     /* 0 counts as 2 */
    bool text;              /* the language model is within text_config, beside images or sound */
    bool lists;             /* a number may be a list of equal numbers, one a layer (Hunyuan) */
    bool any_attention;     /* latent where the file says so; keys of parts may be absent */
    bool by_meaning;        /* of a model_type without a row: its keys may have any known name */
    bool qkv_bias;          /* always; else attention_bias says */
    bool no_bias;           /* attention_bias reaches nothing */
    bool gate_bias;         /* attention_bias reaches the gate beside the queries */
    bool no_output_bias;    /* attention_bias does not reach the output projection */
    bool sigmoid_router;    /* with a selection bias, unless scoring_func and topk_method say otherwise */
    bool no_selection_bias; /* a sigmoid router without it */
    bool qk_norm, qk_norm_per_head, expert_bias, router_bias, attention_sinks, query_gate, tied, norm_bias,
        moe_norm, router_scales, layer_scalar;
    bool query_gate_bias;  /* one number a head, beside query_gate */
    bool head_gates;       /* spw_model */
    bool quick_gate;       /* spw_model */
    bool text_first;       /* a number may be a list of text and images: the first counts (ERNIE VL) */
    bool narrow_streams;   /* two mixes of n streams, not n + 2 (HY 4) */
    bool no_layer_norms;   /* residual streams have norms of their own */
    bool no_stream_head;   /* residual streams end in their mean, without weights */
    bool expert_norm;      /* one more norm of latent experts' rows */
    bool selection_bias;   /* without a sigmoid router */
    bool listed_router;    /* spw_model */
    bool unit_experts;     /* experts of one row in and one row out (Doge); other FFNs have three matrices */
    size_t zero_experts;   /* choices that compute nothing, where no key says it */
    size_t usual_top_k;    /* where the file does not say: of all its published models; 0: it must */
    size_t layer_period;   /* of unlike layers, where layer_types is absent; 0 counts as 1 */
    unsigned nested_scans; /* spw_model */
} spw_family;

/* Ended by a row without a key. */
extern const spw_key_row spw_common_keys[];

/* Rows of model_families_more.c, ended by one without a model_type. */
extern const spw_family spw_more_families[], spw_kind_families[];
/* Words of a generic model's layer_types. */
extern const spw_layer_word spw_generic_layers[], spw_meant_layers[];
enum { SPW_MIXER_BY_KEYS = 255 }; /* in a layer word: the linear attention whose keys the file has */
/* Kinds of models that are said part by part. */
enum {
    SPW_KIND_MAMBA2 = 1,
    SPW_KIND_GATED_DELTA,
    SPW_KIND_NONE,
    SPW_KIND_KIMI_DELTA,
    SPW_KIND_LIGHTNING,
    SPW_KIND_CONVOLUTION,
    SPW_KIND_SLIDING,
    SPW_KIND_WINDOW,
    SPW_KIND_COMPRESSED,
    SPW_KIND_HEAVILY,
    SPW_KIND_BLOCKS
};

/* `generic`; and what a model_type without a row is read as, whose own model_type is no file's. */
extern const spw_family spw_generic_family, spw_meant_family;

/* NULL: no such model_type. "llama4_text" is llama4. */
const spw_family *spw_family_find(const char *model_type);
/* The i-th family, NULL behind the last. */
const spw_family *spw_family_at(size_t i);

static inline bool spw_family_has(const spw_family *family, unsigned part) {
    return part == SPW_ANY_PART || (family->parts & part) != 0;
}
/* Whether a model of this family, with that attention, reads the key; whether any model does. `key` may be "a.b", b within a. */
bool spw_family_reads(const spw_family *family, const spw_attention_kind *kind, const char *key);
bool spw_any_family_reads(const char *key);
/* Offers every key that such a model reads, spelled as in its file. */
void spw_family_offer(const spw_family *family, const spw_attention_kind *kind, spw_nearest *nearest);
/* Whether the family says of a key that it holds no parameters. */
bool spw_family_is_quiet(const spw_family *family, const char *key);

#endif
