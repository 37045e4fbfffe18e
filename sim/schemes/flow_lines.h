/* Lines of a flow's wire, and of counts: which ranks of a group share one. */
#ifndef SPW_SIM_SCHEMES_FLOW_LINES_H
#define SPW_SIM_SCHEMES_FLOW_LINES_H

#include "sim/routing/counts.h"
#include "sim/schemes/traffic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Counts of rank r of the group. */
static inline const uint32_t *spw_routed_of(const spw_routed_group *routed, size_t r) {
    return spw_counts_routed_of(routed->counts, routed->number * routed->shape->ranks + r);
}
static inline const uint32_t *spw_distinct_of(const spw_routed_group *routed, size_t r) {
    return spw_counts_distinct_of(routed->counts, routed->number * routed->shape->ranks + r);
}

/* Choices of expert x by all ranks of the group. */
static inline uint64_t spw_chosen_rows(const spw_routed_group *routed, size_t x) {
    uint64_t rows = 0;
    for (size_t r = 0; r < routed->shape->ranks; r++) rows += spw_routed_of(routed, r)[x];
    return rows;
}

/* The tables of counts that flows of these schemes read, and traffic after them. */
spw_counts_parts spw_counts_parts_of(const spw_scheme *scheme, size_t schemes);

/* A number of rows for a line; what is more than it holds is noted for spw_flow_check(). */
static inline uint32_t spw_wire_rows(spw_flow *flow, uint64_t rows) {
    flow->too_many = flow->too_many || rows > UINT32_MAX;
    return rows > UINT32_MAX ? UINT32_MAX : (uint32_t)rows;
}

/* sum [count] grows by so many times a line. Returns what stands in the line. */
static inline uint64_t spw_line_add(const uint32_t *restrict line, size_t count, uint32_t times,
                                    uint64_t *restrict sum) {
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++) {
        sum[i] += (uint64_t)times * line[i];
        all += line[i];
    }
    return all;
}

/* Rank r has line r of flow->line, which is returned. */
uint32_t *spw_flow_own_lines(spw_flow *flow, size_t ranks);
/* All ranks have the first line of flow->line, with these rows to everybody. */
void spw_flow_one_line(spw_flow *flow, size_t ranks, uint64_t rows);
/* Has each rank one expert, of its own? Then as many tokens reach it as choose that. */
static inline bool spw_flow_has_one_expert(const spw_layer_shape *shape) {
    return shape->experts_per_rank == 1 && shape->experts == shape->ranks;
}
/* Each rank has its line of `distinct`, or of choices, where they say the same. */
void spw_flow_distinct(const spw_routed_group *routed, spw_flow *flow);

/* The ranks of a group by their lines, which are numbered as they come. */
typedef struct spw_alike {
    size_t lines;
    uint32_t of[SPW_TRAFFIC_MAX_RANKS];    /* [ranks] the line of a rank */
    uint32_t first[SPW_TRAFFIC_MAX_RANKS]; /* [lines] the first rank that has it */
    uint32_t times[SPW_TRAFFIC_MAX_RANKS]; /* [lines] how many have it */
} spw_alike;
void spw_alike_of_flow(const spw_flow *flow, size_t ranks, spw_alike *out);
void spw_alike_of_counts(const spw_routed_group *routed, spw_alike *out);
/* sum [count]: choices of the experts from the first on by all ranks of the group, whose lines `alike` has. */
void spw_chosen_sums(const spw_routed_group *routed, const spw_alike *alike, size_t first, size_t count,
                     uint64_t *sum);

#endif
