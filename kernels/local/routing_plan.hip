/* Where each assignment goes when rows are sorted by expert: counts, offsets, and the permutation both ways, stable and without
 * atomics. Three launches: count in chunks of assignments, scan each expert's chunks, place. */
#include "kernels/local/block_rank.h"
#include "kernels/local/local_launch.h"

enum { THREADS = 256, ROUNDS = SPW_PLAN_CHUNK / THREADS };

GPU_DEVICE int class_of(const spw_plan_gpu &p, int i) { return i < p.assignments ? p.expert[i] : -1; }

GPU_KERNEL(THREADS) plan_count(spw_plan_gpu p) {
    __shared__ block_rank<THREADS, SPW_GPU_EXPERTS_MAX> ranks;
    ranks.start();
    for (int n = 0; n < ROUNDS; n++)
        ranks.rank(class_of(p, gpu_block() * SPW_PLAN_CHUNK + n * THREADS + gpu_thread()));
    for (int e = gpu_thread(); e < p.experts; e += THREADS)
        p.chunk_count[(long)e * p.chunks + gpu_block()] = ranks.seen[e];
}

/* Exclusive sums of one expert's chunks, in place; the total to count. */
GPU_KERNEL(THREADS) plan_scan(spw_plan_gpu p) {
    __shared__ int sums[2][THREADS];
    int *mine = p.chunk_count + (long)gpu_block() * p.chunks;
    int before = 0;
    for (int first = 0; first < p.chunks; first += THREADS) {
        const int at = first + gpu_thread(), value = at < p.chunks ? mine[at] : 0;
        int from = 0;
        sums[0][gpu_thread()] = value;
        gpu_barrier();
        for (int step = 1; step < THREADS; step *= 2, from ^= 1) {
            sums[from ^ 1][gpu_thread()] =
                sums[from][gpu_thread()] + (gpu_thread() >= step ? sums[from][gpu_thread() - step] : 0);
            gpu_barrier();
        }
        if (at < p.chunks) mine[at] = before + sums[from][gpu_thread()] - value;
        before += sums[from][THREADS - 1];
        gpu_barrier();
    }
    if (gpu_thread() == 0) p.count[gpu_block()] = before;
}

GPU_KERNEL(THREADS) plan_place(spw_plan_gpu p) {
    __shared__ block_rank<THREADS, SPW_GPU_EXPERTS_MAX> ranks;
    __shared__ int offset[SPW_GPU_EXPERTS_MAX + 1];
    ranks.start();
    for (int e = gpu_thread(); e < p.experts; e += THREADS) offset[e + 1] = p.count[e];
    gpu_barrier();
    if (gpu_thread() == 0) {
        offset[0] = 0;
        for (int e = 0; e < p.experts; e++) offset[e + 1] += offset[e];
    }
    gpu_barrier();
    if (gpu_block() == 0)
        for (int e = gpu_thread(); e <= p.experts; e += THREADS) p.offset[e] = offset[e];
    for (int e = gpu_thread(); e < p.experts; e += THREADS)
        ranks.seen[e] = p.chunk_count[(long)e * p.chunks + gpu_block()];
    gpu_barrier();
    for (int n = 0; n < ROUNDS; n++) {
        const int i = gpu_block() * SPW_PLAN_CHUNK + n * THREADS + gpu_thread(), expert = class_of(p, i);
        const int rank = ranks.rank(expert), row = expert >= 0 ? offset[expert] + rank : -1;
        if (i < p.assignments) p.row[i] = row;
        if (row >= 0) p.assignment[row] = i;
    }
}

#if GPU_HOST
int spw_launch_plan(spw_plan_gpu p, gpu_stream stream) {
    p.chunks = (p.assignments + SPW_PLAN_CHUNK - 1) / SPW_PLAN_CHUNK;
    if (p.chunks > 0) plan_count<<<(unsigned)p.chunks, THREADS, 0, stream>>>(p);
    plan_scan<<<(unsigned)p.experts, THREADS, 0, stream>>>(p);
    /* Without assignments one block still writes the offsets. */
    plan_place<<<(unsigned)(p.chunks > 0 ? p.chunks : 1), THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
