#include "kernels/gpu/world.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/world_link.h"

#include <stdlib.h>
#include <string.h>

/* --- Ranks side by side on one GPU ---
 *
 * One host thread launches the same kernel for one rank after the other, each on its rank's stream, and these kernels
 * wait for each other. That they all come to run takes three things:
 *
 * - Room. A block that waits never leaves its multiprocessor, and a multiprocessor that is empty has room for any
 *   block of ours. A stream has one kernel at most that waits: the next one is put beside it only once all of its
 *   blocks have let go. So `crowd` ranks of B blocks occupy crowd * B multiprocessors at most, and as long as one more
 *   is left, every kernel that does not wait (layouts, sorts, GEMMs of the slower ranks, with blocks of any size) ends
 *   on what is left, and every block that will wait finds a place in the end, in whatever order the GPU takes them. An
 *   eighth is left, for speed. One rank a GPU waits for no kernel of its own GPU and may have every multiprocessor.
 * - A hardware queue each. Streams that share one run one behind the other: a kernel behind one that waits for it
 *   would never start. Ranks take half of the queues at most, for other streams have theirs too. Copies may share: all
 *   that is launched before a copy ends without what is launched behind it, but for the kernels that wait.
 * - A host that is not held up between the launches for two ranks. Loading of a kernel's code and growth of its stack
 *   wait for the whole GPU; both come with its first launch, which is the first rank's, when the GPU runs nothing but
 *   kernels that all ranks have already. Nothing is allocated, freed or copied by the host in such a loop, and the
 *   streams do not wait for the default stream. */
enum { QUEUES = 32, QUEUES_UNASKED = 8 };

static const char queues_name[] = "CUDA_DEVICE_MAX_CONNECTIONS";

void spw_world_prepare(void) { (void)setenv(queues_name, "32", 0); }

static size_t most_side_by_side(void) {
#if defined(SPW_HIP)
    return 1; /* never run there */
#else
    const char *text = getenv(queues_name);
    const unsigned long asked = text != NULL ? strtoul(text, NULL, 10) : QUEUES_UNASKED;
    return (asked < QUEUES ? asked : QUEUES) / 2;
#endif
}

size_t spw_world_crowd(const spw_world *world) {
    return (world->behind - world->first + world->gpus - 1) / world->gpus;
}

int spw_world_blocks(const spw_world *world) {
    const int all = spw_device_multiprocessors(), crowd = (int)spw_world_crowd(world);
    return !world->wait || crowd == 1 ? all : (all - (all + 7) / 8) / crowd;
}

spw_status spw_world_use(const spw_world *world, size_t rank) {
    return spw_device_check((int)cudaSetDevice(world->device[rank]), "choose a GPU");
}

static spw_status enable_peer(int own, int other) {
    spw_status status = SPW_OK;
    int can = 1;
    SPW_TRY_GPU(cudaDeviceCanAccessPeer(&can, own, other), "ask for peer access");
    if (!can)
        SPW_TRY(spw_fail(SPW_EDEVICE,
                         "GPU %d cannot reach the memory of GPU %d; the exchange needs GPUs of one node", own,
                         other));
    const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
    } else {
        SPW_TRY_GPU(error, "enable peer access");
    }
cleanup:
    return status;
}

/* Every GPU of this process may reach every other. */
static spw_status enable_peers(const spw_world *world) {
    spw_status status = SPW_OK;
    for (size_t a = 0; a < world->ranks; a++) {
        SPW_TRY(spw_world_use(world, a));
        for (size_t b = 0; b < world->ranks; b++)
            if (world->device[a] != world->device[b])
                SPW_TRY(enable_peer(world->device[a], world->device[b]));
    }
cleanup:
    return status;
}

/* Streams and events of this process's ranks, the controls of all. In phases, ranks of one GPU share its stream. */
static spw_status equip(spw_world *world) {
    size_t bytes[SPW_WORLD_RANKS];
    void *control[SPW_WORLD_RANKS] = {NULL};
    spw_status status = SPW_OK;
    for (size_t r = world->first; r < world->behind; r++) {
        SPW_TRY(spw_world_use(world, r));
        if (!world->wait && r > world->first && world->device[r] == world->device[r - 1]) {
            world->stream[r] = world->stream[r - 1];
            continue;
        }
        SPW_TRY_GPU(cudaStreamCreateWithFlags((cudaStream_t *)&world->stream[r], cudaStreamNonBlocking),
                    "create stream");
        SPW_TRY_GPU(cudaEventCreateWithFlags((cudaEvent_t *)&world->event[r], cudaEventDisableTiming),
                    "create event");
    }
    for (size_t r = 0; r < world->ranks; r++) bytes[r] = sizeof(spw_control);
    SPW_TRY(spw_world_allocate_flags(world, bytes, control));
    for (size_t r = 0; r < world->ranks; r++) world->control[r] = control[r];
    for (size_t r = world->first; r < world->behind; r++) {
        SPW_TRY(spw_world_use(world, r));
        SPW_TRY_GPU(cudaMemset(world->control[r], 0, sizeof(spw_control)), "clear control");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "clear control");
    }
    SPW_TRY(spw_world_share(world, NULL));
