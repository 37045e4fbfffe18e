/* Where experts are: members and nodes of a placement. */
#include "sim/routing/counts.h"

size_t spw_placement_sharers(const spw_placement *p) { return p->expert_tensor > 0 ? p->expert_tensor : 1; }

size_t spw_placement_member(const spw_placement *p, size_t expert) {
    return expert / (p->experts * spw_placement_sharers(p) / p->group_ranks) * spw_placement_sharers(p);
}

size_t spw_placement_first_node(const spw_placement *p, size_t group) {
    return group * p->group_ranks / p->gpus_per_node;
}

size_t spw_placement_node(const spw_placement *p, size_t group, size_t member) {
    return (group * p->group_ranks + member) / p->gpus_per_node - spw_placement_first_node(p, group);
}

size_t spw_placement_straddling(const spw_placement *p) {
    const size_t least = (p->group_ranks + p->gpus_per_node - 1) / p->gpus_per_node;
    size_t straddling = 0;
    for (size_t g = 0; g < p->ranks / p->group_ranks; g++)
        straddling += spw_placement_node(p, g, p->group_ranks - 1) + 1 > least;
    return straddling;
}

size_t spw_placement_positions(const spw_placement *p) {
    const size_t groups = p->ranks / p->group_ranks;
    size_t positions = 1;
    if (p->gpus_per_node % p->group_ranks == 0) return 1; /* inside a node they are alike */
    while (positions < groups && positions * p->group_ranks % p->gpus_per_node != 0) positions++;
    return positions;
}
