/* The placement of experts by DeepSeek's expert-parallel load balancer: which experts get copies and which rank holds what.
 * Source of the algorithm: deepseek-ai/EPLB d52c72d5, eplb.py, rebalance_experts. */
#ifndef SPW_SIM_ROUTING_EPLB_H
#define SPW_SIM_ROUTING_EPLB_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* slots: physical experts, a multiple of ranks. groups of consecutive experts stay on one node (hierarchical); groups not a
 * multiple of nodes: the global policy, which knows neither. Otherwise groups divide experts, nodes divide groups and ranks. */
typedef struct spw_eplb_shape {
    size_t experts, slots, groups, nodes, ranks;
} spw_eplb_shape;

/* Groups are packed on nodes, heaviest first on the lightest node with room; in a node a copy goes to the expert with the most
 * load a copy until the slots are used, and copies are packed on ranks in the same way. Loads and their sums are fp32, as
 * there. Of equals the first wins; the published code leaves the order of equal loads to torch.sort, which promises none.
 *   load    [experts]  at least 0
 *   expert  [slots]    the expert of each slot; rank r has slots [r slots / ranks, (r + 1) slots / ranks)
 * SPW_ENOMEM; SPW_EARG: a shape that cannot be. */
SPW_MUST_CHECK spw_status spw_eplb_place(const spw_eplb_shape *shape, const double *load, uint32_t *expert);

#endif
