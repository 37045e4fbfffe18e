/* Ranks that share memory: several GPUs of one process, several ranks on one GPU, or a process a GPU. */
#ifndef SPW_KERNELS_GPU_WORLD_H
#define SPW_KERNELS_GPU_WORLD_H

#include "base/status.h"
#include "kernels/gpu/peers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the processes of one world have in common; lives in memory that fork() shares. */
typedef struct spw_world_link spw_world_link;

enum { SPW_WORLD_PATIENCE_S = 10 };

typedef struct spw_world {
    size_t ranks, first, behind; /* this process runs the ranks [first, behind) */
    size_t gpus;
    bool wait;      /* kernels wait for each other; else the host runs phases */
    int patience_s; /* so long, SPW_WORLD_PATIENCE_S unless changed; then spw_world_synchronize fails */
    unsigned epoch;
    int device[SPW_WORLD_RANKS]; /* of the ranks of this process */
    gpu_stream stream[SPW_WORLD_RANKS];
    void *event[SPW_WORLD_RANKS];
    spw_control *control[SPW_WORLD_RANKS]; /* of all ranks, as this process sees them */
    spw_world_link *link;                  /* NULL in one process */
} spw_world;

/* Asks the runtime for as many hardware queues as ranks side by side on one GPU need. Only before anything of this
 * process, or of one that forks it, has touched a GPU; what the user has set in CUDA_DEVICE_MAX_CONNECTIONS stays. */
void spw_world_prepare(void);

/* One process: rank r on GPU r * gpus / ranks. gpus = 0: as many as there are, at most `ranks`. In phases when
 * more ranks share a GPU than can wait for each other there (world.c), or when `phases`. SPW_EARG: ranks, or more
 * GPUs than ranks; SPW_EDEVICE: fewer GPUs, or two that cannot reach each other's memory. */
SPW_MUST_CHECK spw_status spw_world_create(size_t ranks, size_t gpus, bool phases, spw_world **out);

/* One process: rank r on GPU device[r], each another one. SPW_EARG: ranks; SPW_EDEVICE as above. */
SPW_MUST_CHECK spw_status spw_world_create_on(size_t ranks, const int *device, spw_world **out);

/* A process a rank: the link is made first, then the processes are forked, before any of them has touched a GPU; each
 * joins. */
SPW_MUST_CHECK spw_status spw_world_link_create(size_t ranks, spw_world_link **out);
void spw_world_link_destroy(spw_world_link *link);
SPW_MUST_CHECK spw_status spw_world_join(spw_world_link *link, size_t rank, spw_world **out);

void spw_world_destroy(spw_world *world); /* NULL is fine */

/* Memory of every rank, mapped for all: at[r] of bytes[r] bytes, NaN or -1 throughout. All processes call it
 * together. */
SPW_MUST_CHECK spw_status spw_world_allocate(spw_world *world, const size_t *bytes, void **at);
/* The same of memory that kernels of other ranks read and write while this rank's run. */
SPW_MUST_CHECK spw_status spw_world_allocate_flags(spw_world *world, const size_t *bytes, void **at);
/* Waits for the streams of this process's ranks first. */
void spw_world_free(spw_world *world, void **at);

/* One process: numbers of all ranks are there already. Several: number[r] of every rank r, given number[own]. */
SPW_MUST_CHECK spw_status spw_world_share(spw_world *world, uint64_t *number);

/* Most ranks of this process on one GPU; and most blocks that a kernel of a rank may have. */
size_t spw_world_crowd(const spw_world *world);
int spw_world_blocks(const spw_world *world);

/* The rank's GPU becomes the current one. */
SPW_MUST_CHECK spw_status spw_world_use(const spw_world *world, size_t rank);
/* What was launched on any rank of this process comes before what will be; nothing when kernels wait for each
 * other. */
SPW_MUST_CHECK spw_status spw_world_phase(spw_world *world);
/* All ranks' work of this process is done. SPW_EDEVICE when a rank never came, SPW_EMISMATCH when a row was another
 * token's. */
SPW_MUST_CHECK spw_status spw_world_synchronize(spw_world *world);
/* A kernel's view of the world. */
spw_peers spw_world_peers(const spw_world *world, size_t rank);

/* bytes[d] of a counter of a rank; and all counters to zero. */
SPW_MUST_CHECK spw_status spw_world_counter(spw_world *world, size_t rank, int counter, uint64_t *bytes);
SPW_MUST_CHECK spw_status spw_world_clear_counters(spw_world *world);

#endif
