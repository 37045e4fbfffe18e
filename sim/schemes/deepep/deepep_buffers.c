#include "sim/schemes/deepep/deepep_buffers.h"

#include "sim/schemes/deepep/deepep_jax.h"
#include "sim/schemes/layer_builder.h"
#include "sim/schemes/library_limits.h"
#include "sim/schemes/list.h"
#include "sim/schemes/padded_rows.h"

/* Recommended ring lengths in tokens, dispatch and combine alike in what they reserve (the greater of the
 * two). */
static const struct {
    size_t ranks, nvl_receive, rdma_send, rdma_receive;
} configs[] = {{8, 256, 6, 128}, {16, 288, 20, 128}, {64, 288, 8, 128}};

static uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

spw_deepep_buffers spw_deepep_buffer_hint(size_t ranks, size_t hidden, size_t element_bytes, size_t sms) {
    const uint64_t row_bytes = hidden * (element_bytes > 2 ? element_bytes : 2);
    const uint64_t channels = sms / 2, peers = ranks < 8 ? ranks : 8, nodes = ranks > 8 ? (ranks + 7) / 8 : 1;
    const uint64_t slots = UINT64_C(128) * (8 + 4 + 4); /* index, weight and scale slots reserved a token */
    size_t i = 0;
    while (i + 1 < sizeof configs / sizeof configs[0] && configs[i].ranks < ranks) i++;
    spw_deepep_buffers b = {0, 0};
    b.nvl_bytes = round_up(channels * peers * (2 * nodes + 3) * 4 +
                               channels * peers * configs[i].nvl_receive * (row_bytes + 8 + slots),
                           128);
    if (nodes > 1) {
        uint64_t receive = round_up(configs[i].rdma_receive, configs[i].rdma_send);
        b.rdma_bytes = round_up(channels * nodes * 18 * 2 * 4 +
                                    2 * channels * nodes * receive * (row_bytes + 8 + slots + 16),
                                128);
    }
    return b;
}

bool spw_deepep_spans_nodes(const spw_layer_shape *s) {
    return s->node_ranks > 0 && s->ranks > s->node_ranks;
}

static size_t scales_of(const spw_layer_shape *s) { return (s->hidden + 127) / 128; }

uint64_t spw_deepep_row_bytes(const spw_layer_shape *s, spw_deepep_row row) {
    const bool spans = spw_deepep_spans_nodes(s);
    const uint64_t index = spans && row.index_bytes > 0 ? 4 : row.index_bytes,
                   payload = (row.fp8 ? s->hidden + 4 * scales_of(s) : s->hidden * s->element_bytes) +
                             s->top_k * (index + (row.weights ? 4 : 0));
    return spans ? round_up(payload + 8, 16) : payload + 4;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t spw_deepep_low_latency_bytes(const spw_layer_shape *s, size_t tokens) {
    const uint64_t scales = s->hidden / 128, dispatch = 16 + larger(2 * s->hidden, s->hidden + 4 * scales),
                   combine = 4 * scales + 2 * s->hidden, slots = s->experts * tokens,
                   send = larger(tokens * dispatch, slots * combine),
                   receive = slots * larger(dispatch, combine),
                   total = 2 * send + 2 * receive + 2 * round_up(4 * s->experts, 128);
    return (total + 128) / 128 * 128;
}

spw_hybrid_ep_buffers spw_hybrid_ep_buffer_sizes(const spw_layer_shape *s, size_t tokens) {
    const uint64_t node = s->node_ranks > 0 ? s->node_ranks : s->ranks, nodes = (s->ranks + node - 1) / node,
                   most = s->ranks * tokens, probabilities = s->experts_per_rank * node, row = 2 * s->hidden;
    spw_hybrid_ep_buffers b = {.token_bytes = most * row,
                               .probability_bytes = most * probabilities * 4,
                               .scale_bytes = most * (s->hidden / 128) * 4,
                               .rdma_token_bytes = tokens * (nodes - 1) * row,
                               .rdma_probability_bytes = tokens * (nodes - 1) * probabilities * 4};
    if (nodes > 1) {
        const uint64_t scales = 4 * (s->hidden / 128),
                       input = tokens * (row + s->experts * 4 + scales), /* of all experts */
            received = b.rdma_token_bytes + b.rdma_probability_bytes;
        b.rdma_bytes = input + received + tokens * (nodes - 1) * scales + 2 * received;
    }
    return b;
}

uint64_t spw_hybrid_ep_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    const spw_hybrid_ep_buffers b = spw_hybrid_ep_buffer_sizes(s, s->tokens);
    (void)scheme;
    return b.token_bytes + b.probability_bytes + b.scale_bytes + b.rdma_bytes;
}

