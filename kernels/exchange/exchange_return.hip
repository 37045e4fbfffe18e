/* Rows back to the ranks of their tokens, written there by who has them: a load over a link sends a request against every answer,
 * a store does not. Of a block's waves some write parts of rows into the staging memory of the tokens' ranks, one tells these ranks
 * what has arrived, a flag a part, and the others add parts of their own tokens as they come. Who has nothing left to write adds. */
#include "kernels/exchange/exchange_reduce.h"

enum { THREADS = 512, WAVES = THREADS / GPU_WAVE };
/* Measured on two H200 (docs/validation_exchange.md): pieces of 16 bytes that a lane moves or adds at once, waves of a block that
 * write, and parts of each that have not been told of. */
enum { PIECES = 7, SENDERS = 3, DEPTH = 8 };
enum { ADDING, SENDING }; /* spw_control.taken */

/* Where rows are staged: what is added to a row of a rank's buffer to find it here; where this rank's rows begin there. Rows stand
 * by rank; those that a rank has for itself stay where they are. */
struct stages {
    int here[SPW_WORLD_RANKS], there[SPW_WORLD_RANKS];
};

GPU_DEVICE void stages_of(const spw_return_gpu &a, const spw_peers &p, exchange_block *b, stages *s) {
    for (int r = gpu_thread(); r < p.ranks; r += THREADS) {
        int here = 0, there = 0;
        for (int d = 0; d < r; d++) here += d == p.rank ? 0 : a.handle->sent[p.rank][d];
        for (int d = 0; d < p.rank; d++) there += d == r ? 0 : a.handle->sent[r][d];
        s->here[r] = r == p.rank ? 0 : here - b->base[r];
        s->there[r] = there;
        b->sent[r] = a.handle->sent[r][p.rank];
    }
    gpu_barrier();
}

/* Parts that waves have written, a ring a wave, 0 where there is none: whose they are, which flag says so, and of which item. */
struct outbox {
    unsigned long long part[SENDERS][DEPTH];
};
enum { SOURCE_BITS = 26, FLAG_BITS = 31 }; /* see spw_launch_exchange_return */
#define NO_MORE (~0ull)

GPU_DEVICE unsigned long long part_written(int rank, int flag, int source) {
    return 1 + ((unsigned long long)(unsigned)source << 1) +
           ((unsigned long long)(unsigned)flag << (SOURCE_BITS + 1)) +
           ((unsigned long long)(unsigned)rank << (SOURCE_BITS + FLAG_BITS + 1));
}

/* --- Rows that are added --- */

/* Rows in this rank's memory: its own, and those that are staged. */
struct rows_here {
    const spw_return_gpu &a;
    const spw_peers &p;
    const stages *s;

    GPU_MEMBER const gpu_bytes16 *row(int rank, long row, int pieces) const {
        const unsigned char *from = rank == p.rank ? a.add.window[rank] : a.staged[p.rank];
        return (const gpu_bytes16 *)from + (row + s->here[rank]) * pieces;
    }
    GPU_MEMBER const float *side(exchange_copy copy) const {
        const bool own = copy.rank == p.rank;
        const unsigned char *from = own ? a.add.window[p.rank] : a.staged[p.rank];
        const long rows = own ? a.add.capacity[p.rank] : a.staged_rows;
        return (const float *)(from + rows * a.add.width * 2) +
               ((long)copy.row + s->here[copy.rank]) * a.add.side;
    }
    /* Waits for the part; numbers beside a row come with its last. */
    GPU_MEMBER int source(exchange_copy copy, long item, int part, bool counts) const {
        int from = (int)item;
        if (copy.row >= 0 && copy.rank != p.rank) {
            const int parts = exchange_parts<PIECES>(a.add.width, 0);
            const unsigned long long *flag = a.arrived[p.rank] +
                                             (long)(copy.row + s->here[copy.rank]) * parts +
                                             (part < parts ? part : parts - 1);
            exchange_patience patience = {0, 0};
            unsigned long long seen = gpu_acquire_system(flag);
            while ((unsigned)(seen >> 32) != p.epoch && p.wait && !patience.ends(p, copy.rank))
                seen = gpu_acquire_system(flag);
            from = (int)(unsigned)seen;
        } else if (counts && a.add.source[p.rank] != nullptr) {
            from = a.add.source[p.rank][copy.row];
        }
        gpu_wave_order();
        return from;
    }
};

