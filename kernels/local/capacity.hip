/* The dense drop rule and the places of what it keeps: one block walks over one group of tokens (a sequence) in order. */
#include "kernels/local/block_rank.h"
#include "kernels/local/local_launch.h"

enum { THREADS = 1024 };

GPU_KERNEL(THREADS) capacity_place(spw_capacity_gpu p) {
    __shared__ block_rank<THREADS, SPW_GPU_EXPERTS_MAX> ranks;
    const int group = gpu_block();
    const long first = (long)group * p.assignments_per_group;
    for (int i = gpu_thread(); i < p.experts * p.capacity; i += THREADS)
        p.assignment[((long)(i / p.capacity) * p.groups + group) * p.capacity + i % p.capacity] = -1;
    ranks.start(); /* its barrier also orders the -1 before what follows */
    for (int from = 0; from < p.assignments_per_group; from += THREADS) {
        const int i = from + gpu_thread();
        const int expert = i < p.assignments_per_group ? p.expert[first + i] : -1;
        const int rank = ranks.rank(expert);
        const int row =
            expert >= 0 && rank < p.capacity ? (expert * p.groups + group) * p.capacity + rank : -1;
        if (i < p.assignments_per_group) p.row[first + i] = row;
        if (row >= 0) p.assignment[row] = (int)(first + i);
    }
}

#if GPU_HOST
int spw_launch_capacity(spw_capacity_gpu p, gpu_stream stream) {
    if (p.groups > 0) capacity_place<<<(unsigned)p.groups, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
