/* What the host costs a Megatron-Core job: gaps in which the GPU waits for launches, and the least that a layer's launches take.
 *
 *   gap of a layer      layer_gap_s + with an fp8 recipe recipe_gap_s; in a MoE layer expert_gap_s x experts of a rank more, and where
 *                       the host reads the counts of an all-to-all, which are known before its wire is free, counts_gap_s - what
 *                       the layer's exchanges of the pass take, if that is more than 0; x tensor_gap_share with tensor parallelism
 *   floor of a layer    host_floor_s + with an fp8 recipe recipe_floor_s; in a MoE layer expert_floor_s x experts of a rank more, and
 *                       unlike_floor_s x the share of a rank's experts whose number of rows no other has: each product of theirs is a
 *                       shape that cuBLAS chooses an algorithm for; and where experts run one behind the other, as Muon has them
 *                       without TransformerEngine, sequential_floor_s x experts of a rank more
 *
 * of the passes of one micro-batch, and a third more where layers run again: of gaps a third is forward, of floors
 * floor_forward_share. A layer that is a mixer or an
 * FFN alone has half of layer_gap_s, of recipe_gap_s, of host_floor_s and of recipe_floor_s. CUDA graphs of parts of a layer leave partial_graph_share of
 * both, those of a whole iteration nothing. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_HOST_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_HOST_H

#include "sim/machine/megatron_coefficients.h"
#include "sim/schemes/point.h"

#include <stdbool.h>

typedef struct spw_block spw_block; /* sim/weights/stage.h */

typedef struct spw_megatron_host {
    double layer_s, moe_layer_s; /* gaps of a layer, and what a MoE layer's are longer */
    double counts_s;             /* of a MoE layer, of which its exchanges cover what they take */
    double floor_s, moe_floor_s; /* of a layer, and what a MoE layer's is more */
    double unlike_s;             /* of a MoE layer, where all rows of a rank's experts are unlike */
    double forward_share, floor_forward_share; /* of gaps and of floors */
} spw_megatron_host;

spw_megatron_host spw_megatron_host_of(const spw_megatron_coefficients *coefficients, const spw_point *point);

/* Of a block, both passes, without counts_s. */
double spw_megatron_gaps_s(const spw_megatron_host *host, const spw_block *block);

/* The least of a block, both passes, of experts with like rows. */
double spw_megatron_floor_s(const spw_megatron_host *host, const spw_block *block);

/* Kernels of a pass of a block, and its routing: of which `wire_s` are exchanges; `unlike`: of its MoE layers' experts. */
typedef struct spw_megatron_pass {
    double seconds, wire_s, unlike;
} spw_megatron_pass;

/* What the forward or the backward pass of a block takes, gaps and floor included. */
double spw_megatron_pass_s(const spw_megatron_host *host, const spw_block *block, bool back,
                           const spw_megatron_pass *pass);

#endif