/* --- Rows that are written --- */

struct sent_part {
    int rank, row, part; /* row < 0: there is none */
    long to;             /* the row there */
};

/* Rows for all ranks side by side, that all links are busy. */
GPU_DEVICE sent_part sent_part_of(const spw_return_gpu &a, const spw_peers &p, const exchange_block *b,
                                  const stages *s, int n, int count) {
    const int parts = exchange_parts<PIECES>(a.add.width, 0), turn = n / parts, others = p.ranks - 1,
              rank = (p.rank + 1 + turn % others) % p.ranks, k = turn / others;
    if (n >= count || k >= b->sent[rank]) return {rank, -1, 0, 0};
    const int row = a.handle->first[rank] + k;
    return {rank, row < a.add.capacity[p.rank] ? row : -1, n % parts, s->there[rank] + k};
}

GPU_DEVICE void load_part(const spw_return_gpu &a, const spw_peers &p, sent_part sent,
                          gpu_bytes16 moved[PIECES]) {
    const int pieces = a.add.width / 8, at = sent.part * PIECES * GPU_WAVE + gpu_lane();
    const gpu_bytes16 *from = (const gpu_bytes16 *)a.add.window[p.rank] + (long)sent.row * pieces;
#pragma unroll
    for (int u = 0; u < PIECES; u++)
        if (sent.row >= 0 && at + u * GPU_WAVE < pieces) moved[u] = from[at + u * GPU_WAVE];
}

GPU_DEVICE void store_part(const spw_return_gpu &a, const spw_peers &p, sent_part sent,
                           const gpu_bytes16 moved[PIECES]) {
    const int pieces = a.add.width / 8, at = sent.part * PIECES * GPU_WAVE + gpu_lane();
    gpu_bytes16 *to = (gpu_bytes16 *)a.staged[sent.rank] + sent.to * pieces;
#pragma unroll
    for (int u = 0; u < PIECES; u++)
        if (at + u * GPU_WAVE < pieces) to[at + u * GPU_WAVE] = moved[u];
    if (sent.part != exchange_parts<PIECES>(a.add.width, 0) - 1) return;
    const long rows = a.add.capacity[p.rank];
    const float *side =
        (const float *)(a.add.window[p.rank] + rows * a.add.width * 2) + (long)sent.row * a.add.side;
    float *side_to =
        (float *)(a.staged[sent.rank] + (long)a.staged_rows * a.add.width * 2) + sent.to * a.add.side;
    for (int k = gpu_lane(); k < a.add.side; k += GPU_WAVE) side_to[k] = side[k];
}

/* One lane, behind the stores of its wave. */
GPU_DEVICE void put(outbox *out, unsigned n, unsigned long long part) {
    unsigned long long *slot = &out->part[gpu_thread() / GPU_WAVE][n % DEPTH];
    while (gpu_ask_block(slot) != 0) {
    }
    gpu_tell_block(slot, part);
}

/* A wave that writes; nothing of its own waits for that to arrive. */
GPU_DEVICE void send_parts(const spw_return_gpu &a, const spw_peers &p, const exchange_block *b,
                           const stages *s, outbox *out, exchange_way way) {
    unsigned most = 0, asked = 0, written = 0;
    for (int r = gpu_lane(); r < p.ranks; r += GPU_WAVE)
        most = r != p.rank && (unsigned)b->sent[r] > most ? (unsigned)b->sent[r] : most;
    const int parts = exchange_parts<PIECES>(a.add.width, 0),
              count = (p.ranks - 1) * (int)gpu_wave_max(most) * parts;
    gpu_bytes16 moved[PIECES];
    sent_part sent = sent_part_of(a, p, b, s, way.begin, count);
    load_part(a, p, sent, moved);
    for (int n = way.begin, behind = way.behind; n < count;
         n = behind, behind = exchange_told(p, asked, n, way.step)) {
        const sent_part next = sent_part_of(a, p, b, s, behind, count);
        asked = exchange_ask(p, way.work);
        if (sent.row >= 0) store_part(a, p, sent, moved);
        load_part(a, p, next, moved);
        if (sent.row >= 0) {
            const int *source = a.add.source[p.rank], flag = (int)sent.to * parts + sent.part;
            gpu_wave_order();
            if (gpu_lane() == 0)
                put(out, written, part_written(sent.rank, flag, source == nullptr ? 0 : source[sent.row]));
            written++;
        }
        sent = next;
    }
    if (gpu_lane() == 0) put(out, written, NO_MORE);
}

