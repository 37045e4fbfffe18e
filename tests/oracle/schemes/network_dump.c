/* usage: network_dump CLUSTER.yaml < PAIRS: lines "from to bytes" put on the network, and the most that a port of each level
 * carries, a line a level. */
#include "sim/machine/cluster.h"
#include "sim/schemes/network.h"

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv) {
    spw_cluster cluster;
    spw_network *network = NULL;
    size_t from = 0, to = 0;
    uint64_t bytes = 0;
    if (argc != 2 || spw_cluster_read(argv[1], NULL, &cluster) != SPW_OK ||
        spw_network_create(&cluster, &network) != SPW_OK || network == NULL) {
        fprintf(stderr, "network_dump: %s\n", spw_last_error());
        return 1;
    }
    while (scanf("%zu %zu %" SCNu64, &from, &to, &bytes) == 3) spw_network_carry(network, from, to, bytes);
    for (size_t l = 0; l < cluster.levels.count; l++)
        printf("%" PRIu64 "\n", spw_network_busiest(network, l));
    spw_network_destroy(network);
    return 0;
}
