#include "sim/schemes/deepep/nccl_ep.h"

#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/padded_rows.h"

enum { CHUNK = 64, PIECE = 256, PAGE = 4096, WORKSPACE = 32 << 20, MASK_RANKS = 64 };

static uint64_t near_ranks(const spw_layer_shape *s) {
    return s->node_ranks > 0 && s->node_ranks < s->ranks ? s->node_ranks : s->ranks;
}

static uint64_t piece(uint64_t bytes) { return spw_pad_up(bytes, PIECE); }
static uint64_t page(uint64_t bytes) { return spw_pad_up(bytes, PAGE); }

size_t spw_nccl_ep_tokens(const spw_layer_shape *s) { return spw_pad_up(s->tokens, CHUNK); }

uint64_t spw_nccl_ep_handle_bytes(const spw_layer_shape *s, uint64_t slots) {
    const uint64_t tokens = spw_nccl_ep_tokens(s), near = near_ranks(s), nodes = s->ranks / near,
                   masks = 8 * ((near + MASK_RANKS - 1) / MASK_RANKS);
    const uint64_t maps = piece(nodes * tokens) + piece((nodes - 1) * tokens) +
                          piece(slots * s->experts_per_rank),
                   senders = piece(4 * nodes * tokens * near) + piece(masks * nodes * tokens * near) +
                             (nodes == 1 ? piece(4 * tokens * s->experts) : 0) + piece(8 * tokens * s->top_k),
                   places = 2 * piece(4 * slots * s->top_k) + piece(4 * tokens * s->ranks),
                   counts = PIECE + piece(4 * s->experts_per_rank) + piece(8 * (s->experts_per_rank + 1));
    return maps + senders + places + counts;
}

/* Between nodes: both directions of combine, flags, what waits to be sent, and what arrives. */
static uint64_t between_nodes(const spw_layer_shape *s, uint64_t row, uint64_t weights) {
    const uint64_t tokens = spw_nccl_ep_tokens(s), nodes = s->ranks / near_ranks(s), others = nodes - 1;
    if (nodes == 1) return 0;
    return 2 * page(tokens * others * row) + 2 * page(tokens * others * weights) +
           2 * page(8 * others * (tokens / CHUNK)) + 2 * page(8 * nodes) + page(tokens * row) +
           page(4 * tokens * s->experts) + 2 * page(others * tokens * (row + weights));
}

uint64_t spw_nccl_ep_group_bytes(const spw_layer_shape *s, uint64_t slots) {
    const uint64_t tokens = spw_nccl_ep_tokens(s), near = near_ranks(s), row = s->hidden * s->element_bytes,
                   weights = 4 * s->experts_per_rank * near,
                   bits = (s->experts_per_rank * near + 7) / 8 * (s->ranks / near);
    return 2 * piece(s->ranks * tokens * row) + 2 * piece(slots * weights) + piece(slots * row) +
           between_nodes(s, row, weights) + s->ranks * tokens * bits + WORKSPACE;
}

spw_status spw_nccl_ep_check(const spw_scheme *scheme, const spw_layer_shape *s) {
    const size_t local = s->experts_per_rank;
    if (s->ranks < 2)
        return spw_fail(SPW_ECONFIG, "scheme '%s': NCCL EP needs two expert-parallel ranks or more, not %zu",
                        scheme->text, s->ranks);
    if ((local & (local - 1)) != 0 || local * near_ranks(s) % 4 != 0)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': %zu experts a rank; NCCL EP takes a power of two, and of all ranks of a "
            "node a multiple of 4",
            scheme->text, local);
    return spw_hybrid_ep_check(scheme, s);
}
