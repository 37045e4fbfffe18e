#include "sim/schemes/library_limits.h"

#include <inttypes.h>
#include <stdlib.h>

#define LEGACY "v1.2.1 to dd758caf"
#define HYBRID "branch hybrid-ep 94a9f8f6"

/* All read in deepseek-ai/DeepEP. */
static const spw_library_limit limits[] = {
    {SPW_LIBRARY_DEEPEP, "DeepEP", false, SPW_LIMITED_RANKS, SPW_LIMIT_ONE_OF,
     "2 4 8 16 24 32 48 64 96 128 144 160", LEGACY, "read",
     "buffers/legacy.py get_dispatch_config, SWITCH_RDMA_RANKS; v1.2.1 without 48 and 96"},
    {SPW_LIBRARY_DEEPEP, "DeepEP", true, SPW_LIMITED_NODE_RANKS, SPW_LIMIT_MULTIPLE_OF, "8", LEGACY, "read",
     "compiled.cuh LEGACY_NUM_MAX_NVL_PEERS; legacy/buffer.hpp"},
    {SPW_LIBRARY_DEEPEP, "DeepEP", false, SPW_LIMITED_ROW_BYTES, SPW_LIMIT_MULTIPLE_OF, "16", LEGACY, "read",
     "legacy/buffer.hpp: rows of whole int4"},
    {SPW_LIBRARY_DEEPEP, "DeepEP", false, SPW_LIMITED_TOP_K, SPW_LIMIT_AT_MOST, "128", LEGACY, "read",
     "legacy/config.hpp kNumMaxTopK, which the size of the buffer takes for granted"},
    {SPW_LIBRARY_DEEPEP, "DeepEP", false, SPW_LIMITED_LOCAL_EXPERTS, SPW_LIMIT_AT_MOST, "1024", LEGACY,
     "read", "compiled.cuh LEGACY_NUM_MAX_LOCAL_EXPERTS"},
    {SPW_LIBRARY_DEEPEP_LOW_LATENCY, "DeepEP's low-latency mode", false, SPW_LIMITED_BUFFER_BYTES,
     SPW_LIMIT_AT_MOST, "34359738351", "dd758caf", "read",
     "legacy/buffer.hpp: num_rdma_bytes / 16 below 2^31 - 1"},
    {SPW_LIBRARY_DEEPEP_LOW_LATENCY, "DeepEP's low-latency mode", false, SPW_LIMITED_HIDDEN, SPW_LIMIT_ONE_OF,
     "2048 2560 3072 4096 5120 6144 7168 8192", LEGACY, "read",
     "launch.cuh SWITCH_HIDDEN; v1.2.1 has no 3072"},
    {SPW_LIBRARY_DEEPEP_LOW_LATENCY, "DeepEP's low-latency mode", false, SPW_LIMITED_TOP_K, SPW_LIMIT_AT_MOST,
     "11", LEGACY, "read", "internode_ll.cu kNumMaxTopK"},
    {SPW_LIBRARY_HYBRIDEP, "HybridEP", false, SPW_LIMITED_HIDDEN, SPW_LIMIT_MULTIPLE_OF, "16", HYBRID, "read",
     "config.cuh BufferConfig::is_valid"},
    {SPW_LIBRARY_HYBRIDEP, "HybridEP", false, SPW_LIMITED_NODE_EXPERTS, SPW_LIMIT_MULTIPLE_OF, "4", HYBRID,
     "read", "config.cuh BufferConfig::is_valid"},
    {SPW_LIBRARY_HYBRIDEP, "HybridEP", false, SPW_LIMITED_NODE_RANKS, SPW_LIMIT_AT_MOST, "72", HYBRID, "read",
     "config.cuh MAX_NUM_OF_RANKS_PER_NODE"},
    {SPW_LIBRARY_HYBRIDEP, "HybridEP", true, SPW_LIMITED_NODES, SPW_LIMIT_AT_MOST, "33", HYBRID, "read",
     "backend/hybrid_ep_backend.cuh: a warp loads the other nodes at once"},
    {SPW_LIBRARY_HYBRIDEP, "HybridEP", true, SPW_LIMITED_TOKENS, SPW_LIMIT_AT_MOST, "21844", HYBRID, "read",
     "config.cuh: 3 T + 1 entries of a send queue, below 65536"}};

