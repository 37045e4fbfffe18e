/* DeepEP V1: bytes a token row takes on the wire, and the sizes of the communication buffers
 * (docs/schemes.md, sections 4.2 and 4.3; deepseek-ai/DeepEP csrc/legacy/config.hpp). */
#ifndef SPW_SIM_SCHEMES_DEEPEP_DEEPEP_BUFFERS_H
#define SPW_SIM_SCHEMES_DEEPEP_DEEPEP_BUFFERS_H

#include "sim/schemes/scheme.h"

#include <stdint.h>

/* What a row carries beside H elements. */
typedef struct spw_deepep_row {
    bool fp8;           /* elements of 1 byte and an fp32 scale for every 128; else activations */
    size_t index_bytes; /* of an expert index of each choice; 0: none travel */
    bool weights;       /* an fp32 weight, or its gradient, of each choice */
} spw_deepep_row;

/* Does the group span nodes? Then every row takes the internode form, on NICs and inside nodes alike. */
bool spw_deepep_spans_nodes(const spw_layer_shape *shape);

/* Inside a node: H elements, scales, indices and weights, and 4 bytes of source index. Across nodes: 8 bytes of source,
 * indices of 4 bytes, the whole rounded up to 16 (intranode.cu; internode.cu get_num_bytes_per_token). */
uint64_t spw_deepep_row_bytes(const spw_layer_shape *shape, spw_deepep_row row);

/* get_low_latency_rdma_size_hint: two sets of send and receive buffers for `tokens` a rank at most, and counters. */
uint64_t spw_deepep_low_latency_bytes(const spw_layer_shape *shape, size_t tokens);

/* HybridEP, `tokens` a rank at most; dispatch and combine share the buffers inside a node (docs, section 4.8;
 * csrc/hybrid_ep/buffer/{intranode.cu,internode_nixl.cu}). */
typedef struct spw_hybrid_ep_buffers {
    uint64_t token_bytes, probability_bytes, scale_bytes; /* inside the node */
    uint64_t rdma_token_bytes, rdma_probability_bytes;    /* one received set; 0 in one node */
    uint64_t rdma_bytes; /* all between nodes: input copy, received, and twice that for combine */
} spw_hybrid_ep_buffers;
spw_hybrid_ep_buffers spw_hybrid_ep_buffer_sizes(const spw_layer_shape *shape, size_t tokens);
uint64_t spw_hybrid_ep_bytes(const spw_scheme *scheme,
                             const spw_layer_shape *shape); /* the sum for a rank's tokens, of any scheme */
/* HybridEP's six exchanges: forward a row takes along the weights of all experts of the destination's node, and their gradients
 * back. Its maps of a dispatch, "preprocess", and their end. */
size_t spw_hybrid_ep_exchanges(const spw_scheme *scheme, const spw_layer_shape *shape,
                               spw_exchange out[SPW_SCHEME_EXCHANGES]);
void spw_hybrid_ep_maps_born(spw_layer_builder *builder);
void spw_hybrid_ep_maps_die(spw_layer_builder *builder, const char *step);
/* Rows as the kernel permutes them: padded by expert; with a factor above 0, the option that .routing.factor names, held within
 * the scheme's .memory.buffer_rows. */
void spw_hybrid_ep_flow(const spw_routed_group *routed, spw_flow *out);
/* A buffer of `rows` times the factor, padded; and the factor with which nothing is dropped: every expert may leave a part of its last
 * tile empty. */
size_t spw_hybrid_ep_rows(const spw_scheme *scheme, size_t rows);
double spw_hybrid_ep_worst(const spw_scheme *scheme, const spw_layer_shape *shape, size_t rows);
int spw_hybrid_ep_library(const spw_scheme *scheme);
/* What schemes with HybridEP have alike. */
#define SPW_HYBRID_EP_ROW \
    .library = spw_hybrid_ep_library, .traffic.by_node = true, .traffic.once_a_rank = true, \
    .traffic.exchanges = spw_hybrid_ep_exchanges, .routing.limits = true, \
    .routing.flow = spw_hybrid_ep_flow, .routing.lines = spw_no_lines, .routing.balance = spw_pad_balance, \
    .memory.communication_bytes = spw_hybrid_ep_bytes, \
    .memory.communication_source = "registered buffers (4.8)", \
    .memory.communication_formula = \
        "R T rows and their weights; between nodes T rows in, (nodes - 1) T received, twice that back"
/* SPW_ECONFIG: the group is no whole number of nodes. */
SPW_MUST_CHECK spw_status spw_hybrid_ep_check(const spw_scheme *scheme, const spw_layer_shape *shape);

/* Version 2, the registered buffer of ElasticBuffer for `tokens` a rank at most, without its workspace: the larger of what
 * dispatch and combine take, in the hybrid mode between nodes and with several reductions, as by default (docs, section 4.3;
 * csrc/elastic/buffer.hpp calculate_buffer_size). */
uint64_t spw_deepep_elastic_bytes(const spw_layer_shape *shape, size_t tokens, bool fp8);

/* NVLink and, beyond 8 ranks, RDMA buffer of one rank, with `sms` multiprocessors in use (two a channel).
 * They do not depend on the tokens: rows pass through rings. element_bytes counts as 2 at least. */
typedef struct spw_deepep_buffers {
    uint64_t nvl_bytes, rdma_bytes;
} spw_deepep_buffers;
spw_deepep_buffers spw_deepep_buffer_hint(size_t ranks, size_t hidden, size_t element_bytes, size_t sms);

#endif
