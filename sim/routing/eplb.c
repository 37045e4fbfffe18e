#include "sim/routing/eplb.h"

#include "base/memory.h"

#include <stdlib.h>

/* What one call works with; arrays of experts or slots, whichever are more. */
typedef struct work {
    float *weight, *each; /* of an expert in the order of the nodes; of one of its copies */
    float *pack_weight;
    size_t *pack_items, *pack, *rank_in_pack, *order, *copies;
    uint32_t *from_node_order; /* expert at a place of the nodes' order */
    uint32_t *of_slot;
} work;

static void destroy(work *w) {
    spw_free(w->weight), spw_free(w->each), spw_free(w->pack_weight), spw_free(w->pack_items);
    spw_free(w->pack), spw_free(w->rank_in_pack), spw_free(w->order), spw_free(w->copies);
    spw_free(w->from_node_order), spw_free(w->of_slot);
}

static spw_status create(size_t count, work *w) {
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(count, &w->weight));
    SPW_TRY(SPW_ALLOC(count, &w->each));
    SPW_TRY(SPW_ALLOC(count, &w->pack_weight));
    SPW_TRY(SPW_ALLOC(count, &w->pack_items));
    SPW_TRY(SPW_ALLOC(count, &w->pack));
    SPW_TRY(SPW_ALLOC(count, &w->rank_in_pack));
    SPW_TRY(SPW_ALLOC(count, &w->order));
    SPW_TRY(SPW_ALLOC(count, &w->copies));
    SPW_TRY(SPW_ALLOC(count, &w->from_node_order));
    SPW_TRY(SPW_ALLOC(count, &w->of_slot));

cleanup:
    return status;
}

static int heaviest_first(const void *left, const void *right, void *weights) {
    const size_t a = *(const size_t *)left, b = *(const size_t *)right;
    const float *weight = weights;
    if (weight[a] > weight[b]) return -1;
    if (weight[a] < weight[b]) return 1;
    return (a > b) - (a < b);
}

/* `items` things on `packs`, as many on each: w->pack and w->rank_in_pack. */
static void pack(work *w, float *weight, size_t items, size_t packs) {
    const size_t room = items / packs;
    for (size_t i = 0; i < items; i++) w->pack[i] = i, w->rank_in_pack[i] = 0, w->order[i] = i;
    if (room == 1) return;
    qsort_r(w->order, items, sizeof *w->order, heaviest_first, weight);
    for (size_t p = 0; p < packs; p++) w->pack_weight[p] = 0.0f, w->pack_items[p] = 0;
    for (size_t i = 0; i < items; i++) {
        size_t lightest = packs;
        for (size_t p = 0; p < packs; p++) {
            if (w->pack_items[p] < room &&
                (lightest == packs || w->pack_weight[p] < w->pack_weight[lightest]))
                lightest = p;
        }
        w->pack[w->order[i]] = lightest;
        w->rank_in_pack[w->order[i]] = w->pack_items[lightest]++;
        w->pack_weight[lightest] += weight[w->order[i]];
    }
}

/* Gives each of `slots` to one of `experts` with these weights: w->of_slot, and w->each of a slot. */
static void copy_experts(work *w, const float *weight, size_t experts, size_t slots) {
    for (size_t x = 0; x < experts; x++) w->copies[x] = 1, w->of_slot[x] = (uint32_t)x;
    for (size_t slot = experts; slot < slots; slot++) {
        size_t most = 0;
        for (size_t x = 1; x < experts; x++) {
            if (weight[x] / (float)w->copies[x] > weight[most] / (float)w->copies[most]) most = x;
        }
        w->of_slot[slot] = (uint32_t)most;
        w->copies[most]++;
    }
    for (size_t slot = 0; slot < slots; slot++)
        w->each[slot] = weight[w->of_slot[slot]] / (float)w->copies[w->of_slot[slot]];
}

/* The order of the experts by node: groups packed on nodes. */
static void order_by_node(work *w, const double *load, size_t experts, size_t groups, size_t nodes) {
    const size_t of_group = experts / groups, of_node = groups / nodes;
    for (size_t g = 0; g < groups; g++) {
        w->each[g] = 0.0f;
        for (size_t j = 0; j < of_group; j++) w->each[g] += (float)load[g * of_group + j];
    }
    pack(w, w->each, groups, nodes);
    for (size_t x = 0; x < experts; x++) {
        const size_t g = x / of_group,
                     place = (w->pack[g] * of_node + w->rank_in_pack[g]) * of_group + x % of_group;
        w->from_node_order[place] = (uint32_t)x;
        w->weight[place] = (float)load[x];
    }
}

spw_status spw_eplb_place(const spw_eplb_shape *s, const double *load, uint32_t *expert) {
    const bool by_node = s->nodes > 0 && s->groups % s->nodes == 0;
    const size_t groups = by_node ? s->groups : 1, nodes = by_node ? s->nodes : 1;
    work w = {.weight = NULL};
    spw_status status = SPW_OK;
    if (s->ranks == 0 || s->slots < s->experts || s->slots % s->ranks != 0 || s->ranks % nodes != 0 ||
        groups == 0 || s->experts % groups != 0)
        return spw_fail(SPW_EARG, "%zu experts in %zu groups on %zu slots of %zu ranks on %zu nodes",
                        s->experts, groups, s->slots, s->ranks, nodes);
    const size_t experts = s->experts / nodes, slots = s->slots / nodes, of_rank = s->slots / s->ranks;
    SPW_TRY(create(s->slots, &w));
    order_by_node(&w, load, s->experts, groups, nodes);
    for (size_t node = 0; node < nodes; node++) {
        copy_experts(&w, w.weight + node * experts, experts, slots);
        pack(&w, w.each, slots, s->ranks / nodes);
        for (size_t i = 0; i < slots; i++)
            expert[node * slots + w.pack[i] * of_rank + w.rank_in_pack[i]] =
                w.from_node_order[node * experts + w.of_slot[i]];
    }

cleanup:
    destroy(&w);
    return status;
}
