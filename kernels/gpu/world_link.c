#include "kernels/gpu/world_link.h"

#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

struct spw_world_link {
    size_t ranks;
    atomic_uint waiting, turn; /* a barrier that a process which has failed cannot block */
    atomic_bool left;
    cudaIpcMemHandle_t handle[SPW_WORLD_RANKS];
    bool given[SPW_WORLD_RANKS];
    uint64_t number[SPW_WORLD_RANKS];
};

spw_status spw_world_link_create(size_t ranks, spw_world_link **out) {
    *out = NULL;
    if (ranks == 0 || ranks > SPW_WORLD_RANKS)
        return spw_fail(SPW_EARG, "%zu processes; a node holds 1 to %d", ranks, SPW_WORLD_RANKS);
    void *memory = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return spw_fail(SPW_ENOMEM, "shared memory: %s", strerror(errno));
    *out = memory;
    (*out)->ranks = ranks;
    return SPW_OK;
}

void spw_world_link_destroy(spw_world_link *link) {
    if (link != NULL) (void)munmap(link, sizeof *link);
}

size_t spw_world_link_ranks(const spw_world_link *link) { return link->ranks; }
void spw_world_link_leave(spw_world_link *link) { atomic_store(&link->left, true); }

void spw_world_link_meet(spw_world_link *link) {
    const unsigned turn = atomic_load(&link->turn);
    if (atomic_fetch_add(&link->waiting, 1) + 1 == link->ranks) {
        atomic_store(&link->waiting, 0);
        atomic_fetch_add(&link->turn, 1);
        return;
    }
    while (atomic_load(&link->turn) == turn && !atomic_load(&link->left)) (void)sched_yield();
}

static spw_status given_up(void) {
    return spw_fail(SPW_EDEVICE, "another process of this world has given up");
}

spw_status spw_world_link_share(spw_world_link *link, size_t rank, uint64_t *number) {
    if (number != NULL) link->number[rank] = number[rank];
    spw_world_link_meet(link);
    if (number != NULL) memcpy(number, link->number, link->ranks * sizeof *number);
    spw_world_link_meet(link); /* all have read */
    return atomic_load(&link->left) ? given_up() : SPW_OK;
}

spw_status spw_world_link_map(spw_world_link *link, size_t rank, spw_status own, void **at) {
    spw_status status = own;
    if (status == SPW_OK)
        status = spw_device_check((int)cudaIpcGetMemHandle(&link->handle[rank], at[rank]), "share memory");
    link->given[rank] = status == SPW_OK;
    spw_world_link_meet(link);
    for (size_t r = 0; r < link->ranks && status == SPW_OK; r++) {
        if (r == rank) continue;
        if (!link->given[r]) status = spw_fail(SPW_EDEVICE, "rank %zu could not share its memory", r);
        if (status == SPW_OK)
            status = spw_device_check(
                (int)cudaIpcOpenMemHandle(&at[r], link->handle[r], cudaIpcMemLazyEnablePeerAccess),
                "map memory");
    }
    spw_world_link_meet(link);
    link->given[rank] = false; /* of this memory; a process that fails elsewhere meets here without any */
    if (status == SPW_OK && atomic_load(&link->left)) status = given_up();
    return status;
}
