/* The network between the nodes of a cluster: its keys, its checks, and where a GPU stands in it (spw_levels in
 * sim/machine/cluster.h). */
#ifndef SPW_SIM_MACHINE_CLUSTER_LEVELS_H
#define SPW_SIM_MACHINE_CLUSTER_LEVELS_H

#include "sim/machine/cluster.h"
#include "sim/read/settings.h"

#include <stdbool.h>

extern const spw_setting spw_level_rows[]; /* ended by a row without a key */

/* Sets `count` and refuses a hierarchy that cannot be: SPW_ECONFIG with the key's path. `line`: of 'levels' in `where`. */
SPW_MUST_CHECK spw_status spw_levels_check(const char *where, size_t line, const spw_cluster *cluster,
                                           spw_levels *levels);

/* After the cluster changed its size: the highest level joins as many as there now are, and levels that nothing crosses go.
 * SPW_ECONFIG when the nodes are no whole units of a level, or the GPUs of a node no whole rails. */
SPW_MUST_CHECK spw_status spw_levels_fit(spw_cluster *cluster);

/* Has the network a level above that of the NICs? */
bool spw_levels_are_several(const spw_cluster *cluster);

/* The member of `level` that GPU `gpu` sends by: the GPU itself at level 0, above it the unit of the level below, counted from 0. Bytes
 * between two GPUs of other nodes cross the ports of a level when their members differ. */
size_t spw_levels_member(const spw_cluster *cluster, size_t level, size_t gpu);
size_t spw_levels_members(const spw_cluster *cluster, size_t level); /* how many there are */

/* Bytes/s one way of a member of `level`. */
double spw_levels_rate(const spw_cluster *cluster, size_t level);
/* Seconds that a message takes longer when `level` is the highest that it crosses; 0 without levels. */
double spw_levels_latency(const spw_cluster *cluster, size_t level);

#endif
