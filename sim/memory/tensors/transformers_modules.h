/* Modules of Hugging Face transformers as operations of a tape (sim/memory/tensors/autograd_tape.h), statement by statement of their
 * forward(). Read: transformers 5.17.0 models/{qwen3_moe,mixtral,olmoe}/modeling_*.py (RMSNorm, Attention, TopKRouter, Experts,
 * MLP, DecoderLayer), integrations/moe.py (grouped_mm_experts_forward), integrations/sdpa_attention.py, loss/loss_utils.py
 * (ForCausalLMLoss); peft 0.21.2 tuners/lora/layer.py (Linear.forward); torch 2.11 tools/autograd/derivatives.yaml. Bytes of what
 * kernels take for themselves (sort, index_put_, cuDNN's attention, reductions over rows) are of torch 2.11 on an H100, seen in its
 * allocator's history (notebooks_data/measured/transformers_h100.csv). */
#ifndef SPW_SIM_MEMORY_TENSORS_TRANSFORMERS_MODULES_H
#define SPW_SIM_MEMORY_TENSORS_TRANSFORMERS_MODULES_H

#include "sim/memory/tensors/autograd_tape.h"
#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>

/* What a tensor is of: the kinds of its events. */
#define SPW_TRANSFORMERS_KINDS(X) \
    X(WEIGHTS, "weights") \
    X(MOMENTS, "optimizer_moments") \
    X(GRADIENTS, "gradients") \
    X(GATHERED, "gathered_weights") \
    X(GATHERS, "all_gather_buffers") \
    X(REDUCED, "reduce_scatter_buffers") \
    X(BUCKETS, "gradient_buckets") \
    X(NORMS, "norms") \
    X(ATTENTION, "attention") \
    X(MIXER, "mixers") \
    X(ROUTER, "router") \
    X(EXPERTS, "experts") \
    X(FFN, "ffn") \
    X(ADAPTERS, "adapters") \
    X(HIDDEN, "hidden_states") \
    X(LOGITS, "logits_and_loss") \
    X(STREAMS, "streams") \
    X(COMPRESSOR, "compressor") \
    X(INDEXER, "indexer") \
    X(WORKSPACE, "workspaces")
#define SPW_TRANSFORMERS_ENUM(name, text) SPW_HF_##name,
typedef enum spw_transformers_kind {
    SPW_TRANSFORMERS_KINDS(SPW_TRANSFORMERS_ENUM) SPW_HF_KINDS
} spw_transformers_kind;
#undef SPW_TRANSFORMERS_ENUM
const char *spw_transformers_kind_name(size_t kind);

/* Rates of a tape's products. */
enum {
    SPW_HF_DENSE_PRODUCT,
    SPW_HF_GROUPED_PRODUCT,
    SPW_HF_ATTENTION_PRODUCT,
    SPW_HF_SMALL_PRODUCT,
    SPW_HF_SCAN_PRODUCT, /* within kernels of recurrences */
    SPW_HF_FP32_PRODUCT  /* of an indexer */
};

typedef enum spw_transformers_norm {
    SPW_HF_NORM_NONE,
    SPW_HF_NORM_HEAD,
    SPW_HF_NORM_WHOLE
} spw_transformers_norm;

/* What an RMSNorm does with its weight: in the model's format, behind the cast; in fp32, before it (Nemotron-H); the same with 1 + w
 * (Qwen3-Next); in its own format, before it (gpt-oss). */
typedef enum spw_transformers_scale {
    SPW_HF_SCALE_NARROW,
    SPW_HF_SCALE_WIDE,
    SPW_HF_SCALE_CENTRED,
    SPW_HF_SCALE_MIXED
} spw_transformers_scale;

typedef enum spw_transformers_router {
    SPW_HF_ROUTER_SOFTMAX,
    SPW_HF_ROUTER_SIGMOID, /* DeepSeek-V3's */
    SPW_HF_ROUTER_GROUPS,  /* DeepSeek-V2's */
    SPW_HF_ROUTER_SHARES,  /* MiniMax-M3's, sigmoid of logits in the model's format */
    SPW_HF_ROUTER_ROOTS,   /* DeepSeek-V4's, by roots of softplus or by the token's number */
    SPW_HF_ROUTER_CHOSEN   /* gpt-oss', softmax of the greatest logits in the model's format */
} spw_transformers_router;

