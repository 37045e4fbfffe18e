#include "kernels/jax/jax_gpu_group.h"

#include "base/memory.h"
#include "kernels/exchange/dispatch_gpu.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/jax/jax_meeting.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static spw_jax_gpu_group *groups;

static spw_status make_rank(spw_jax_gpu_group *g, size_t r) {
    spw_jax_gpu_rank *own = &g->rank[r];
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_use(g->world, r));
    SPW_TRY_GPU(cudaMalloc((void **)&own->rank_tokens, g->ranks * sizeof(int)), "allocate counts");
    SPW_TRY_GPU(cudaMalloc((void **)&own->expert_tokens, g->ranks * SPW_WORLD_EXPERTS * sizeof(int)),
                "allocate counts");
    SPW_TRY_GPU(cudaMalloc((void **)&own->handle, sizeof(spw_handle)), "allocate a handle");
    SPW_TRY_GPU(cudaMemset(own->handle, 0, sizeof(spw_handle)), "clear a handle");
    SPW_TRY_GPU(cudaHostAlloc((void **)&own->failed, 2 * sizeof(int), cudaHostAllocDefault), "allocate");
    own->failed[0] = own->failed[1] = 0;
    SPW_TRY_GPU(cudaDeviceSynchronize(), "clear a handle");
cleanup:
    return status;
}

/* Nothing of the group runs yet. What a failure leaves is kept as it is: the next call fails the same way. */
static spw_status make(spw_jax_gpu_group *g) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_create_on(g->ranks, g->device, &g->world));
    g->blocks = spw_exchange_blocks(g->world);
    for (size_t r = 0; r < g->ranks; r++) SPW_TRY(make_rank(g, r));
cleanup:
    return status;
}

/* With the lock held. */
static spw_jax_gpu_group *find(const spw_jax_group *call) {
    for (spw_jax_gpu_group *g = groups; g != NULL; g = g->next) {
        bool same = g->ranks == call->ranks;
        for (size_t r = 0; same && r < g->ranks; r++) same = g->device[r] == (int)call->devices[r];
        if (same) return g;
    }
    return NULL;
}

/* The first rank that comes makes the group, and the others of the group wait for it; calls of other groups do not, for
 * their kernels may be what a GPU is busy with until all of them are launched. */
static spw_status group_of(const spw_jax_group *call, spw_jax_gpu_group **out) {
    spw_status status = SPW_OK;
    (void)pthread_mutex_lock(&lock);
    spw_jax_gpu_group *g = find(call);
    if (g == NULL) {
        SPW_TRY(SPW_ALLOC(1, &g));
        g->ranks = call->ranks;
        for (size_t r = 0; r < g->ranks; r++) g->device[r] = (int)call->devices[r];
        g->next = groups, groups = g;
        (void)pthread_mutex_unlock(&lock);
        status = make(g);
        (void)pthread_mutex_lock(&lock);
        if (status != SPW_OK) g->ranks = 0; /* nobody finds it again */
        g->ready = true;
        (void)pthread_cond_broadcast(&changed);
    }
    while (!g->ready) (void)pthread_cond_wait(&changed, &lock);
    if (g->ranks == 0 && status == SPW_OK)
        status = spw_fail(SPW_EDEVICE, "another rank could not set up the group of %zu GPUs", call->ranks);
    *out = g;
cleanup:
    (void)pthread_mutex_unlock(&lock);
    return status;
}

typedef struct growth {
    spw_jax_gpu_group *group;
    size_t bytes[2];
} growth;

/* All ranks are here, so every kernel that another GPU's waits for has been launched: the GPUs come to rest. */
static spw_status grow(void *const *part, const spw_jax_group *call) {
    const growth *want = part[0];
    spw_jax_gpu_group *g = want->group;
    void **const window[2] = {g->received, g->returned};
    spw_status status = SPW_OK;
    for (size_t r = 0; r < call->ranks; r++) {
        SPW_TRY(spw_world_use(g->world, r));
        SPW_TRY_GPU(cudaDeviceSynchronize(), "wait for the exchanges before");
    }
    for (int i = 0; i < 2; i++) {
        size_t bytes[SPW_WORLD_RANKS];
        for (size_t r = 0; r < call->ranks; r++) bytes[r] = want->bytes[i];
        spw_world_free(g->world, window[i]);
        status = spw_world_allocate(g->world, bytes, window[i]);
        if (status != SPW_OK)
            return spw_fail_within(status,
                                   "exchange buffers of %zu bytes a GPU beside XLA's memory "
                                   "(XLA_PYTHON_CLIENT_MEM_FRACTION leaves more)",
                                   want->bytes[0] + want->bytes[1]);
    }
cleanup:
    return status;
}