cleanup:
    return status;
}

spw_status spw_world_create(size_t ranks, size_t gpus, bool phases, spw_world **out) {
    spw_world *world = NULL;
    spw_status status = SPW_OK;
    const size_t there = (size_t)spw_device_count();
    *out = NULL;
    if (there == 0) return spw_fail(SPW_EDEVICE, "no GPU");
    if (ranks == 0 || ranks > SPW_WORLD_RANKS)
        return spw_fail(SPW_EARG, "%zu ranks; a node holds 1 to %d", ranks, SPW_WORLD_RANKS);
    if (gpus == 0) gpus = there < ranks ? there : ranks;
    if (gpus > ranks)
        return spw_fail(SPW_EARG, "%zu GPUs for %zu ranks; at most a GPU for each would be right", gpus,
                        ranks);
    if (gpus > there) return spw_fail(SPW_EDEVICE, "%zu GPUs asked for, %zu are there", gpus, there);
    SPW_TRY(SPW_ALLOC(1, &world));
    world->ranks = world->behind = ranks;
    world->gpus = gpus, world->patience_s = SPW_WORLD_PATIENCE_S;
    const size_t crowd = spw_world_crowd(world);
    world->wait = !phases && (crowd == 1 || crowd <= most_side_by_side());
    if (spw_world_blocks(world) == 0) world->wait = false; /* more ranks than multiprocessors */
    for (size_t r = 0; r < ranks; r++) world->device[r] = (int)(r * gpus / ranks);
    SPW_TRY(enable_peers(world));
    SPW_TRY(equip(world));
    *out = world;
    return SPW_OK;
cleanup:
    spw_world_destroy(world);
    return status;
}

spw_status spw_world_create_on(size_t ranks, const int *device, spw_world **out) {
    spw_world *world = NULL;
    spw_status status = SPW_OK;
    const int there = spw_device_count();
    *out = NULL;
    if (ranks == 0 || ranks > SPW_WORLD_RANKS)
        return spw_fail(SPW_EARG, "%zu ranks; a node holds 1 to %d", ranks, SPW_WORLD_RANKS);
    for (size_t r = 0; r < ranks; r++)
        if (device[r] < 0 || device[r] >= there)
            return spw_fail(SPW_EDEVICE, "rank %zu on GPU %d; %d GPUs are there", r, device[r], there);
    SPW_TRY(SPW_ALLOC(1, &world));
    world->ranks = world->behind = world->gpus = ranks;
    world->wait = true, world->patience_s = SPW_WORLD_PATIENCE_S;
    memcpy(world->device, device, ranks * sizeof *device);
    SPW_TRY(enable_peers(world));
    SPW_TRY(equip(world));
    *out = world;
    return SPW_OK;
cleanup:
    spw_world_destroy(world);
    return status;
}

spw_status spw_world_join(spw_world_link *link, size_t rank, spw_world **out) {
    spw_world *world = NULL;
    spw_status status = SPW_OK;
    const size_t there = (size_t)spw_device_count(), ranks = spw_world_link_ranks(link);
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &world));
    world->ranks = ranks, world->first = rank, world->behind = rank + 1, world->gpus = 1;
    world->wait = true, world->patience_s = SPW_WORLD_PATIENCE_S, world->link = link;
    if (there == 0 || ranks > there)
        SPW_TRY(spw_fail(SPW_EDEVICE, "%zu processes need as many GPUs, %zu are there", ranks, there));
    world->device[rank] = (int)rank;
    SPW_TRY(equip(world));
    *out = world;
    return SPW_OK;
cleanup:
    spw_world_destroy(world);
    return status;
}

void spw_world_destroy(spw_world *world) {
    if (world == NULL) return;
    void *control[SPW_WORLD_RANKS] = {NULL};
    for (size_t r = 0; r < world->ranks; r++) control[r] = world->control[r];
    spw_world_free(world, control);
    for (size_t r = world->first; r < world->behind; r++) {
        if (world->event[r] == NULL) continue; /* the stream is another rank's */
        if (spw_world_use(world, r) != SPW_OK) continue;
        (void)cudaEventDestroy((cudaEvent_t)world->event[r]);
        (void)cudaStreamDestroy((cudaStream_t)world->stream[r]);
    }
    spw_free(world);
}

static spw_status allocate(spw_world *world, const size_t *bytes, bool flags, void **at) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < world->ranks; r++) at[r] = NULL;
    for (size_t r = world->first; r < world->behind; r++) {
        SPW_TRY(spw_world_use(world, r));
        const size_t some = bytes[r] > 0 ? bytes[r] : 16;
        SPW_TRY_GPU(flags ? spw_malloc_flags(&at[r], some) : cudaMalloc(&at[r], some), "allocate");
        SPW_TRY_GPU(cudaMemset(at[r], 0xff, bytes[r]), "poison");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "poison");
    }
