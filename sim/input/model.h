/* The model of a job: shapes, parameter counts. Read from a Hugging Face config.json as it is published; the
 * presets are such files, shipped in sim/models/ and compiled in. */
#ifndef SPW_SIM_INPUT_MODEL_H
#define SPW_SIM_INPUT_MODEL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SPW_MODEL_MAX_LAYERS = 1024,
    SPW_MODEL_NAME = 64,
    SPW_MODEL_SOURCE = 256,
    SPW_MODEL_DOUBTS = 8,
    SPW_MODEL_DOUBT = 320,
    SPW_MIXER_NAME = 64
};

typedef enum spw_attention { SPW_ATTENTION_GQA, SPW_ATTENTION_MLA } spw_attention;

/* What mixes the tokens of the layers that do not attend like the model's attention: Mamba, linear attention, a convolution,
 * or attention of another shape. One kind a model. */
typedef struct spw_mixer {
    char what[SPW_MIXER_NAME]; /* "Mamba" */
    size_t layers;             /* 0 = none */
    bool attends;              /* attention of another shape, not a recurrence */
    uint64_t parameters;       /* of one layer, without the norms around it */
    uint64_t state; /* elements that one sequence keeps in one layer, whatever its length; 0 if it attends */
    /* Where tensor and context parallelism are described (docs/schemes.md, section 5.10); else all 0. */
    size_t key_heads, value_heads; /* which both cut */
    uint64_t replicated;           /* of `parameters`: whole on every GPU of a tensor group */
    uint64_t into, out_of;         /* elements a token that context ranks exchange before and behind it */
} spw_mixer;

typedef struct spw_model {
    char name[SPW_MODEL_NAME], source[SPW_MODEL_SOURCE]; /* source: where the shapes were read */
    size_t layers, moe_layers;
    size_t
        layers_per_turn; /* of MaxText's scan over layers: the period of unlike layers, 1 where all are alike */
    bool nested_scans;   /* newer trees of MaxText scan the layers of such a period one by one (Gemma 4) */
    uint8_t is_moe[SPW_MODEL_MAX_LAYERS];         /* [layers] 1: routed experts, 0: dense FFN */
    uint8_t is_other[SPW_MODEL_MAX_LAYERS];       /* [layers] 1: `other` mixes the tokens, 0: attention */
    uint8_t shares_indexer[SPW_MODEL_MAX_LAYERS]; /* [layers] 1: uses the choice of an indexer before it */
    spw_mixer other;
    size_t hidden, vocab;
    size_t experts, top_k, expert_ffn;
    size_t shared_ffn;   /* width of all shared experts together; 0 = none */
    size_t dense_ffn;    /* width of the dense layers' FFN; 0 = none */
    size_t replicas;     /* of `experts`, copies that a balancer made: no router column, no optimizer state */
    size_t mtp_layers;   /* layers of multi-token prediction, which count where a job's layout names them */
    size_t zero_experts; /* choices that compute nothing (LongCat); beside `experts` */
    size_t groups, groups_kept;          /* group-limited routing; 1, 1 = off */
    bool sigmoid_router, selection_bias; /* selection_bias: one value an expert, for the choice only */
    spw_attention attention;
    size_t heads, kv_heads, head_dim;                                 /* GQA; values are v_head_dim wide */
    size_t q_lora_rank, kv_lora_rank, nope_dim, rope_dim, v_head_dim; /* MLA; q_lora_rank 0 = plain q */
    bool attention_bias, output_bias, qk_norm, expert_bias, router_bias, attention_sinks, tied_embeddings;
    bool qk_norm_per_head; /* qk_norm: weights of head_dim (Qwen3), else of the whole projection (OLMoE) */
    bool shared_gate;      /* Qwen2-MoE: a gate of [hidden] on the shared expert */
    bool query_gate_bias;  /* beside query_gate: one number a head (Beam) */
    bool query_gate; /* attention's output is gated by a projection as wide as the queries (Qwen3-Next) */
    size_t indexer_heads, indexer_dim; /* of a sparse indexer (DeepSeek-V3.2); 0 = none */
    size_t layer_norms;                /* norms of [hidden] a layer */
    bool norm_bias, head_bias;         /* layer norms with a bias (Phi-MoE); a bias of the head */
    bool moe_norm;                     /* one more norm in layers with experts (A.X-K1) */
    bool router_scales,
        layer_scalar; /* Gemma 4: a scale of [hidden] and [experts] a router, one number a layer */
    char doubt[SPW_MODEL_DOUBTS]
              [SPW_MODEL_DOUBT]; /* sentences: what the file says and is not in the figures; "" = none */
} spw_model;

/* Parameters, in units of one. Per layer where the name says so. */
typedef struct spw_parameters {
    uint64_t embedding, head, final_norm; /* head = 0 when tied */
    uint64_t attention_per_layer;         /* projections, biases, q/k norms, gate, indexer */
    uint64_t indexer_per_layer;           /* the indexer's share of them, in layers that have one */
    uint64_t other_mixer_per_layer;       /* of a layer in which `other` mixes */
    uint64_t mixers, mixer_most;          /* of all layers, attention and other; of the layer that has most */
    uint64_t norms_per_layer;
    uint64_t routed_per_layer; /* all experts of one MoE layer, biases included */
    uint64_t shared_per_layer, router_per_layer;
    uint64_t dense_ffn_per_layer;
    uint64_t total,
        active; /* active: embedding and head once, top_k experts; of LongCat's, those that compute if choices are even */
} spw_parameters;

/* `name` is a preset, an alias, or the path of a config.json (it contains a '/' or ends in ".json"; relative
 * to `folder` when that is not NULL). SPW_ECONFIG names the key, what was found and what would be right. */
SPW_MUST_CHECK spw_status spw_model_read(const char *name, const char *folder, spw_model *out);
/* The same from text; `where` is named in messages. */
SPW_MUST_CHECK spw_status spw_model_parse(const char *where, const char *text, size_t length, spw_model *out);

spw_parameters spw_model_parameters(const spw_model *model);
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

/* The preset that a name stands for, MaxText's or a repository's, or the name itself. */
const char *spw_model_preset_of(const char *name);
/* Names of the presets, ended by NULL. */
const char *const *spw_model_presets(void);

#endif
