#include "sim/schemes/deepep_buffers.h"

/* Recommended ring lengths in tokens, dispatch and combine alike in what they reserve (the greater of the
 * two). */
static const struct {
    size_t ranks, nvl_receive, rdma_send, rdma_receive;
} configs[] = {{8, 256, 6, 128}, {16, 288, 20, 128}, {64, 288, 8, 128}};

static uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

spw_deepep_buffers spw_deepep_buffer_hint(size_t ranks, size_t hidden, size_t element_bytes, size_t sms) {
    const uint64_t row_bytes = hidden * (element_bytes > 2 ? element_bytes : 2);
    const uint64_t channels = sms / 2, peers = ranks < 8 ? ranks : 8, nodes = ranks > 8 ? (ranks + 7) / 8 : 1;
    const uint64_t slots = 128 * (8 + 4 + 4); /* index, weight and scale slots reserved a token */
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
