/* The load of a MoE layer as a time model sees it (spw_routing_layer): balanced, by a stated imbalance, or from
 * the flow of a replayed layer. */
#ifndef SPW_SIM_TIME_ROUTING_LOAD_H
#define SPW_SIM_TIME_ROUTING_LOAD_H

#include "sim/schemes/traffic.h"
#include "sim/time/timeline.h"

typedef struct spw_point spw_point; /* sim/schemes/point.h */
typedef struct spw_counts spw_counts;

/* Without a trace: the experts of one rank get `imbalance` times the mean, those of the others what is left, alike.
 * 1 is balanced; at most the expert-parallel size, and what is above that is SPW_ECONFIG. A token's choices are
 * different experts, so the tokens of a rank that want rank d are T (1 - prod over j < K of (1 - f e / (E - j))), f
 * the load of d over the mean; where the shape limits a token to groups of experts, it picks the groups first, each alike. Rows by expert are not known, so every expert's last tile is half empty, and of less than a
 * tile as full as chance makes it. What a scheme
 * fixes (the slots of a capacity, a gather of all tokens) stays. The load is the largest of the first `groups` groups,
 * where they lie: spw_stated_positions of them stand for all, 1 is a group that begins with a node. */
SPW_MUST_CHECK spw_status spw_routing_load_stated(const spw_point *point, double imbalance, size_t groups,
                                                  spw_routing_layer *out);
size_t spw_stated_positions(const spw_job *job); /* spw_placement_positions of the job */

/* The first `groups` groups of that routing, each with its busy rank first; no rank sends an expert more choices than the
 * scheme keeps. The flow is that of group 0 until it is asked for another. Valid until destroyed. SPW_ECONFIG as above. */
typedef struct spw_stated_routing {
    spw_layer_shape shape;
    const spw_scheme *scheme; /* borrowed */
    spw_counts *counts;
    spw_flow flow;
    size_t group; /* whose flow it is */
} spw_stated_routing;
SPW_MUST_CHECK spw_status spw_stated_routing_create(const spw_point *point, double imbalance, size_t groups,
                                                    spw_stated_routing *out);
void spw_stated_routing_flow(spw_stated_routing *routing, size_t group);
void spw_stated_routing_destroy(spw_stated_routing *routing); /* a zeroed one is fine */

/* What the scheme makes of that routing: rows of the busy rank, the mean of all, and the share of the assignments that is
 * dropped. Without `inclusion` that is the least that routing of this imbalance can lose, as the rank's experts are chosen alike.
 * inclusion [experts]: how often a token chooses each expert (spw_imbalance_law_place), the busy rank's first; what such
 * popularities lose, if that is more, and the rows that are left then. They are drawn by no chance, which would lose more. */
typedef struct spw_stated_rows {
    spw_rank_rows busy;
    double mean, dropped;
} spw_stated_rows;
SPW_MUST_CHECK spw_status spw_stated_rows_of(const spw_point *point, double imbalance,
                                             const double *inclusion, spw_stated_rows *out);

/* Raises `load` to what one group of a replayed layer needs. Begin with zeros. */
void spw_routing_load_raise(const spw_routed_group *routed, const spw_flow *flow, const spw_traffic *traffic,
                            spw_routing_layer *load);

/* The same for what all groups together put on the network's ports, in rows. */
void spw_routing_load_slow(const spw_network *network, spw_routing_layer *load);

/* Adds a dispatch of every group of a stage under that routing; what groups beyond those of `routing` put on the network is that of
 * the group in their place. */
void spw_stated_routing_carry(spw_stated_routing *routing, size_t groups, spw_network *network);

/* What one dispatch of balanced routing puts on the busiest port of every level; none where the network has one level. */
SPW_MUST_CHECK spw_status spw_stated_routing_levels(const spw_point *point, spw_level_bytes *out);

#endif
