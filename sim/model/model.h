/* The model of a job: shapes, parameter counts. Read from a Hugging Face config.json as it is published; the
 * presets are such files, shipped in sim/models/ and compiled in. */
#ifndef SPW_SIM_MODEL_MODEL_H
#define SPW_SIM_MODEL_MODEL_H

#include "base/status.h"
#include "sim/model/matrix.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SPW_MODEL_MAX_LAYERS = 1024,
    SPW_MODEL_NAME = 64,
    SPW_MODEL_SOURCE = 256,
    SPW_MODEL_DOUBTS = 8,
    SPW_MODEL_DOUBT = 320,
    SPW_MIXER_NAME = 64,
    SPW_MODEL_MIXERS = 12,
    SPW_MODEL_MATRICES = 72
};

typedef struct spw_attention_kind spw_attention_kind; /* sim/model/attention.h */

/* What a recurrence is made of, where its tensors are described (sim/memory/tensors/transformers_modules.h, sim/memory/kept/mixer_kept.h). Mamba-2:
 * keys are B and C, `key` the elements of a state. */
typedef enum spw_recurrence_kind {
    SPW_RECURRENCE_NONE,
    SPW_RECURRENCE_MAMBA2,
    SPW_RECURRENCE_GATED_DELTA,
    SPW_RECURRENCE_KIMI_DELTA
} spw_recurrence_kind;
typedef struct spw_recurrence {
    spw_recurrence_kind kind;
    size_t key_heads, value_heads, key, value; /* heads, and the elements of one */
    size_t taps, chunk;                        /* of the convolution; tokens of a chunk of the scan */
} spw_recurrence;

/* What mixes the tokens of layers that do not attend like the model's attention: Mamba, linear attention, a convolution, attention
 * of another shape, or nothing. Its weights are rows of spw_model.matrix. A model has some such kinds; kind 0 is its attention. */
typedef struct spw_mixer {
    char what[SPW_MIXER_NAME]; /* "Mamba" */
    size_t layers;
    bool attends;   /* attention of another shape, not a recurrence */
    uint64_t state; /* elements that one sequence keeps in one layer, whatever its length; 0 if it attends */
    /* Scores of attention: its heads and the elements of a key and a value; 0 heads: as the model's attention over all tokens. A
     * query sees the last `window` tokens, and of the tokens that `every` joins to one at most `most`, 0: all of them; without
     * `every` and `window` all tokens before it. `index`: products by which it chooses among the joined ones. */
    size_t heads, key, value, window, every, most, index;
    /* Where tensor and context parallelism are described (docs/schemes.md, section 5.10); else all 0. */
    size_t key_heads, value_heads; /* which both cut */
    uint64_t into, out_of;         /* elements a token that context ranks exchange before and behind it */
    spw_recurrence recurrence;
} spw_mixer;

