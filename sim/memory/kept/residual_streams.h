/* What the mixing of residual streams (mHC, hc_mult n) keeps for the backward pass and moves, beside the n T H b that a layer is given
 * and gives. Read in NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/hyper_connection.py (HyperConnectionModule) and
 * transformer_layer.py (HyperConnectionTransformerLayer): before attention and before the FFN a module each reads the streams x
 * [T, n H], projects them to n n + 2 n numbers, sums them into one stream [T, H], and behind the part gives
 * H_res x + h_post y. docs/schemes.md, section 7.18. */
#ifndef SPW_SIM_MEMORY_KEPT_RESIDUAL_STREAMS_H
#define SPW_SIM_MEMORY_KEPT_RESIDUAL_STREAMS_H

#include <stddef.h>

typedef struct spw_model spw_model;             /* sim/model/model.h */
typedef struct spw_job spw_job;                 /* sim/job/job.h */
typedef struct spw_scheme spw_scheme;           /* sim/schemes/scheme.h */
typedef struct spw_layer_shape spw_layer_shape; /* the same */
typedef struct spw_footprint spw_footprint;     /* sim/memory/kept/component.h */
typedef struct spw_stage spw_stage;             /* sim/weights/stage.h */

/* Wide numbers a token that a layer keeps more than with one stream; 0 with one. Of p = 2 parts (1 where attention and FFN are layers of
 * their own): the streams between the parts (p - 1) n H; each part's input before its norm and its output, 2 p H, less the norm's input
 * that counts with one stream too, H. */
double spw_streams_kept(const spw_model *model);
/* Bytes a token of the small ones, of elements of b bytes: p (4 (2 n n + 4 n + 1) + b (n n + 2 n)). In fp32 the projection, h_pre, h_post,
 * the matrix before Sinkhorn's iterations and the norm; all three weights as they are used. */
double spw_streams_mixing_bytes(const spw_model *model, size_t b);
/* Bytes of all a token. Where no fused kernel projects the streams, an fp32 copy of them is kept for each projection, p n H more
 * [read: NVIDIA/Megatron-LM d48bd6be, branch dev, transformer/hyper_connection.py _projection_and_get_norm, where use_fused_mhc is off;
 * executed: notebooks_data/measured/megatron_cpu_streams.csv; AMD-AGI/Primus fd1eeabb, HyperMixer]. */
double spw_streams_kept_bytes(const spw_job *job, const spw_scheme *scheme);

/* Megatron-Core's recompute module mhc: what checkpoints give of a group of layers (all of a chunk, or mhc_recompute_layer_num) is freed
 * behind the forward pass of the group, and made again in front of its backward pass [read: the same, and tensor_parallel/random.py
 * MHCCheckpointManager, transformer_block.py; executed]. The fp32 copies stay. */
typedef struct spw_streams_again {
    double layer
        [2]; /* bytes of a layer that waits, beside its input [without experts, with them]: between its parts n H, both sums,
                         both norms' outputs where norms are modules of their own */
    double input;  /* of its input on average: layers within a group lose it, the first of each keeps it */
    double group;  /* of the largest group's other layers, which are all there while one of them works */
    size_t layers; /* of that group */
    double share;  /* of layers that have it: those of multi-token prediction do not */
} spw_streams_again;
/* All 0 without the module. */
spw_streams_again spw_streams_again_of(const spw_job *job, const spw_stage *stage,
                                       const spw_layer_shape *shape);
/* Numbers that the module writes and reads again in a layer: p (7 n + 4) H: the sums, norms and the streams behind each part. */
double spw_streams_moved_again(const spw_model *model);
/* Numbers that a forward pass of one layer reads and writes for it: p (9 n + 2) H. */
double spw_streams_moved(const spw_model *model);
/* Multiplications of a token in one layer: p (n H (n n + 2 n) + n n H). */
double spw_streams_products(const spw_model *model);

/* The component of the layer at work; of the module mhc `mhc_group`, the group's other layers; and with attention over the residuals of
 * earlier blocks (attn_res_block_size) the sums of blocks, at most all of the model for every micro-batch in flight. What their mixing
 * keeps is not counted. */
void spw_streams_add(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                     const spw_layer_shape *shape);

#endif