cleanup:
    if (world->link != NULL) status = spw_world_link_map(world->link, world->first, status, at);
    if (status != SPW_OK) spw_world_free(world, at);
    return status;
}

spw_status spw_world_allocate(spw_world *world, const size_t *bytes, void **at) {
    return allocate(world, bytes, false, at);
}

spw_status spw_world_allocate_flags(spw_world *world, const size_t *bytes, void **at) {
    return allocate(world, bytes, true, at);
}

/* Kernels may still run after a failure: on any rank of this process, and they write to all ranks. */
void spw_world_free(spw_world *world, void **at) {
    for (size_t r = world->first; r < world->behind; r++)
        if (spw_world_use(world, r) == SPW_OK) (void)cudaStreamSynchronize(world->stream[r]);
    for (size_t r = 0; r < world->ranks; r++) {
        const bool own = r >= world->first && r < world->behind;
        if (at[r] == NULL || (own && spw_world_use(world, r) != SPW_OK)) continue;
        if (!own) (void)cudaIpcCloseMemHandle(at[r]);
    }
    if (world->link != NULL) spw_world_link_meet(world->link); /* nobody has it mapped any more */
    for (size_t r = world->first; r < world->behind; r++) {
        if (at[r] == NULL || spw_world_use(world, r) != SPW_OK) continue;
        (void)cudaFree(at[r]);
    }
    for (size_t r = 0; r < world->ranks; r++) at[r] = NULL;
}

spw_status spw_world_share(spw_world *world, uint64_t *number) {
    if (world->link == NULL) return SPW_OK;
    return spw_world_link_share(world->link, world->first, number);
}

spw_status spw_world_phase(spw_world *world) {
    spw_status status = SPW_OK;
    if (world->wait || world->gpus == 1) return SPW_OK;
    for (size_t r = world->first; r < world->behind; r++) {
        if (world->event[r] == NULL) continue;
        SPW_TRY(spw_world_use(world, r));
        SPW_TRY_GPU(cudaEventRecord((cudaEvent_t)world->event[r], world->stream[r]), "record event");
    }
    for (size_t r = world->first; r < world->behind; r++) {
        for (size_t other = world->first; other < world->behind; other++) {
            if (world->event[r] == NULL || world->event[other] == NULL || other == r) continue;
            SPW_TRY_GPU(cudaStreamWaitEvent(world->stream[r], (cudaEvent_t)world->event[other], 0),
                        "wait for event");
        }
    }
cleanup:
    return status;
}

spw_status spw_world_synchronize(spw_world *world) {
    spw_status status = SPW_OK;
    for (size_t r = world->first; r < world->behind; r++) { /* all, before one is read */
        SPW_TRY(spw_world_use(world, r));
        SPW_TRY_GPU(cudaStreamSynchronize(world->stream[r]), "synchronize");
    }
    for (size_t r = world->first; r < world->behind; r++) {
        int found[2] = {0, 0};
        SPW_TRY(spw_world_use(world, r));
        SPW_TRY_GPU(cudaMemcpy(found, &world->control[r]->late, sizeof found, cudaMemcpyDeviceToHost),
                    "read control");
        if (found[0] != 0)
            SPW_TRY(spw_fail(SPW_EDEVICE, "rank %zu waited in vain for rank %d", r, found[0] - 1));
        if (found[1] != 0)
            SPW_TRY(
                spw_fail(SPW_EMISMATCH,
                         "rank %zu: a row of item %d was another item's; its handle is of another dispatch",
                         r, found[1] - 1));
    }
cleanup:
    return status;
}

spw_peers spw_world_peers(const spw_world *world, size_t rank) {
    spw_peers peers = {.ranks = (int)world->ranks,
                       .rank = (int)rank,
                       .wait = world->wait ? world->patience_s : 0,
                       .epoch = world->epoch};
    memcpy(peers.control, world->control, sizeof peers.control);
    return peers;
}

spw_status spw_world_counter(spw_world *world, size_t rank, int counter, uint64_t *bytes) {
    const spw_status status = spw_world_use(world, rank);
    if (status != SPW_OK) return status;
    return spw_device_check((int)cudaMemcpy(bytes, world->control[rank]->bytes[counter],
                                            world->ranks * sizeof *bytes, cudaMemcpyDeviceToHost),
                            "read counters");
}

spw_status spw_world_clear_counters(spw_world *world) {
    spw_status status = SPW_OK;
    for (size_t r = world->first; r < world->behind; r++) {
        SPW_TRY(spw_world_use(world, r));
        SPW_TRY_GPU(cudaMemset(world->control[r]->bytes, 0, sizeof world->control[r]->bytes),
                    "clear counters");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "clear counters");
    }
cleanup:
    return status;
}