typedef struct spw_model {
    char name[SPW_MODEL_NAME], source[SPW_MODEL_SOURCE]; /* source: where the shapes were read */
    size_t layers, moe_layers;
    size_t
        layers_per_turn; /* of MaxText's scan over layers: the period of unlike layers, 1 where all are alike */
    unsigned
        nested_scans; /* trees of MaxText from this level on (sim/job/recipe/remat.h) scan the layers of such a period one by one; 0: none */
    uint8_t is_moe[SPW_MODEL_MAX_LAYERS];         /* [layers] 1: routed experts, 0: dense FFN or none */
    uint8_t is_bare[SPW_MODEL_MAX_LAYERS];        /* [layers] 1: no FFN at all */
    uint8_t mixer_of[SPW_MODEL_MAX_LAYERS];       /* [layers] 0: attention, k: mixer[k] mixes the tokens */
    uint8_t shares_indexer[SPW_MODEL_MAX_LAYERS]; /* [layers] 1: uses the choice of an indexer before it */
    spw_mixer mixer[SPW_MODEL_MIXERS];            /* [0]: which keys the model's attention sees, no more */
    size_t bare_layers, other_layers;             /* without an FFN; that do not attend like the model */
    bool half_layers;                             /* a layer is a mixer or an FFN alone (Nemotron) */
    /* Weights beside those that the fields below count; see matrix.h. */
    spw_matrix matrix[SPW_MODEL_MATRICES];
    size_t matrices;
    size_t hidden, vocab;
    size_t experts, top_k, expert_ffn; /* of the layer that has most */
    uint16_t fewer_experts[SPW_MODEL_MAX_LAYERS],
        fewer_choices[SPW_MODEL_MAX_LAYERS]; /* [layers] than that; 0 without experts */
    size_t lacking_experts, lacking_choices; /* sums of them over the layers */
    size_t latent;                 /* width of the rows that routed experts take and give; 0: hidden */
    bool plain_experts, plain_ffn; /* two matrices, without a gate: routed experts; all other FFNs */
    size_t streams,
        residual_blocks;  /* residual streams, 0: one; layers of a block whose sums later layers attend to */
    size_t stream_rounds; /* of the division of rows and columns of what mixes streams (hc_sinkhorn_iters) */
    size_t hash_layers;   /* the token's id chooses: no selection bias */
    size_t shared_ffn;    /* width of all shared experts together; 0 = none */
    size_t dense_ffn;     /* width of the dense layers' FFN; 0 = none */
    /* Of routed experts in the published file: bits of an element, elements and bytes of a scale; 0 bits: not said. */
    size_t stored_bits, stored_group, stored_scale;
    size_t replicas;   /* of `experts`, copies that a balancer made: no router column, no optimizer state */
    size_t mtp_layers; /* layers of multi-token prediction, which count where a job's layout names them */
    size_t loop_start, loop_end,
        loop_passes;            /* layers [start, end) run so many times with the same weights; 0: once */
    size_t head_rows;           /* of the head; 0: vocab */
    size_t zero_experts;        /* choices that compute nothing (LongCat); beside `experts` */
    size_t groups, groups_kept; /* group-limited routing; 1, 1 = off */
    bool sigmoid_router, selection_bias; /* selection_bias: one value an expert, for the choice only */
    const spw_attention_kind *attention; /* NULL: grouped queries */
    size_t heads, kv_heads, head_dim;    /* GQA; values are v_head_dim wide */
    size_t q_lora_rank, kv_lora_rank, nope_dim, rope_dim, v_head_dim; /* MLA; q_lora_rank 0 = plain q */
    bool attention_bias, output_bias, qk_norm, expert_bias, router_bias, attention_sinks, tied_embeddings;
    bool qk_norm_per_head; /* qk_norm: weights of head_dim (Qwen3), else of the whole projection (OLMoE) */
    bool shared_gate;      /* Qwen2-MoE: a gate of [hidden] on the shared expert */
    bool head_gates;       /* attention's output has a gate of one number a head (Laguna) */
    bool query_gate_bias;  /* beside query_gate: one number a head (Beam) */
    bool query_gate; /* attention's output is gated by a projection as wide as the queries (Qwen3-Next) */
    size_t indexer_heads, indexer_dim; /* of a sparse indexer (DeepSeek-V3.2); 0 = none */
    size_t layer_norms;                /* norms of [hidden] a layer */
    bool conv_bias, full_rank_gate;    /* of a mixer: a bias of its convolution, a gate of one matrix */
    bool output_gate, latent_norm; /* of latent attention's output (Kimi K3); of what latent experts give */
    bool norm_bias, head_bias;     /* layer norms with a bias (Phi-MoE); a bias of the head */
    bool listed_router;            /* all weights of the router are rows of SPW_IN_MOE_LAYER */
    bool projection_bias;          /* of Mamba: of what goes in and out */
    bool gate_bias;                /* beside query_gate and attention_bias: as wide as the queries */
    bool keys_are_values;          /* of a kind of full layers (Gemma 4) */
    bool double_ffn;               /* layers that use keys of a layer before have a dense FFN twice as wide */
    bool ffn_bias;                 /* of FFNs beside routed experts */
    bool quick_gate; /* experts' gate is a GELU by x * sigmoid(1.702 x), of shapes like SwiGLU's (gpt-oss) */
    bool moe_norm;   /* one more norm in layers with experts (A.X-K1) */
    bool router_scales,
        layer_scalar; /* Gemma 4: a scale of [hidden] and [experts] a router, one number a layer */
    char doubt[SPW_MODEL_DOUBTS]
              [SPW_MODEL_DOUBT]; /* sentences: what the file says and is not in the figures; "" = none */
} spw_model;

