/* Routing counts: the only thing that schemes know of a trace. From the choices of one step and layer to
 * n[s][x], U[s->d], Q[s->node] and counts per sequence (docs/schemes.md, section 0). */
#ifndef SPW_SIM_ROUTING_COUNTS_H
#define SPW_SIM_ROUTING_COUNTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace_record spw_trace_record;

/* `tokens` consecutive rows of a record, held by one rank as part of its sequence number `sequence`. */
typedef struct spw_segment {
    uint64_t first;
    uint32_t tokens, sequence;
} spw_segment;

/* Which rank of the job holds which rows. Segments of a rank stand in order of sequence. */
typedef struct spw_layout {
    size_t ranks, sequences; /* sequences: per rank */
    size_t *begin;           /* [ranks + 1] into segment */
    spw_segment *segment;
    size_t capacity; /* of segment */
    size_t begun;    /* begin[0] to begin[begun] are right before the layout is closed */
} spw_layout;

/* Expert-parallel groups are consecutive ranks; expert x lives on rank x / (experts / group_ranks) of its
 * group. */
typedef struct spw_placement {
    size_t ranks;         /* all ranks of the job, a multiple of group_ranks */
    size_t group_ranks;   /* expert-parallel size, which divides experts, times expert_tensor */
    size_t gpus_per_node; /* rank r sits on node r / gpus_per_node */
    size_t experts;
    size_t expert_tensor; /* consecutive ranks that share each expert; 0 counts as 1; divides group_ranks */
} spw_placement;

/* Tables that not everybody reads. */
typedef enum spw_counts_parts {
    SPW_COUNTS_ROUTED = 0,
    SPW_COUNTS_SEQUENCES = 1, /* per_sequence */
    SPW_COUNTS_DISTINCT = 2,  /* distinct and distinct_node */
    SPW_COUNTS_ALL = 3
} spw_counts_parts;

/* Ranks with the same sequences have one line in common. Ask with spw_counts_line_of, or with the functions behind it. */
typedef struct spw_counts {
    spw_placement placement;
    size_t sequences, group_nodes; /* group_nodes: the most nodes that one group touches */
    spw_counts_parts parts;
    size_t room;    /* lines that the tables have room for */
    uint32_t *line; /* [ranks] the line of a rank, where `shared`; else rank r has line r */
    bool shared;    /* may be set by who fills the tables; spw_counts_fill unsets it */
    uint32_t
        *per_sequence;  /* [lines][sequences][experts] assignments of one sequence to an expert; or NULL */
    uint32_t *routed;   /* n [lines][experts]; the same array where a rank has one sequence */
    uint32_t *distinct; /* U [lines][group_ranks] tokens of s with at least one expert on d; or NULL */
    uint32_t *
        distinct_node; /* Q [lines][group_nodes] the same for a node, counted from the group's first node; or NULL */
    uint64_t *tokens;      /* [ranks] */
    uint64_t *assignments; /* [ranks] = sum over x of n */
} spw_counts;

SPW_MUST_CHECK spw_status spw_layout_create(size_t ranks, size_t sequences, spw_layout **out);
/* Appends to the last rank begun, or begins one behind it; grows. */
SPW_MUST_CHECK spw_status spw_layout_append(spw_layout *layout, size_t rank, spw_segment segment);
/* The same in two parts, so that all segments cost one pass over the ranks: the layout is not to be read until it is closed. */
SPW_MUST_CHECK spw_status spw_layout_put(spw_layout *layout, size_t rank, spw_segment segment);
void spw_layout_close(spw_layout *layout);
void spw_layout_clear(spw_layout *layout);
void spw_layout_destroy(spw_layout *layout); /* NULL is fine */

/* With all parts, and a line a rank. SPW_ECONFIG when the placement cannot be. */
SPW_MUST_CHECK spw_status spw_counts_create(spw_placement placement, size_t sequences, spw_counts **out);
/* With these parts, and no line before spw_counts_reserve(), which those that fill them call. */
SPW_MUST_CHECK spw_status spw_counts_create_parts(spw_placement placement, size_t sequences,
                                                  spw_counts_parts parts, spw_counts **out);
/* Room for so many lines, at most one a rank; what stood in the tables is lost where there was less. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_counts_reserve(spw_counts *counts, size_t lines);
void spw_counts_destroy(spw_counts *counts); /* NULL is fine */

/* Counts one record. Ids are trusted to be < placement.experts or `missing` (the trace reader checks). One
 * thread owns a rank, so the result does not depend on the number of threads. */
SPW_MUST_CHECK spw_status spw_counts_fill(spw_counts *counts, const spw_trace_record *record,
                                          const spw_layout *layout);

/* What is left when an expert takes at most `capacity` assignments of each rank: routed, tokens and assignments; `out`, of the same
 * placement, shares lines as `counts` does. Its other tables are not set. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_counts_limit(const spw_counts *counts, size_t capacity, spw_counts *out);

/* The number of tokens of each rank whose choices are all dropped, when of the assignments of a unit to
 * expert x only the first limit[rank][unit][x] in token order are kept. A unit is a sequence (per_sequence)
 * or the whole rank (units = 1). A token without any choice is not dropped.  limit [ranks][units][experts],
 * lost [ranks] */
SPW_MUST_CHECK spw_status spw_counts_lost_tokens(const spw_counts *counts, const spw_trace_record *record,
                                                 const spw_layout *layout, const uint32_t *limit,
                                                 bool per_sequence, uint64_t *lost);

/* Where the counts of a rank stand. */
static inline size_t spw_counts_line_of(const spw_counts *c, size_t rank) {
    return c->shared ? c->line[rank] : rank;
}
/* [experts] */
static inline const uint32_t *spw_counts_routed_of(const spw_counts *c, size_t rank) {
    return c->routed + spw_counts_line_of(c, rank) * c->placement.experts;
}
/* [sequences][experts] */
static inline const uint32_t *spw_counts_sequences_of(const spw_counts *c, size_t rank) {
    return c->per_sequence + spw_counts_line_of(c, rank) * c->sequences * c->placement.experts;
}
/* [group_ranks] */
static inline const uint32_t *spw_counts_distinct_of(const spw_counts *c, size_t rank) {
    return c->distinct + spw_counts_line_of(c, rank) * c->placement.group_ranks;
}
/* [group_nodes] */
static inline const uint32_t *spw_counts_nodes_of(const spw_counts *c, size_t rank) {
    return c->distinct_node + spw_counts_line_of(c, rank) * c->group_nodes;
}

/* Members that share an expert. */
size_t spw_placement_sharers(const spw_placement *p);
/* The member of its group that has expert x, of several that share it the first. */
size_t spw_placement_member(const spw_placement *placement, size_t expert);
/* First node of the group that `rank` is in, and the node index (0 ..) inside the group of its member d. */
size_t spw_placement_first_node(const spw_placement *placement, size_t group);
size_t spw_placement_node(const spw_placement *placement, size_t group, size_t member);

/* Groups whose ranks lie on more nodes than they need, because the expert-parallel size and the GPUs of a node divide
 * neither each other: as many as there are from the first one on. 0 where every group lies alike. */
size_t spw_placement_straddling(const spw_placement *placement);
/* How many groups, from the first on, lie differently on their nodes; every other group lies like one of them. The first
 * begins with a node. */
size_t spw_placement_positions(const spw_placement *placement);

#endif