/* The wave that waits for what the others have written to arrive, and tells of it: a lane a wave. */
GPU_DEVICE void tell_parts(const spw_return_gpu &a, const spw_peers &p, outbox *out) {
    const int wave = gpu_lane();
    unsigned told = 0;
    for (bool ended = wave >= SENDERS; gpu_ballot(!ended) != 0;) {
        unsigned seen = told;
        while (!ended && seen - told < DEPTH && gpu_ask_block(&out->part[wave][seen % DEPTH]) != 0) seen++;
        if (gpu_ballot(seen != told) == 0) continue;
        gpu_fence_system();
        for (; told != seen; told++) {
            const unsigned long long part = gpu_ask_block(&out->part[wave][told % DEPTH]);
            const int rank = (int)(part >> (SOURCE_BITS + FLAG_BITS + 1)),
                      flag = (int)(part >> (SOURCE_BITS + 1) & ((1ull << FLAG_BITS) - 1));
            ended = part == NO_MORE;
            if (!ended)
                gpu_tell_system(&a.arrived[rank][flag], (unsigned long long)p.epoch << 32 |
                                                            (part >> 1 & ((1ull << SOURCE_BITS) - 1)));
            gpu_tell_block(&out->part[wave][told % DEPTH], 0);
        }
    }
}

/* --- Both --- */

/* `late`: a wave that has done something else takes what is left. */
GPU_DEVICE exchange_way way_of(const spw_peers &p, int work, int begin, int step, bool late) {
    if (!late) return {work, begin, begin + step, step};
    const int first = exchange_told(p, exchange_ask(p, work), 0, step);
    return {work, first, exchange_told(p, exchange_ask(p, work), first, step), step};
}

GPU_DEVICE void add_parts(const spw_return_gpu &a, const spw_peers &p, exchange_block *b, const stages *s,
                          exchange_way way) {
    const long first = exchange_item(a.add, way.begin / exchange_parts<PIECES>(a.add.width, a.add.side));
    exchange_reduce_parts<PIECES, 1>(a.add, p, b, rows_here{a, p, s}, way,
                                     exchange_copy_of(a.add, p, b, first, gpu_lane()));
}

GPU_KERNEL(THREADS) exchange_return(GPU_ARGUMENT spw_return_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ exchange_block block;
    __shared__ stages stage;
    __shared__ outbox out;
    const bool sends = (a.parts & SPW_RETURN_SEND) != 0, adds = (a.parts & SPW_RETURN_ADD) != 0;
    const int wave = gpu_thread() / GPU_WAVE, others = sends ? SENDERS + 1 : 0, adders = WAVES - others;
    if (gpu_thread() < SENDERS * DEPTH) out.part[gpu_thread() / DEPTH][gpu_thread() % DEPTH] = 0;
    exchange_given_bases(p, &block, a.add.base, THREADS);
    stages_of(a, p, &block, &stage);
    exchange_enter(p, THREADS);
    if (sends && wave < SENDERS)
        send_parts(a, p, &block, &stage, &out,
                   way_of(p, SENDING, gpu_block() * SENDERS + wave, a.add.blocks * SENDERS, false));
    if (sends && wave == SENDERS) tell_parts(a, p, &out);
    if (adds && (wave >= others || exchange_takes(p)))
        add_parts(
            a, p, &block, &stage,
            way_of(p, ADDING, gpu_block() * adders + wave - others, a.add.blocks * adders, wave < others));
    gpu_barrier();
    exchange_count(p, &block, a.add.counter, exchange_reduce_bytes(a.add), THREADS);
    exchange_end(p, a.add.blocks);
}

#if GPU_HOST
int spw_exchange_return_flags(int width) { return exchange_parts<PIECES>(width, 0); }

int spw_launch_exchange_return(const spw_return_gpu *back, const spw_peers *peers, gpu_stream stream) {
    const int parts = back->add.width / 8 / GPU_WAVE + 2;
    if (peers->ranks < 2 || !exchange_fits(back->add, parts) || back->staged_rows > 0x70000000 / parts ||
        back->add.items > 1 << SOURCE_BITS)
        return (int)cudaErrorInvalidValue;
    exchange_return<<<(unsigned)back->add.blocks, THREADS, 0, stream>>>(*back, *peers);
    return (int)cudaGetLastError();
}
#endif
