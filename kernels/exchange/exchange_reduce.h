/* What the kernels that add rows have in common. `rows` says where they are: a class with the address of a row, of its numbers
 * beside it, and source(), the item that it is of, behind which a part of it may be read. */
#ifndef SPW_KERNELS_EXCHANGE_EXCHANGE_REDUCE_H
#define SPW_KERNELS_EXCHANGE_EXCHANGE_REDUCE_H

#include "kernels/exchange/exchange_peer.h"

GPU_DEVICE int exchange_reduce_bytes(const spw_reduce_gpu &a) {
    return 2 * a.width + 4 * a.side + (a.source[0] == nullptr ? 0 : 4);
}

GPU_DEVICE void exchange_store(spw_bf16 *y, long piece, const float sum[8]) {
    gpu_bf16x8 out;
#pragma unroll
    for (int i = 0; i < 8; i++) out.v[i] = gpu_to_bf16(sum[i]);
    ((gpu_bf16x8 *)y)[piece] = out;
}

/* What a wave knows of the copies in its lanes. */
struct reduce_copies {
    exchange_copy copy;
    float weight;
    unsigned long long left; /* those whose rows are added */
};

/* Adds a part of the rows, in order: UNROLL pieces of TOGETHER copies are asked for before the first is added. Lanes behind the end
 * read the part's first. */
template <int UNROLL, int TOGETHER, class rows>
GPU_DEVICE void exchange_add(const rows &where, reduce_copies c, int at, int pieces, float sum[UNROLL][8]) {
    while (c.left != 0) {
        gpu_bytes16 x[TOGETHER][UNROLL];
        float by[TOGETHER];
        bool there[TOGETHER];
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            there[t] = c.left != 0;
            if (!there[t]) continue;
            const int from = gpu_lowest(c.left);
            const int rank = (int)gpu_shuffle((unsigned)c.copy.rank, from);
            const long row = (int)gpu_shuffle((unsigned)c.copy.row, from);
            const gpu_bytes16 *data = where.row(rank, row, pieces);
            by[t] = gpu_shuffle_float(c.weight, from);
            c.left &= c.left - 1;
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                x[t][u] = data[at + u * GPU_WAVE < pieces ? at + u * GPU_WAVE : at - gpu_lane()];
        }
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            if (!there[t]) continue;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum[u][i] = __builtin_fmaf(by[t], gpu_bf16_of(x[t][u], i), sum[u][i]);
            }
        }
    }
}

/* side_sum of one item; a lane adds one number. */
template <class rows>
GPU_DEVICE void exchange_add_side(const spw_reduce_gpu &a, const spw_peers &p, const exchange_block *b,
                                  const rows &where, long item) {
    for (int k = gpu_lane(); k < a.side; k += GPU_WAVE) {
        float sum = 0;
        for (int f = 0; f < a.copies; f++) {
            const exchange_copy copy = exchange_copy_of(a, p, b, item, f);
            if (copy.row >= 0) sum += where.side(copy)[k];
        }
        a.side_sum[item * a.side + k] = sum;
    }
}

/* Parts of an item: of its row, and one of the numbers beside it. There is always one. */
template <int UNROLL> GPU_ANYWHERE int exchange_parts(int width, int side) {
    const int of_rows = (width / 8 + UNROLL * GPU_WAVE - 1) / (UNROLL * GPU_WAVE);
    return of_rows + (side > 0 || of_rows == 0 ? 1 : 0);
}

/* A wave's parts n of the work: the first two of `way`, then what it takes. */
template <int UNROLL, int TOGETHER, class rows>
GPU_DEVICE void exchange_reduce_parts(const spw_reduce_gpu &a, const spw_peers &p, exchange_block *b,
                                      const rows &where, exchange_way way, exchange_copy next) {
    enum { PART = UNROLL * GPU_WAVE };
    const int pieces = a.width / 8, of_rows = (pieces + PART - 1) / PART,
              parts = exchange_parts<UNROLL>(a.width, a.side);
    const int count = exchange_turns(a) * parts;
    unsigned asked = 0;
    for (int n = way.begin, behind = way.behind; n < count;
         n = behind, behind = exchange_told(p, asked, n, way.step)) {
        const long item = exchange_item(a, n / parts);
        asked = exchange_ask(p, way.work);
        const int at = n % parts * PART + gpu_lane();
        float sum[UNROLL][8] = {};
        for (int first = 0; first < a.copies; first += GPU_WAVE) {
            const int f = first + gpu_lane();
            const exchange_copy copy = first == 0 ? next : exchange_copy_of(a, p, b, item, f);
            const float weight = a.weight == nullptr || copy.row < 0 ? 1 : a.weight[item * a.copies + f];
            const bool counts = n % parts == 0 && copy.row >= 0;
            const int source = where.source(copy, item, n % parts, counts);
            const unsigned long long added = gpu_ballot(copy.row >= 0 && n % parts < of_rows);
            if (first == 0) next = exchange_copy_of(a, p, b, exchange_item(a, behind / parts), gpu_lane());
            exchange_add<UNROLL, TOGETHER>(where, {copy, weight, added}, at, pieces, sum);
            if (!counts) continue;
            gpu_add(&b->rows[copy.rank], 1);
            if (source != (int)item) p.control[p.rank]->stale = 1 + (int)item;
        }
        if (item >= a.items) continue;
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (at + u * GPU_WAVE < pieces) exchange_store(a.y, item * pieces + at + u * GPU_WAVE, sum[u]);
        if (n % parts == of_rows) exchange_add_side(a, p, b, where, item);
    }
}

#endif