/* Every rank has seen the same calls, so all come to the same answer and meet, or none. */
static spw_status make_room(spw_jax_gpu_group *g, const spw_jax_group *call, const size_t bytes[2]) {
    spw_jax_gpu_rank *own = &g->rank[call->rank];
    growth want = {g, {own->room[0], own->room[1]}};
    spw_jax_meeting *meeting = NULL;
    if (bytes[0] <= own->room[0] && bytes[1] <= own->room[1]) return SPW_OK;
    for (int i = 0; i < 2; i++)
        if (want.bytes[i] < bytes[i]) want.bytes[i] = bytes[i];
    spw_status status = spw_jax_meet(call, &want, grow, &meeting);
    if (status == SPW_OK) status = spw_jax_leave(meeting, call, SPW_OK);
    if (status == SPW_OK) memcpy(own->room, want.bytes, sizeof own->room);
    return status;
}

/* A kernel waits for the kernels of the same number on the other ranks: they must be of the same call. */
static spw_status take_number(spw_jax_gpu_group *g, const spw_jax_group *call) {
    const unsigned number = g->rank[call->rank].epoch + 1, at = number % SPW_JAX_ORDER;
    (void)pthread_mutex_lock(&lock);
    const bool first = (int)(number - g->number[at]) > 0;
    if (first) g->number[at] = number, g->channel[at] = call->channel;
    const bool other = !first && g->number[at] == number && g->channel[at] != call->channel;
    const size_t theirs = g->channel[at];
    (void)pthread_mutex_unlock(&lock);
    if (other)
        return spw_fail(
            SPW_EARG,
            "exchange %u is call %zu on rank %zu and call %zu on another; the same calls in the same order "
            "on every rank would be right",
            number, call->channel, call->rank, theirs);
    g->rank[call->rank].epoch = number;
    return SPW_OK;
}

static spw_status failed_before(const spw_jax_gpu_group *g, size_t rank) {
    const volatile int *failed = g->rank[rank].failed;
    if (failed[0] == 0) return SPW_OK;
    return spw_fail(
        SPW_EDEVICE,
        "rank %zu waited %d s for rank %d in an exchange before, whose results are wrong; the process "
        "must be started again",
        rank, g->world->patience_s, failed[0] - 1);
}

spw_status spw_jax_gpu_enter(const spw_jax_group *call, const size_t bytes[2], spw_jax_gpu_group **out) {
    spw_jax_gpu_group *g = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(group_of(call, &g));
    SPW_TRY(failed_before(g, call->rank));
    SPW_TRY(make_room(g, call, bytes));
    SPW_TRY(take_number(g, call));
    SPW_TRY(spw_world_use(g->world, call->rank));
    *out = g;
cleanup:
    return status;
}

spw_peers spw_jax_gpu_peers(const spw_jax_gpu_group *g, size_t rank) {
    spw_peers peers = spw_world_peers(g->world, rank);
    peers.epoch = g->rank[rank].epoch;
    return peers;
}

spw_status spw_jax_gpu_note(const spw_jax_gpu_group *g, size_t rank, gpu_stream stream) {
    return spw_device_check((int)cudaMemcpyAsync(g->rank[rank].failed, &g->world->control[rank]->late,
                                                 2 * sizeof(int), cudaMemcpyDeviceToHost, stream),
                            "note failures");
}

/* For spillway_jax.check(): "" or what went wrong in an exchange; waits. Lives until this thread's next failure. */
__attribute__((visibility("default"))) const char *spw_jax_gpu_check(void);
const char *spw_jax_gpu_check(void) {
    const char *message = "";
    (void)pthread_mutex_lock(&lock);
    for (const spw_jax_gpu_group *g = groups; g != NULL; g = g->next)
        if (g->ready && g->ranks > 0 && spw_world_synchronize(g->world) != SPW_OK) message = spw_last_error();
    (void)pthread_mutex_unlock(&lock);
    return message;
}