const spw_library_limit *spw_library_limits(size_t *count) {
    *count = sizeof limits / sizeof *limits;
    return limits;
}

static const char *const nouns[SPW_LIMITED_COUNT] = {[SPW_LIMITED_RANKS] = "expert-parallel ranks",
                                                     [SPW_LIMITED_NODE_RANKS] =
                                                         "ranks of the group on a node",
                                                     [SPW_LIMITED_NODES] = "nodes",
                                                     [SPW_LIMITED_HIDDEN] = "hidden numbers a token",
                                                     [SPW_LIMITED_ROW_BYTES] = "bytes a token",
                                                     [SPW_LIMITED_TOP_K] = "choices a token",
                                                     [SPW_LIMITED_LOCAL_EXPERTS] = "experts a rank",
                                                     [SPW_LIMITED_NODE_EXPERTS] = "experts a node",
                                                     [SPW_LIMITED_TOKENS] = "tokens a rank and micro-batch",
                                                     [SPW_LIMITED_BUFFER_BYTES] = "bytes of buffer"};

static uint64_t amount_of(const spw_scheme *scheme, const spw_layer_shape *s, spw_limited what) {
    const uint64_t near = s->node_ranks > 0 ? s->node_ranks : s->ranks;
    switch (what) {
    case SPW_LIMITED_RANKS: return s->ranks;
    case SPW_LIMITED_NODE_RANKS: return near;
    case SPW_LIMITED_NODES: return (s->ranks + near - 1) / near;
    case SPW_LIMITED_HIDDEN: return s->hidden;
    case SPW_LIMITED_ROW_BYTES: return s->hidden * s->element_bytes;
    case SPW_LIMITED_TOP_K: return s->top_k;
    case SPW_LIMITED_LOCAL_EXPERTS: return s->experts_per_rank;
    case SPW_LIMITED_NODE_EXPERTS: return s->experts_per_rank * near;
    case SPW_LIMITED_TOKENS: return s->tokens;
    default: return scheme->type->memory.communication_bytes(scheme, s);
    }
}

static bool keeps(const spw_library_limit *limit, uint64_t amount) {
    const char *text = limit->values;
    for (char *end = NULL; *text != '\0'; text = end) {
        const uint64_t value = strtoull(text, &end, 10);
        if (end == text) return false;
        if (limit->rule == SPW_LIMIT_AT_MOST && amount <= value) return true;
        if (limit->rule == SPW_LIMIT_MULTIPLE_OF && amount % value == 0) return true;
        if (limit->rule == SPW_LIMIT_ONE_OF && amount == value) return true;
    }
    return false;
}

spw_status spw_library_check(const spw_scheme *scheme, const spw_layer_shape *s) {
    static const char *const rules[] = {[SPW_LIMIT_AT_MOST] = "at most ",
                                        [SPW_LIMIT_MULTIPLE_OF] = "a multiple of ",
                                        [SPW_LIMIT_ONE_OF] = "one of "};
    const bool spans = s->node_ranks > 0 && s->node_ranks < s->ranks;
    if (!s->library_limits || s->ranks < 2 || scheme->type->library == NULL) return SPW_OK;
    const spw_library library = (spw_library)scheme->type->library(scheme);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const spw_library_limit *l = &limits[i];
        if (l->library != library || (l->between_nodes && !spans)) continue;
        const uint64_t amount = amount_of(scheme, s, l->what);
        if (keeps(l, amount)) continue;
        return spw_fail(SPW_ECONFIG, "scheme '%s': %s takes %s%s %s%s, not %" PRIu64 " (limit of %s, %s)",
                        scheme->text, l->name, rules[l->rule], l->values, nouns[l->what],
                        l->between_nodes && l->what != SPW_LIMITED_NODES ? " between nodes" : "", amount,
                        l->version, l->source);
    }
    return SPW_OK;
}
