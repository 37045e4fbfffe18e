/* What the kernels that send rows have in common: how they begin, and the words beside a payload. */
#ifndef SPW_KERNELS_EXCHANGE_EXCHANGE_SEND_H
#define SPW_KERNELS_EXCHANGE_EXCHANGE_SEND_H

#include "kernels/exchange/exchange_peer.h"

GPU_DEVICE void exchange_send_enter(const spw_send_gpu &a, const spw_peers &p, exchange_block *b,
                                    int threads) {
    if (a.parts & SPW_SEND_NOTICED) {
        exchange_bases(p, b, a.handle, threads);
    } else {
        exchange_given_bases(p, b, a.base, threads);
        exchange_enter(p, threads);
    }
}

/* Bytes of one copy. */
GPU_DEVICE int exchange_send_bytes(const spw_send_gpu &a) {
    return a.row_bytes +
           4 * ((a.parts & SPW_SEND_SCALES ? a.scales : 0) + (a.parts & SPW_SEND_CHOICES ? 2 * a.top_k : 0) +
                (a.parts & SPW_SEND_SOURCE ? 1 : 0));
}

/* The words of one item to the copies in `mask`; a lane moves a word. */
GPU_DEVICE void exchange_send_words(const spw_send_gpu &a, long item, exchange_copy copy,
                                    unsigned long long mask) {
    const int s = a.scales, k = a.top_k, words = s + 2 * k + 1;
    for (int start = 0; start < words; start += GPU_WAVE) {
        const int w = start + gpu_lane();
        const int part = w < s ? SPW_SEND_SCALES : w < s + 2 * k ? SPW_SEND_CHOICES : SPW_SEND_SOURCE;
        const bool there = w < words && (a.parts & part) != 0;
        unsigned word = (unsigned)item;
        int expert = -1;
        if (there && part == SPW_SEND_SCALES) word = gpu_float_bits(a.scale[item * s + w]);
        if (there && part == SPW_SEND_CHOICES) {
            const int slot = w < s + k ? w - s : w - s - k;
            expert = a.expert[item * k + slot];
            word = w < s + k ? 0 : gpu_float_bits(a.weight[item * k + slot]);
        }
        for (unsigned long long left = mask; left != 0; left &= left - 1) {
            const int from = gpu_lowest(left);
            const int rank = (int)gpu_shuffle((unsigned)copy.rank, from);
            const long row = (int)gpu_shuffle((unsigned)copy.row, from), capacity = a.capacity[rank];
            unsigned *to = (unsigned *)(a.window[rank] + capacity * a.row_bytes);
            if (!there) continue;
            const int own = expert - rank * a.local;
            const bool mine = expert >= 0 && own >= 0 && own < a.local;
            if (w < s) {
                to[row * s + w] = word;
            } else if (w < s + k) {
                to[capacity * s + row * k + (w - s)] = (unsigned)(mine ? own : -1);
            } else if (w < s + 2 * k) {
                to[capacity * (s + k) + row * k + (w - s - k)] = mine ? word : 0;
            } else {
                to[capacity * (s + 2 * k) + row] = word;
            }
        }
    }
}

#endif
