/* NCCL (RCCL on AMD), loaded at run time: the baseline of the exchanges. The build does not need it. */
#ifndef SPW_KERNELS_BENCH_NCCL_LIBRARY_H
#define SPW_KERNELS_BENCH_NCCL_LIBRARY_H

#include "kernels/gpu/world.h"

typedef struct spw_nccl spw_nccl;

/* One communicator over the GPUs of a world of one process with a rank a GPU. The library is $SPW_NCCL, or
 * libnccl.so.2 or librccl.so.1 where the loader finds it. SPW_EDEVICE: no library, or it failed. */
SPW_MUST_CHECK spw_status spw_nccl_create(spw_world *world, spw_nccl **out);
void spw_nccl_destroy(spw_nccl *nccl); /* NULL is fine */

/* Every rank sends bytes[s * ranks + d] from from[s], in order of d, and receives into to[d], in order of s; on the
 * ranks' streams. */
SPW_MUST_CHECK spw_status spw_nccl_all_to_all(spw_nccl *nccl, const size_t *bytes, void *const *from,
                                              void *const *to);
/* `bytes` of every rank to all, in order of rank. */
SPW_MUST_CHECK spw_status spw_nccl_all_gather(spw_nccl *nccl, size_t bytes, void *const *from,
                                              void *const *to);
/* Sums of bf16: `elements` of the result of every rank, of ranks x elements of each. */
SPW_MUST_CHECK spw_status spw_nccl_reduce_scatter(spw_nccl *nccl, size_t elements, void *const *from,
                                                  void *const *to);

#endif
