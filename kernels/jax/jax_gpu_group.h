/* The GPUs of one group of ranks in this process, and what their exchanges need beside XLA's buffers: made when the first
 * call of the group comes, kept until the process ends. */
#ifndef SPW_KERNELS_JAX_JAX_GPU_GROUP_H
#define SPW_KERNELS_JAX_JAX_GPU_GROUP_H

#include "kernels/exchange/exchange_launch.h"
#include "kernels/gpu/world.h"
#include "kernels/jax/jax_calls.h"

enum { SPW_JAX_ORDER = 256 };

/* Of one rank; only its device's thread touches it. */
typedef struct spw_jax_gpu_rank {
    unsigned epoch;     /* exchanges so far: the kernels of all ranks wait for the same number */
    size_t room[2];     /* bytes of received and returned, as this rank has seen them grow */
    int *failed;        /* [2] of spw_control, late and stale, in host memory; written after every exchange */
    spw_handle *handle; /* the rest on the device */
    int *rank_tokens, *expert_tokens;
} spw_jax_gpu_rank;

typedef struct spw_jax_gpu_group {
    struct spw_jax_gpu_group *next;
    int device[SPW_WORLD_RANKS];
    size_t ranks;
    int blocks; /* of the kernels that move rows */
    bool ready;
    spw_world *world;
    void *received[SPW_WORLD_RANKS], *returned[SPW_WORLD_RANKS]; /* windows of exchange_launch.h */
    spw_jax_gpu_rank rank[SPW_WORLD_RANKS];
    size_t channel
        [SPW_JAX_ORDER]; /* of exchange number i % SPW_JAX_ORDER, as the first rank that came called it */
    unsigned number[SPW_JAX_ORDER];
} spw_jax_gpu_group;

/* The group of a call, ready for an exchange that needs so many bytes in each rank's buffers; the call's GPU is the current one.
 * The rank's epoch is the number of this exchange. SPW_EDEVICE: no peer access, an earlier exchange failed; SPW_EARG: another
 * rank's exchange of the same number was another call. */
SPW_MUST_CHECK spw_status spw_jax_gpu_enter(const spw_jax_group *call, const size_t bytes[2],
                                            spw_jax_gpu_group **out);

/* What the kernels of this rank see; and after the last of them, on its stream: notes failures for the next call. */
spw_peers spw_jax_gpu_peers(const spw_jax_gpu_group *group, size_t rank);
SPW_MUST_CHECK spw_status spw_jax_gpu_note(const spw_jax_gpu_group *group, size_t rank, gpu_stream stream);

#endif
