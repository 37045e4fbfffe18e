/* Bytes on the ports of a network of several levels (spw_levels, sim/machine/cluster.h). What goes from a GPU to one of another
 * node leaves by the port of its member of every level and enters by the other's, as long as the two members differ; so a
 * port carries the sum of what its members send outside, and the busiest port of a level decides how long the level takes:
 *   seconds of level l = max over its members of max(out, in) / rate of l
 * Uplinks of one unit count as one port: their traffic is spread over them alike. All groups of a stage exchange at the same time. */
#ifndef SPW_SIM_SCHEMES_NETWORK_H
#define SPW_SIM_SCHEMES_NETWORK_H

#include "base/status.h"
#include "sim/machine/cluster.h"

#include <stdint.h>

typedef struct spw_network spw_network;

/* SPW_OK and NULL where the network has one level: the NICs' ports say all (sim/schemes/traffic.h). `cluster` is borrowed. */
SPW_MUST_CHECK spw_status spw_network_create(const spw_cluster *cluster, spw_network **out);
void spw_network_destroy(spw_network *network); /* NULL is fine */
void spw_network_clear(spw_network *network);

/* `bytes` (or rows) from one GPU of the cluster to another, over the network. Level 0 counts all of them. */
void spw_network_carry(spw_network *network, size_t from, size_t to, uint64_t bytes);

/* What the busiest port of a level carries one way. */
uint64_t spw_network_busiest(const spw_network *network, size_t level);

/* The level that takes longest, and what that is worth at a NIC: the bytes that would take one NIC as long. `latency_s` is that of the
 * highest level that anything crosses; 0 bytes and level 0 where nothing was carried. */
typedef struct spw_network_worst {
    size_t level;
    double nic_bytes, latency_s;
} spw_network_worst;
spw_network_worst spw_network_worst_of(const spw_network *network);

/* The most that one port of each level carries one way in one dispatch: of the links inside a node, then of the levels from the NICs
 * up. `count` is 0 where the network has one level. */
typedef struct spw_level_bytes {
    size_t count;
    uint64_t most[SPW_LEVELS + 1];
} spw_level_bytes;
/* Raises it to what `network` carries, in rows of `row_bytes`, and to the busiest link. */
void spw_level_bytes_raise(spw_level_bytes *levels, uint64_t link_bytes, const spw_network *network,
                           uint64_t row_bytes);
/* Raises it to another's. */
void spw_level_bytes_join(spw_level_bytes *levels, const spw_level_bytes *other);
const char *spw_level_bytes_name(const spw_cluster *cluster,
                                 size_t place); /* "node", then the levels' names */
/* At the full rate of the ports, without latency. */
double spw_level_bytes_seconds(const spw_level_bytes *levels, const spw_cluster *cluster, size_t place);
size_t spw_level_bytes_slowest(const spw_level_bytes *levels, const spw_cluster *cluster);

#endif
