/* How the kernels of the ranks meet: see exchange_launch.h. */
#ifndef SPW_KERNELS_EXCHANGE_EXCHANGE_PEER_H
#define SPW_KERNELS_EXCHANGE_EXCHANGE_PEER_H

#include "kernels/exchange/exchange_launch.h"
#include "kernels/gpu/gpu_system.h"

GPU_DEVICE bool exchange_reached(unsigned seen, unsigned epoch) { return (int)(seen - epoch) >= 0; }

/* How long a thread has spun for a rank. Asked whether that is enough, it looks at the clock now and then, and at
 * whether another thread has given up: what follows then is of no use, and waits no more. */
struct exchange_patience {
    unsigned long long start;
    int turn;

    GPU_MEMBER bool ends(const spw_peers &p, int rank) {
        spw_control *own = p.control[p.rank];
        if (turn == 0) start = gpu_nanoseconds();
        if (++turn % 1024 != 0) return false;
        if (gpu_acquire_system((const unsigned *)&own->late) != 0) return true;
        if (gpu_nanoseconds() - start < (unsigned long long)p.wait * 1000000000ull) return false;
        own->late = 1 + rank;
        return true;
    }
};

/* Spins until *flag has come to the epoch. */
GPU_DEVICE void exchange_wait(const spw_peers &p, const unsigned *flag, int rank) {
    exchange_patience patience = {0, 0};
    while (!exchange_reached(gpu_peek_system(flag), p.epoch) && !patience.ends(p, rank)) {
    }
    (void)gpu_acquire_system(flag);
}

/* All blocks call it first: all ranks have come to this exchange, so what they let us read is there, and where we
 * write is free. */
GPU_DEVICE void exchange_enter(const spw_peers &p, int threads) {
    if (!p.wait) return;
    for (int r = gpu_thread(); r < p.ranks; r += threads) {
        if (gpu_block() == 0) gpu_release_earlier(&p.control[r]->ready[p.rank], p.epoch);
        exchange_wait(p, &p.control[p.rank]->ready[r], r);
    }
    gpu_barrier();
}

/* All threads of all blocks call it last: the kernel ends when all ranks are here, and what they wrote to us has
 * arrived. */
GPU_DEVICE void exchange_leave(const spw_peers &p, int threads, int blocks) {
    __shared__ int last;
    if (!p.wait) return;
    gpu_settle();
    gpu_barrier();
    if (gpu_thread() == 0) {
        spw_control *own = p.control[p.rank];
        gpu_fence_system(); /* for all that the block wrote before the barrier */
        last = gpu_add(&own->finished, 1u) == (unsigned)blocks - 1;
        if (last) {
            own->finished = own->taken[0] = own->taken[1] = 0;
            gpu_fence_system(); /* for all that the other blocks wrote */
            for (int r = 0; r < p.ranks; r++) gpu_tell_system(&p.control[r]->done[p.rank], p.epoch);
        }
    }
    gpu_barrier();
    if (!last) return;
    for (int r = gpu_thread(); r < p.ranks; r += threads) exchange_wait(p, &p.control[p.rank]->done[r], r);
}

/* A wave's parts of a work (spw_control.taken): the first two are `step` apart. Then it takes the next that no wave has taken, for
 * some multiprocessors are nearer to other GPUs than others: lane 0 asks, and all are told a part later. Where no kernel waits, and so
 * none knows which block is the last, and on AMD, where a wave would wait for all of its stores before it is told: the one `step`
 * behind n. */
struct exchange_way {
    int work, begin, behind, step;
};
#if defined(__CUDA_ARCH__)
GPU_DEVICE bool exchange_takes(const spw_peers &p) { return p.wait != 0; }
GPU_DEVICE unsigned exchange_ask(const spw_peers &p, int work) {
    return p.wait && gpu_lane() == 0 ? gpu_add(&p.control[p.rank]->taken[work], 1u) : 0;
}
GPU_DEVICE int exchange_told(const spw_peers &p, unsigned asked, int n, int step) {
    return step + (p.wait ? step + (int)gpu_shuffle(asked, 0) : n);
}
#else
GPU_DEVICE bool exchange_takes(const spw_peers &) { return false; }
GPU_DEVICE unsigned exchange_ask(const spw_peers &, int) { return 0; }
GPU_DEVICE int exchange_told(const spw_peers &, unsigned, int n, int step) { return step + n; }
#endif

/* All threads of all blocks call it last, where a kernel ends for itself: what the others write to it has been waited for part by
 * part. */
GPU_DEVICE void exchange_end(const spw_peers &p, int blocks) {
    spw_control *own = p.control[p.rank];
    gpu_barrier();
    if (!exchange_takes(p) || gpu_thread() != 0 || gpu_add(&own->finished, 1u) != (unsigned)blocks - 1)
        return;
    own->finished = own->taken[0] = own->taken[1] = 0;
}

/* What a block keeps in shared memory about the ranks. */
struct exchange_block {
    int base[SPW_WORLD_RANKS], rows[SPW_WORLD_RANKS]; /* first row at each; rows that this block moved */
    int sent[SPW_WORLD_RANKS];                        /* of a source to this rank */
};