static double factor_of(const spw_scheme *scheme) {
    return spw_scheme_option_value(scheme, scheme->type->routing.factor);
}

void spw_hybrid_ep_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_scheme *scheme = routed->scheme;
    spw_deepep_flow(routed, out);
    spw_pad_within(
        routed, spw_pad_of(scheme),
        factor_of(scheme) > 0.0 ? scheme->type->memory.buffer_rows(scheme, routed->shape) : UINT64_MAX, out);
}

size_t spw_hybrid_ep_rows(const spw_scheme *scheme, size_t rows) {
    return spw_pad_up((uint64_t)((double)rows * factor_of(scheme)), spw_pad_of(scheme));
}

double spw_hybrid_ep_worst(const spw_scheme *scheme, const spw_layer_shape *s, size_t rows) {
    const uint64_t padding = s->experts_per_rank * (spw_pad_of(scheme) - 1);
    return (double)(s->worst_rows + padding) / (double)rows;
}

int spw_hybrid_ep_library(const spw_scheme *scheme) {
    (void)scheme;
    return SPW_LIBRARY_HYBRIDEP;
}

spw_status spw_hybrid_ep_check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (s->node_ranks == 0 || s->ranks % s->node_ranks == 0) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': %zu expert-parallel ranks on nodes of %zu; a multiple of the node would be right",
        scheme->text, s->ranks, s->node_ranks);
}

static uint64_t aligned(uint64_t bytes, uint64_t multiple) {
    return (bytes + multiple - 1) / multiple * multiple;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t spw_deepep_elastic_bytes(const spw_layer_shape *s, size_t tokens, bool fp8) {
    enum { TMA = 32, CHANNELS = 8 * 160, BUFFER = 2 << 20 };
    const uint64_t near = s->node_ranks > 0 && s->node_ranks < s->ranks ? s->node_ranks : s->ranks,
                   nodes = s->ranks / near, choices = 8 * s->top_k,
                   scales = fp8 ? aligned(4 * ((s->hidden + 31) / 32), TMA) : 0,
                   back = aligned(2 * s->hidden, TMA) + aligned(choices, TMA),
                   there = aligned((fp8 ? 1 : 2) * s->hidden, TMA) + scales +
                           aligned(choices + 4 * (1 + s->top_k), TMA);
    uint64_t dispatch = s->ranks * tokens, combine = smaller(s->ranks, s->top_k) * tokens;
    if (nodes > 1) {
        dispatch = near * nodes * tokens + tokens + nodes * (tokens + CHANNELS);
        combine = smaller(near, s->top_k) * nodes * tokens + smaller(nodes, s->top_k) * tokens +
                  nodes * (tokens + CHANNELS);
    }
    dispatch *= there;
    combine *= back;
    return aligned(dispatch > combine ? dispatch : combine, BUFFER);
}

size_t spw_hybrid_ep_exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                               spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const size_t node_ranks = s->node_ranks > 0 ? s->node_ranks : s->ranks;
    const uint64_t row = s->hidden * s->element_bytes, weights = 4 * s->experts_per_rank * node_ranks;
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, row + weights},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, row + weights},
        {"combine again", SPW_PHASE_RECOMPUTE, true, row},
        {"combine gradient", SPW_PHASE_BACKWARD, false, row},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row + weights},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

void spw_hybrid_ep_maps_born(spw_layer_builder *b) {
    spw_layer_born(
        b, "preprocess",
        (spw_tensor){"global_routing_map", SPW_ROWS_GATHERED, SPW_WIDTH_EXPERTS, .element_bytes = 1});
    spw_layer_born(b, "preprocess",
                   (spw_tensor){"sparse_to_dense_map", SPW_ROWS_TOKENS, SPW_WIDTH_RANKS, .element_bytes = 4});
    spw_layer_born(b, "preprocess",
                   (spw_tensor){"local_expert_routing_map", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS,
                                .element_bytes = 1});
    spw_layer_born(
        b, "preprocess",
        (spw_tensor){"dense_to_expert_map", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 4});
    spw_layer_dies(b, "preprocess", "global_routing_map");
}

void spw_hybrid_ep_maps_die(spw_layer_builder *b, const char *step) {
    spw_layer_dies(b, step, "sparse_to_dense_map");
    spw_layer_dies(b, step, "local_expert_routing_map");
    spw_layer_dies(b, step, "dense_to_expert_map");
}
