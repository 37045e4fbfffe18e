/* Private to world.c and those who fork its processes: what processes tell each other so that each maps the
 * others' device memory. */
#ifndef SPW_KERNELS_GPU_WORLD_LINK_H
#define SPW_KERNELS_GPU_WORLD_LINK_H

#include "kernels/gpu/world.h"

size_t spw_world_link_ranks(const spw_world_link *link);
/* Waits for all processes; at once when one of them has given up. */
void spw_world_link_meet(spw_world_link *link);
/* Every rank's memory as this process sees it, given its own at[rank], or the status of what kept it from having any:
 * returned when the others know. SPW_EDEVICE. */
SPW_MUST_CHECK spw_status spw_world_link_map(spw_world_link *link, size_t rank, spw_status own, void **at);
/* number [ranks], or NULL: only meets. SPW_EDEVICE when a process has given up. */
SPW_MUST_CHECK spw_status spw_world_link_share(spw_world_link *link, size_t rank, uint64_t *number);
/* This process ends; the others need not wait for it. */
void spw_world_link_leave(spw_world_link *link);

#endif