/* The notices of all ranks: the number of tokens of each pair. Waits for each; nothing else is ordered by it. */
GPU_DEVICE int exchange_notice(const spw_peers &p, int source, int destination) {
    const unsigned long long *notice = &p.control[p.rank]->notice[source][destination];
    if (!p.wait) return (int)(unsigned)*notice;
    exchange_patience patience = {0, 0};
    while (!exchange_reached((unsigned)(gpu_peek_system(notice) >> 32), p.epoch))
        if (patience.ends(p, source)) return 0;
    return (int)(unsigned)gpu_peek_system(notice);
}

/* base[d] = tokens of earlier ranks to d. Block 0 keeps the whole matrix in the handle. */
GPU_DEVICE void exchange_bases(const spw_peers &p, exchange_block *b, spw_handle *handle, int threads) {
    const int pairs = p.ranks * p.ranks;
    for (int d = gpu_thread(); d < SPW_WORLD_RANKS; d += threads) b->base[d] = b->rows[d] = 0;
    gpu_barrier();
    for (int d = gpu_thread(); p.wait && d < p.ranks; d += threads)
        exchange_wait(p, &p.control[p.rank]->placed[d], p.rank);
    for (int i = gpu_thread(); i < pairs; i += threads) {
        const int s = i / p.ranks, d = i % p.ranks, tokens = exchange_notice(p, s, d);
        if (s < p.rank) gpu_add(&b->base[d], tokens);
        if (d == p.rank) b->sent[s] = tokens;
        if (gpu_block() == 0) handle->sent[s][d] = tokens;
    }
    gpu_barrier();
    if (gpu_block() != 0) return;
    for (int d = gpu_thread(); d < p.ranks; d += threads) handle->base[d] = b->base[d];
    if (gpu_thread() == 0) {
        int row = 0;
        for (int s = 0; s < p.ranks; s++) handle->first[s] = row, row += b->sent[s];
        handle->first[p.ranks] = p.control[p.rank]->late == 0 ? row : -1;
    }
}

/* handle->offset, by one wave, when the counts of all ranks are here. Rows do not need them. */
GPU_DEVICE void exchange_offsets(const spw_peers &p, spw_handle *handle, int local) {
    const spw_control *own = p.control[p.rank];
    const bool wait = p.wait && gpu_acquire_system((const unsigned *)&own->late) == 0;
    for (int s = gpu_lane(); wait && s < p.ranks; s += GPU_WAVE) exchange_wait(p, &own->counted[s], s);
    gpu_wave_order();
    if (gpu_lane() == 0) handle->offset[0] = 0;
    for (int first = 0, before = 0; first < local; first += GPU_WAVE) {
        const int x = first + gpu_lane();
        int sum = 0;
        for (int s = 0; x < local && s < p.ranks; s++) sum += own->expert_count[s][x];
        for (int step = 1; step < GPU_WAVE; step *= 2) {
            const int left = (int)gpu_shuffle((unsigned)sum, gpu_lane() < step ? 0 : gpu_lane() - step);
            if (gpu_lane() >= step) sum += left;
        }
        if (x < local) handle->offset[x + 1] = before + sum;
        before += (int)gpu_shuffle((unsigned)sum, GPU_WAVE - 1);
    }
}

GPU_DEVICE void exchange_given_bases(const spw_peers &p, exchange_block *b, const int *base, int threads) {
    for (int d = gpu_thread(); d < SPW_WORLD_RANKS; d += threads) {
        b->base[d] = base == nullptr || d >= p.ranks ? 0 : base[d];
        b->rows[d] = 0;
    }
    gpu_barrier();
}

/* Items in the order in which they are walked, and how many turns that takes; a turn may have none: its item is
 * `items`. 31 bits hold turns times the parts of an item: see exchange_fits. */
template <class exchange> GPU_DEVICE int exchange_turns(const exchange &a) {
    return a.spread > 1 ? (a.items + a.spread - 1) / a.spread * a.spread : a.items;
}
template <class exchange> GPU_DEVICE int exchange_item(const exchange &a, int turn) {
    if (a.spread <= 1) return turn;
    const int item = turn % a.spread * ((a.items + a.spread - 1) / a.spread) + turn / a.spread;
    return item < a.items ? item : a.items;
}
#if GPU_HOST
template <class exchange> static bool exchange_fits(const exchange &a, int parts) {
    return ((long)a.items + SPW_WORLD_RANKS) * parts < 0x70000000l;
}
#endif

/* Where copy f of an item is; row < 0: nowhere. A row beyond the buffer is nowhere. */
struct exchange_copy {
    int rank, row;
};
template <class exchange>
GPU_DEVICE exchange_copy exchange_copy_of(const exchange &a, const spw_peers &p, const exchange_block *b,
                                          long item, int f) {
    exchange_copy copy = {p.rank, -1};
    if (f >= a.copies || item >= a.items) return copy;
    const int place = a.place[item * a.copies + f];
    if (place < 0) return copy;
    copy.rank = a.to == nullptr ? f : a.to[item * a.copies + f];
    copy.row = b->base[copy.rank] + place;
    if (copy.row >= a.capacity[copy.rank]) copy.row = -1;
    return copy;
}

/* Adds what this block moved to the rank's counters; after a barrier. */
GPU_DEVICE void exchange_count(const spw_peers &p, const exchange_block *b, int counter, int row_bytes,
                               int threads) {
    for (int d = gpu_thread(); d < p.ranks; d += threads) {
        if (b->rows[d] == 0) continue;
        gpu_add(&p.control[p.rank]->bytes[counter][d], (unsigned long long)b->rows[d] * (unsigned)row_bytes);
    }
}

#endif
