#include "sim/schemes/network.h"

#include "base/memory.h"
#include "sim/machine/cluster_levels.h"

#include <string.h>

typedef struct network_port {
    uint64_t out, in;
} network_port;

struct spw_network {
    const spw_cluster *cluster;
    size_t levels, ports;
    size_t first[SPW_LEVELS + 1]; /* of a level's ports; the last is `ports` */
    network_port *port;
};

spw_status spw_network_create(const spw_cluster *cluster, spw_network **out) {
    spw_network *network = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    if (!spw_levels_are_several(cluster)) return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &network));
    network->cluster = cluster;
    network->levels = cluster->levels.count;
    for (size_t l = 0; l < network->levels; l++)
        network->first[l + 1] = network->first[l] + spw_levels_members(cluster, l);
    network->ports = network->first[network->levels];
    SPW_TRY(SPW_ALLOC(network->ports, &network->port));
    *out = network;
    network = NULL;

cleanup:
    spw_network_destroy(network);
    return status;
}

void spw_network_destroy(spw_network *network) {
    if (network != NULL) spw_free(network->port);
    spw_free(network);
}

void spw_network_clear(spw_network *network) {
    memset(network->port, 0, network->ports * sizeof *network->port);
}

void spw_network_carry(spw_network *network, size_t from, size_t to, uint64_t bytes) {
    for (size_t l = 0; l < network->levels && bytes > 0; l++) {
        const size_t sender = spw_levels_member(network->cluster, l, from),
                     receiver = spw_levels_member(network->cluster, l, to);
        if (sender == receiver) return; /* and above it they are the same unit, too */
        network->port[network->first[l] + sender].out += bytes;
        network->port[network->first[l] + receiver].in += bytes;
    }
}

uint64_t spw_network_busiest(const spw_network *network, size_t level) {
    uint64_t most = 0;
    for (size_t i = network->first[level]; i < network->first[level + 1]; i++) {
        most = network->port[i].out > most ? network->port[i].out : most;
        most = network->port[i].in > most ? network->port[i].in : most;
    }
    return most;
}

spw_network_worst spw_network_worst_of(const spw_network *network) {
    spw_network_worst worst = {.level = 0, .nic_bytes = 0.0, .latency_s = 0.0};
    const double nic = spw_levels_rate(network->cluster, 0);
    for (size_t l = 0; l < network->levels; l++) {
        const uint64_t busiest = spw_network_busiest(network, l);
        const double at_nic = (double)busiest * (nic / spw_levels_rate(network->cluster, l));
        if (busiest > 0) worst.latency_s = spw_levels_latency(network->cluster, l);
        if (at_nic > worst.nic_bytes) worst.nic_bytes = at_nic, worst.level = l;
    }
    return worst;
}

/* --- By level --- */

static uint64_t greater(uint64_t a, uint64_t b) { return a > b ? a : b; }

void spw_level_bytes_raise(spw_level_bytes *levels, uint64_t link_bytes, const spw_network *network,
                           uint64_t row_bytes) {
    levels->count = network->levels + 1;
    levels->most[0] = greater(levels->most[0], link_bytes);
    for (size_t l = 0; l < network->levels; l++)
        levels->most[l + 1] = greater(levels->most[l + 1], spw_network_busiest(network, l) * row_bytes);
}

void spw_level_bytes_join(spw_level_bytes *levels, const spw_level_bytes *other) {
    if (other->count > 0) levels->count = other->count;
    for (size_t i = 0; i < other->count; i++) levels->most[i] = greater(levels->most[i], other->most[i]);
}

const char *spw_level_bytes_name(const spw_cluster *cluster, size_t place) {
    return place == 0 ? "node" : cluster->levels.name[place - 1];
}

double spw_level_bytes_seconds(const spw_level_bytes *levels, const spw_cluster *cluster, size_t place) {
    const double rate = place == 0 ? cluster->link_bytes_per_s.value : spw_levels_rate(cluster, place - 1);
    return (double)levels->most[place] / rate;
}

size_t spw_level_bytes_slowest(const spw_level_bytes *levels, const spw_cluster *cluster) {
    size_t slowest = 0;
    for (size_t i = 1; i < levels->count; i++) {
        if (spw_level_bytes_seconds(levels, cluster, i) > spw_level_bytes_seconds(levels, cluster, slowest))
            slowest = i;
    }
    return slowest;
}
