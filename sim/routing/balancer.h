/* Balancers on a trace: experts are placed, and some copied, by the load of steps that are past, and every choice of a copied
 * expert goes to one of its copies. What a choice goes to is a slot, a physical expert: the record that a balancer hands on has
 * slots in the place of experts, and everything that counts, sends or executes takes slots for experts, rank r holding slots
 * [r slots / ranks, (r + 1) slots / ranks).
 *
 *   eplb:replicas=N,every=S[,hierarchical][,groups=G]   DeepSeek's EPLB (sim/routing/eplb.h): every expert may move
 *   echo:replicas=N,every=S                             experts stay at home; N copies of those with the most load a copy go
 *                                                       to the rank with the least load that has a free slot and no copy
 *
 * Before step 0, S, 2 S, ... of the replay the placement of every layer is made anew from the choices of the S steps before,
 * those of the whole record, as if every expert-parallel group placed alike; before step 0 every expert has the load 1. Of the
 * choices of an expert, in the order of the record, choice i goes to copy i mod (number of copies), in order of slot. */
#ifndef SPW_SIM_ROUTING_BALANCER_H
#define SPW_SIM_ROUTING_BALANCER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace_record spw_trace_record;

enum { SPW_BALANCER_TEXT = 96 };

typedef enum spw_balancer_kind { SPW_BALANCER_EPLB, SPW_BALANCER_ECHO } spw_balancer_kind;

typedef struct spw_balancer_spec {
    char text[SPW_BALANCER_TEXT]; /* as written */
    spw_balancer_kind kind;
    size_t replicas, every;
    bool hierarchical;
    size_t groups; /* 0: not said */
} spw_balancer_spec;

/* SPW_ECONFIG lists what would be right. */
SPW_MUST_CHECK spw_status spw_balancer_parse(const char *text, spw_balancer_spec *out);

typedef struct spw_balancer_shape {
    size_t experts, ranks, node_ranks; /* of a group; node_ranks: of its ranks on one node */
    size_t groups;                     /* of the model's routing; 1: none */
    size_t layers;
} spw_balancer_shape;

/* What the placements cost. Figures of one expert-parallel group, over all layers of the replay. */
typedef struct spw_balancer_moves {
    size_t placements; /* made from loads: without the one before step 0 */
    uint64_t
        moved; /* experts that a rank received as it did not hold them before, over ranks and placements */
    uint64_t moved_most; /* of the rank that received most in one placement */
    uint64_t
        copies_moved; /* the same of the placement before step 0, from experts at home: what the job begins with */
    size_t steps;
    uint64_t copy_steps; /* over steps and layers: the distinct experts of every rank, less the experts */
} spw_balancer_moves;

typedef struct spw_balancer spw_balancer;

/* SPW_ECONFIG: slots that the ranks do not divide, groups that nodes do not divide, too many slots. */
SPW_MUST_CHECK spw_status spw_balancer_create(const spw_balancer_spec *spec, const spw_balancer_shape *shape,
                                              spw_balancer **out);
void spw_balancer_destroy(spw_balancer *balancer); /* NULL is fine */

/* A step begins: placements are made when it is their turn. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_balancer_begin(spw_balancer *balancer);
/* The record of a layer with slots for experts, valid until the next call. loads: its choices count for the next placement. */
SPW_MUST_CHECK spw_status spw_balancer_map(spw_balancer *balancer, size_t layer,
                                           const spw_trace_record *record, bool loads, spw_trace_record *out);
/* [experts + replicas] the expert of every slot of a layer. */
const uint32_t *spw_balancer_placement(const spw_balancer *balancer, size_t layer);
spw_balancer_moves spw_balancer_moved(const spw_balancer *balancer);

#endif
