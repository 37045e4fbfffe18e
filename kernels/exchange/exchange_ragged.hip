/* Ragged all-to-all without a local sort at the receiver: every rank learns all counts, and so knows where its rows
 * stand in every buffer, sorted by expert. Buffers that are too short keep what comes first by source, expert,
 * position (docs/schemes.md, 2.4). */
#include "kernels/exchange/exchange_peer.h"

enum { THREADS = 512 };

/* One block. */
GPU_KERNEL(THREADS) ragged_publish(GPU_ARGUMENT spw_ragged_gpu a, GPU_ARGUMENT spw_peers p) {
    for (int i = gpu_thread(); i < p.ranks * a.experts; i += THREADS)
        p.control[i / a.experts]->expert_count[p.rank][i % a.experts] = a.count[i % a.experts];
    gpu_settle();
    gpu_barrier();
    for (int i = gpu_thread(); i < p.ranks * p.ranks; i += THREADS) {
        const unsigned long long notice = (unsigned long long)p.epoch << 32;
        unsigned long long *to = &p.control[i / p.ranks]->notice[p.rank][i % p.ranks];
        if (p.wait) {
            gpu_release_system(to, notice);
        } else {
            *to = notice;
        }
    }
}

/* Rows of earlier experts, of the same expert from earlier ranks, and of this rank, that find room. */
struct ragged_share {
    int earlier, before, own;
};

GPU_DEVICE ragged_share share_of(const spw_ragged_gpu &a, const spw_peers &p, int expert, int local) {
    const int first = expert / local * local;
    ragged_share share = {0, 0, 0};
    int room = a.capacity;
    for (int s = 0; s < p.ranks; s++) {
        for (int x = first; x < first + local; x++) {
            const int asked = p.control[p.rank]->expert_count[s][x], kept = asked < room ? asked : room;
            room -= kept;
            if (x < expert) share.earlier += kept;
            if (x == expert && s < p.rank) share.before += kept;
            if (x == expert && s == p.rank) share.own = kept;
        }
    }
    return share;
}

GPU_KERNEL(THREADS) ragged_assign(GPU_ARGUMENT spw_ragged_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ int base[SPW_WORLD_EXPERTS], kept[SPW_WORLD_EXPERTS];
    const int local = a.experts / p.ranks, choices = a.tokens * a.top_k;
    for (int i = gpu_thread(); i < p.ranks * p.ranks; i += THREADS)
        (void)exchange_notice(p, i / p.ranks, i % p.ranks);
    gpu_fence_system(); /* counts come in front of notices here */
    gpu_barrier();
    for (int x = gpu_thread(); x < a.experts; x += THREADS) {
        const ragged_share share = share_of(a, p, x, local);
        base[x] = share.earlier + share.before, kept[x] = share.own;
        if (gpu_block() != 0 || x / local != p.rank) continue;
        a.received[x % local] = share.earlier;
        if (x % local < local - 1) continue;
        int rows = share.earlier;
        for (int s = 0, room = a.capacity; s < p.ranks; s++) { /* the last expert's own, of all ranks */
            for (int y = x - local + 1; y <= x; y++) {
                const int asked = p.control[p.rank]->expert_count[s][y], taken = asked < room ? asked : room;
                room -= taken;
                if (y == x) rows += taken;
            }
        }
        a.received[local] = rows;
    }
    gpu_barrier();
    for (int i = gpu_block() * THREADS + gpu_thread(); i < choices; i += a.blocks * THREADS) {
        if (i >= a.offset[a.experts]) a.to[i] = p.rank, a.place[i] = -1; /* no choice has this row */
        const int x = a.expert[i], row = a.row[i];
        if (x < 0) continue;
        const int position = row - a.offset[x];
        a.to[row] = x / local;
        a.place[row] = position < kept[x] ? base[x] + position : -1;
    }
}

#if GPU_HOST
int spw_launch_ragged_publish(spw_ragged_gpu ragged, spw_peers peers, gpu_stream stream) {
    ragged_publish<<<1, THREADS, 0, stream>>>(ragged, peers);
    return (int)cudaGetLastError();
}
int spw_launch_ragged_assign(spw_ragged_gpu ragged, spw_peers peers, gpu_stream stream) {
    ragged_assign<<<(unsigned)ragged.blocks, THREADS, 0, stream>>>(ragged, peers);
    return (int)cudaGetLastError();
}
#endif
