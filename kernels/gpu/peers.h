/* A kernel's view of the ranks that share memory (gpu/world.h): what host and device know in common. A rank is a
 * GPU or one of several in one GPU's memory; every rank's buffers are mapped into the address space of all. */
#ifndef SPW_KERNELS_GPU_PEERS_H
#define SPW_KERNELS_GPU_PEERS_H

#include "kernels/gpu/launch.h"

enum { SPW_WORLD_RANKS = 64, SPW_WORLD_EXPERTS = 512, SPW_EXCHANGE_COUNTERS = 8 };

/* One a rank; written by all ranks. */
typedef struct spw_control {
    unsigned long long notice[SPW_WORLD_RANKS]
                             [SPW_WORLD_RANKS]; /* [source][destination] epoch << 32 | tokens */
    unsigned long long bytes[SPW_EXCHANGE_COUNTERS][SPW_WORLD_RANKS]; /* this rank moved to or from each */
    int expert_count[SPW_WORLD_RANKS][SPW_WORLD_EXPERTS]; /* [source][expert of this rank] choices */
    /* [rank] the epoch that it has come to: at the beginning, at the end, with its expert_count; [destination] with this
     * rank's own places */
    unsigned ready[SPW_WORLD_RANKS], done[SPW_WORLD_RANKS], counted[SPW_WORLD_RANKS], placed[SPW_WORLD_RANKS];
    unsigned finished, taken[2]; /* blocks of the kernel; parts of its works, beyond each wave's first */
    int late, stale;             /* 1 + a rank that never came; 1 + a token whose row was another's */
} spw_control;

typedef struct spw_peers {
    int ranks, rank;
    int wait;       /* seconds for a rank that does not come; 0: nothing waits */
    unsigned epoch; /* grows by one with every kernel that waits */
    spw_control *control[SPW_WORLD_RANKS];
} spw_peers;

#endif
