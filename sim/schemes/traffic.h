/* Bytes between ranks: what a scheme's flow and exchanges put on each link (docs/schemes.md, section 10). */
#ifndef SPW_SIM_SCHEMES_TRAFFIC_H
#define SPW_SIM_SCHEMES_TRAFFIC_H

#include "sim/schemes/network.h"
#include "sim/schemes/scheme.h"

#include <stdint.h>

typedef struct spw_counts spw_counts;

enum { SPW_TRAFFIC_MAX_RANKS = 4096 }; /* of an expert-parallel group */

/* Totals over the ranks of one group for one step and layer. */
typedef struct spw_traffic {
    uint64_t dispatch_bytes, combine_bytes; /* one exchange, off-rank */
    uint64_t layer_bytes;                   /* all exchanges of the layer, forward to backward, off-rank */
    uint64_t intra_node_bytes, inter_node_bytes; /* one dispatch, as it crosses links and NICs */
    uint64_t max_link_bytes; /* the most that one GPU's link or NIC carries one way in one dispatch */
    uint64_t max_intra_bytes, max_inter_bytes; /* the same, links and NICs apart */
} spw_traffic;

/* What each GPU of a group puts on its port inside the node and on its NIC, out and in. */
typedef struct spw_ports {
    uint64_t link_out, link_in, nic_out, nic_in;
} spw_ports;
/* port [ranks]: rows that one gather among ranks that share experts carries. */
void spw_traffic_gather_ports(const spw_routed_group *routed, const spw_flow *flow, spw_ports *port);

/* Adds the rows of one dispatch of a group to the network's ports. `first`: the GPU that is the group's rank 0. */
void spw_traffic_carry(const spw_routed_group *routed, const spw_flow *flow, size_t first,
                       spw_network *network);
/* Bytes of a row in one dispatch; 0 for a scheme that exchanges nothing. */
uint64_t spw_traffic_row_bytes(const spw_scheme *scheme, const spw_layer_shape *shape);

/* spw_flow_rows of every rank: out [ranks]. */
void spw_traffic_rows(const spw_layer_shape *shape, const spw_flow *flow, spw_rank_rows *out);

/* Rows of one dispatch: of every rank, and on its ports, without what ranks that share experts gather of each other. */
typedef struct spw_group_rows {
    spw_rank_rows rank[SPW_TRAFFIC_MAX_RANKS];
    spw_ports port[SPW_TRAFFIC_MAX_RANKS];
} spw_group_rows;
void spw_group_rows_of(const spw_routed_group *routed, const spw_flow *flow, spw_group_rows *out);

/* rows: of spw_group_rows_of(). sent [ranks] and received [ranks], bytes of one dispatch by rank of the group, may be NULL. */
void spw_traffic_compute(const spw_routed_group *routed, const spw_flow *flow, const spw_group_rows *rows,
                         bool recompute, spw_traffic *out, uint64_t *sent, uint64_t *received);

#endif
