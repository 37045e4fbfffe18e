/* Puts measured links into a cluster file. */
#ifndef SPW_SIM_COMMAND_BENCH_CLUSTER_LINK_H
#define SPW_SIM_COMMAND_BENCH_CLUSTER_LINK_H

#include "kernels/gpu/link_curve.h"

/* Writes the cluster `cluster` (a preset or a file, see spw_cluster_read) to `path` with the curve as its key `link`,
 * in the place of one that was there. The file appears whole or not at all, and can be read as a cluster.
 * SPW_ECONFIG, SPW_EIO, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_cluster_link_save(const char *cluster, const spw_link_curve *curve,
                                                const char *path);

#endif