/* What a gated FFN makes of its gate: silu; silu of what is clamped (DeepSeek-V4); gate and up from one matrix,
 * clamped, (up + 1) gate sigmoid(a gate) (MiniMax-M3); the same with columns in turns (gpt-oss). */
typedef enum spw_transformers_gate {
    SPW_HF_GATE_SILU,
    SPW_HF_GATE_CLAMPED,
    SPW_HF_GATE_SHIFTED,
    SPW_HF_GATE_TURNS
} spw_transformers_gate;

/* What turns queries and keys. */
typedef enum spw_transformers_rotation {
    SPW_HF_ROTATION_HALVES,
    SPW_HF_ROTATION_PAIRS,   /* DeepSeek-V3's, of even and odd numbers */
    SPW_HF_ROTATION_COMPLEX, /* DeepSeek-V2's, of complex numbers in fp32 */
    SPW_HF_ROTATION_QUARTER, /* Qwen3-Next's, of the first quarter of a head */
    SPW_HF_ROTATION_APART,   /* gpt-oss', halves of a head one by one, by tables of half a head */
    SPW_HF_ROTATION_NONE     /* Nemotron-H's, Kimi Linear's */
} spw_transformers_rotation;

/* Of MiniMax-M3's heads: rotary_dim / head_dim, 64 / 128 [MiniMaxM3VLTextConfig]. */
enum { SPW_HF_TURNED_PART = 2 };

typedef struct spw_transformers_shape {
    const spw_model *model;
    size_t tokens, sequences;     /* of a micro-batch; tokens of a sequence are tokens / sequences */
    size_t layers, element_bytes; /* of activations and gathered weights */
    size_t weight_bytes, moment_bytes, reduced_bytes; /* as they are kept; of a gradient that is reduced */
    size_t shards;                                    /* GPUs of FSDP2; 1: none */
    size_t summed;       /* GPUs of DDP, each with all, which sum gradients once a step; 0, 1: none */
    bool wrapped;        /* in FSDP2 */
    bool keeps_gathered; /* reshard_after_forward false */
    bool checkpoint, eager_experts, keeps_logits;
    bool fused_loss; /* Liger's fused linear cross-entropy, which holds no logits behind it */
    bool frozen, adapts_attention, adapts_all; /* all: linears of dense FFNs and of shared experts */
    size_t adapter_bytes;                      /* of adapters and of their moments; 0: as weights */
    bool adapts_experts, adapts_router;        /* parameters of routed experts; the router's */
    size_t lora_rank, micro_batches;
    spw_transformers_norm norm;
    spw_transformers_scale scale;
    spw_transformers_router router;
    spw_transformers_rotation rotation;
    spw_transformers_gate gate;
    bool compressed;  /* DeepSeek-V4's attention, and its residual streams */
    bool blocks;      /* MiniMax-M3's attention */
    bool wide_router; /* the router's matrix is in fp32, whatever the model is in */
    bool unmasked;    /* grouped products mask rows of other ranks under expert parallelism alone (5.24.0) */
    bool wide_scores; /* router weights stay in fp32 (Mixtral, DeepSeek) */
    bool sinks;       /* gpt-oss' attention, and its biases */
    bool scores;      /* of it, by eager attention */
} spw_transformers_shape;

/* A weight: a matrix or a vector of the module, with the adapter beside it. */
typedef struct spw_hf_weight {
    spw_value leaf;
    uint64_t rows, columns; /* as it is stored: FSDP2 cuts rows */
    bool trained;
    bool wide;   /* in fp32, whatever the model is in */
    bool biased; /* a bias stands behind it */
} spw_hf_weight;

typedef struct spw_hf_model spw_hf_model;
typedef struct spw_hf_layer spw_hf_layer;

