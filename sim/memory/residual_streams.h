/* What the mixing of residual streams (mHC, hc_mult n) keeps for the backward pass and moves, beside the n T H b that a layer is given
 * and gives. Read in NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/hyper_connection.py (HyperConnectionModule) and
 * transformer_layer.py (HyperConnectionTransformerLayer): before attention and before the FFN a module each reads the streams x
 * [T, n H], projects them to n n + 2 n numbers, sums them into one stream [T, H], and behind the part gives
 * H_res x + h_post y. docs/schemes.md, section 7.18. */
#ifndef SPW_SIM_MEMORY_RESIDUAL_STREAMS_H
#define SPW_SIM_MEMORY_RESIDUAL_STREAMS_H

#include "sim/memory/footprint.h"

/* Numbers a token that a layer keeps more than with one stream; 0 with one. Of p = 2 parts (1 where attention and FFN are layers of
 * their own): the streams between the parts (p - 1) n H; each part's input before its norm and its output, 2 p H, less the norm's input
 * that counts with one stream too, H; and of the mixing p (3 n n + 4 n + 2): the projection, h_pre, h_post, the matrix before and behind
 * Sinkhorn's iterations, norm and its inverse. */
double spw_streams_kept(const spw_model *model);
/* Bytes of them a token; under Primus (AMD-AGI/Primus fd1eeabb primus/backends/megatron/core/transformer/hyper_connection.py,
 * HyperMixer) with the normed streams in fp32 that each projection reads, p n H more. */
double spw_streams_kept_bytes(const spw_job *job, const spw_scheme *scheme);
/* Numbers that a forward pass of one layer reads and writes for it: p (9 n + 2) H. */
double spw_streams_moved(const spw_model *model);
/* Multiplications of a token in one layer: p (n H (n n + 2 n) + n n H). */
double spw_streams_products(const spw_model *model);

/* The component of the layer at work; and with attention over the residuals of earlier blocks (attn_res_block_size) the sums of blocks,
 * at most all of the model for every micro-batch in flight. What their mixing keeps is not counted. */
void spw_streams_add(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                     const spw_layer_shape *shape);

#endif