/* Parameters, in units of one. Per layer where the name says so. */
typedef struct spw_parameters {
    uint64_t embedding, head, final_norm;       /* head = 0 when tied */
    uint64_t tables;                            /* looked up beside the embedding: of n-grams, of layers */
    uint64_t attention_per_layer;               /* projections, biases, q/k norms, gate, indexer */
    uint64_t indexer_per_layer;                 /* the indexer's share of them, in layers that have one */
    uint64_t mixer_per_layer[SPW_MODEL_MIXERS]; /* of a layer of each kind; [0]: attention */
    uint64_t mixers, mixer_most; /* of all layers, attention and other; of the layer that has most */
    uint64_t norms_per_layer;    /* with what else stands beside mixer and FFN, such as residual streams */
    uint64_t latent_per_layer;   /* the projections around latent experts; counted in the router too */
    uint64_t expert;             /* one routed expert */
    uint64_t routed_per_layer;   /* all experts of one MoE layer, biases included */
    uint64_t shared_per_layer, router_per_layer;
    uint64_t dense_ffn_per_layer;
    uint64_t total,
        active; /* active: embedding and head once, top_k experts; of LongCat's, those that compute if choices are even */
} spw_parameters;

/* `name` is a preset, an alias, the text of a config.json, which begins with '{', or the path of a config.json (it contains a '/' or ends in ".json"; relative
 * to `folder` when that is not NULL). SPW_ECONFIG names the key, what was found and what would be right. */
SPW_MUST_CHECK spw_status spw_model_read(const char *name, const char *folder, spw_model *out);
/* The same from text; `where` is named in messages. */
SPW_MUST_CHECK spw_status spw_model_parse(const char *where, const char *text, size_t length, spw_model *out);

spw_parameters spw_model_parameters(const spw_model *model);

/* Bytes of all routed experts as the published file stores them, scales included; 0 where it does not say. */
uint64_t spw_model_stored_experts(const spw_model *model);

/* Elements of all routed experts; of a router's columns that belong to one expert. Saturating. */
uint64_t spw_model_routed(const spw_model *model);
uint64_t spw_model_router_column(const spw_model *model);

/* Matrices of a routed expert, and of any other FFN: 3 with a gate, 2 without. */
static inline size_t spw_expert_matrices(const spw_model *m) { return m->plain_experts ? 2 : 3; }
static inline size_t spw_ffn_matrices(const spw_model *m) { return m->plain_ffn ? 2 : 3; }
/* Width of the rows that go to routed experts and come back. */
static inline size_t spw_model_routed_width(const spw_model *m) {
    return m->latent > 0 ? m->latent : m->hidden;
}
/* Numbers a token between two layers. */
static inline size_t spw_model_carried(const spw_model *m) {
    return m->hidden * (m->streams > 1 ? m->streams : 1);
}
/* Layers with a dense FFN. */
static inline size_t spw_model_dense_layers(const spw_model *m) {
    return m->layers - m->moe_layers - m->bare_layers;
}
/* The first kind of layers beside the model's attention; one without layers where there is none. */
static inline const spw_mixer *spw_model_other(const spw_model *m) {
    size_t k = 1;
    while (k + 1 < SPW_MODEL_MIXERS && m->mixer[k].layers == 0) k++;
    return &m->mixer[k];
}
/* Tokens that a query of a kind sees, of `length`, on average over the sequence. */
double spw_mixer_keys(const spw_mixer *k, size_t length);
/* Parameters of the mixer of the layer that has most: of those with experts, or of the others, where a layer is a mixer or an FFN
 * alone; else of all. */
uint64_t spw_model_mixer_most(const spw_model *model, bool experts);
/* Layers that attend and have an indexer of their own. */
size_t spw_model_indexer_layers(const spw_model *model);
/* Columns of the product that makes queries, their gate, keys and values of grouped-query attention. */
size_t spw_model_query_key_value(const spw_model *model);
/* Of one layer of multi-token prediction: a layer with experts, a projection of two inputs, norms of both and of the output. */
typedef struct spw_mtp_parameters {
    uint64_t routed, rest;
} spw_mtp_parameters;
spw_mtp_parameters spw_mtp_parameters_of(const spw_model *model);
/* The job counts its layers of multi-token prediction: what is said of them changes. */
void spw_model_count_mtp(spw_model *model);

/* The preset that a name stands for, MaxText's or a repository's, or the name itself: of what may be a path, too, the repository is one
 * of an owner who has published a preset. */
const char *spw_model_preset_of(const char *name);
/* The preset that a name of a repository, a file or another framework means, "any/Qwen3-30B-A3B-Instruct-2507". NULL: none. */
const char *spw_model_of_name(const char *name);
const char *spw_model_nearest(const char *name); /* the preset that was probably meant; NULL: none is near */
/* A number of the model's own file, of what is no size and a model here does without: "rope_theta", "rms_norm_eps". NAN: the file has
 * none, or is not found. */
double spw_model_file_number(const char *name, const char *key);
/* Names of the presets, ended by NULL. */
const char *const *spw_model_presets(void);

#endif