/* What mixes tokens in a layer: a row and a file a kind. */
typedef struct spw_hf_mixer {
    void (*weights)(spw_hf_model *model, spw_hf_layer *layer); /* in the order of the module's parameters */
    spw_value (*forward)(spw_hf_model *model, const spw_hf_layer *layer, spw_value x); /* x keeps its name */
} spw_hf_mixer;
extern const spw_hf_mixer spw_hf_grouped_attention, spw_hf_latent_attention, spw_hf_gated_attention,
    spw_hf_compressed_attention, spw_hf_block_attention, spw_hf_sink_attention, spw_hf_mamba2,
    spw_hf_gated_delta, spw_hf_kimi_delta;
/* The row of a layer; NULL: it has no mixer, or one that is not described. */
const spw_hf_mixer *spw_hf_mixer_of(const spw_model *model, size_t layer);

enum { SPW_HF_LAYER_WEIGHTS = 48, SPW_HF_MIXER_WEIGHTS = 24, SPW_HF_STREAM_WEIGHTS = 3 };
struct spw_hf_layer {
    size_t first, end; /* of the module's weights */
    const spw_hf_mixer *mixer;
    size_t q, k, v, o, q_norm, k_norm;         /* of grouped attention */
    size_t mixer_weight[SPW_HF_MIXER_WEIGHTS]; /* of other mixers, each by its own numbers */
    const spw_recurrence *recurrence;          /* of the mixer */
    size_t gate_up, down, router, ffn_gate, ffn_up, ffn_down, shared_gate, latent_in, latent_out;
    size_t input_norm, post_norm;
    size_t streams[2][SPW_HF_STREAM_WEIGHTS]; /* around the mixer, around the FFN */
    size_t kind;                              /* of the model's mixers */
    bool moe, ffn, hash; /* has experts; has them or a dense FFN; the token's number chooses them */
};

struct spw_hf_model {
    const spw_transformers_shape *shape;
    spw_tape *tape;
    spw_hf_weight *weight; /* [weights] in the order of the module's parameters */
    size_t weights, room;
    spw_hf_layer *layer;                /* [layers] */
    size_t embedding, final_norm, head; /* head = embedding where tied */
    size_t stream_head[SPW_HF_STREAM_WEIGHTS];
    spw_value *hidden; /* [layers + 1] inputs of the layers */
    spw_value cosine, sine, logits;
    spw_value embedded, mask; /* names of the whole forward pass */
    bool ran;
};

/* Bytes of a trained number as it is kept: of an adapter beside a frozen base, else of a weight. */
size_t spw_hf_trained_bytes(const spw_transformers_shape *shape);
/* Adapters that autocast makes narrow, as they are wider than activations and no FSDP2 gathers them: their gradients are wide, and the
 * narrow copies stay until the backward pass. */
bool spw_hf_casts_adapters(const spw_transformers_shape *shape);

SPW_MUST_CHECK spw_status spw_hf_model_create(const spw_transformers_shape *shape, spw_tape *tape,
                                              spw_hf_model **out);
void spw_hf_model_destroy(spw_hf_model *model); /* NULL is fine */

/* Is it MiniMax-M3's attention, some of it block-sparse? */
bool spw_hf_attention_is_by_blocks(const spw_model *model);

/* hidden[0] and the rotary tables. */
void spw_hf_begin(spw_hf_model *model);
/* hidden[index] becomes hidden[index + 1]; `of` is the model. The input keeps its name. */
void spw_hf_layer_forward(spw_tape *tape, void *of, size_t index);
/* Rows of a piece of Liger's loss: as many logits as hidden states, up to a power of two
 * [linkedin/Liger-Kernel 0.8.0 src/liger_kernel/ops/fused_linear_cross_entropy.py, fused_linear_cross_entropy_forward]. */
uint64_t spw_hf_loss_rows(uint64_t rows, uint64_t vocab, uint64_t hidden);
/* The last norm, the head and the loss. */
spw_value spw_hf_loss(spw_hf_model *model);
/* Behind the backward pass: what layers under checkpoint were given is there until then. */
void spw_hf_end(spw_hf_model *model);

#endif
