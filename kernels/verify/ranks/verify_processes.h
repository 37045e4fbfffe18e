/* A process a rank: forks, lets each run, gathers what they found. */
#ifndef SPW_KERNELS_VERIFY_RANKS_VERIFY_PROCESSES_H
#define SPW_KERNELS_VERIFY_RANKS_VERIFY_PROCESSES_H

#include "kernels/gpu/world.h"
#include "kernels/verify/judge.h"

/* What one process does; only rank 0 prints to standard output. */
typedef spw_status spw_verify_process(spw_world_link *link, size_t rank, void *data, spw_judge *judge);

/* Must come before anything in this process has touched a GPU. judge += those of all. The status of the first process
 * that failed. */
SPW_MUST_CHECK spw_status spw_verify_processes(size_t ranks, spw_verify_process *process, void *data,
                                               spw_judge *judge);

#endif
