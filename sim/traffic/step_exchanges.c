#include "sim/traffic/step_exchanges.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/machine/compiled_layer.h"
#include "sim/traffic/mesh_traffic.h"

enum { INT_BYTES = 4, INDEX_BYTES = 3 * INT_BYTES }; /* batch, position, expert */

typedef struct collective {
    const char *name, *formula;
    spw_operation operation;
    bool backward;
    size_t count;
} collective;

static void step_exchanges_add(spw_step_traffic *out, collective c, uint64_t elements, size_t element_bytes) {
    spw_step_add(out,
                 (spw_step_item){.name = c.name,
                                 .formula = c.formula,
                                 .operation = c.operation,
                                 .purpose = SPW_PURPOSE_EXCHANGE,
                                 .place = SPW_PLACE_MOE_LAYER,
                                 .group = SPW_GROUP_EXPERT,
                                 .backward = c.backward,
                                 .count = c.count},
                 elements, element_bytes);
}

/* The peeled layout exchanges D slots: going there as inputs of hidden width, coming back before the last
 * product, as rows of F; backward three of hidden width and one of F. */
static void add_peeled(spw_step_traffic *out, uint64_t slots, const spw_layer_shape *s) {
    const spw_operation all_to_all = SPW_OPERATION_ALL_TO_ALL;
    step_exchanges_add(out, (collective){"slots", "D H b", all_to_all, false, 1}, slots * s->hidden,
                       s->element_bytes);
    step_exchanges_add(out, (collective){"slots_ffn", "D F b", all_to_all, false, 1}, slots * s->ffn,
                       s->element_bytes);
    step_exchanges_add(out, (collective){"slots", "D H b", all_to_all, true, 3}, slots * s->hidden,
                       s->element_bytes);
    step_exchanges_add(out, (collective){"slots_ffn", "D F b", all_to_all, true, 1}, slots * s->ffn,
                       s->element_bytes);
}

static size_t parts_of(const spw_exchange *exchange) { return exchange->parts > 0 ? exchange->parts : 1; }

/* One collective an exchange, or as many as it is split into. Before a ragged one every rank learns
 * what all send to all, and to which experts (docs/schemes.md, section 2); its gradient needs the sizes again, as
 * four exchanges of a count a rank. */
static void add_exchanges(spw_step_traffic *out, const spw_scheme *scheme, const spw_layer_shape *s,
                          spw_compiled_exchange kind, uint64_t slots, bool recompute) {
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    const size_t count = scheme->type->traffic.exchanges(scheme, s, exchange), b = s->element_bytes;
    const uint64_t row = s->hidden * b;
    for (size_t i = 0; i < count; i++) {
        const bool backward = exchange[i].phase != SPW_PHASE_FORWARD, whole = exchange[i].row_bytes >= row;
        const uint64_t width = whole ? s->hidden : spw_returned_width(s);
        if (exchange[i].phase == SPW_PHASE_RECOMPUTE && !recompute) continue;
        if (kind == SPW_COMPILED_EXCHANGE_ALL_TO_ALL) {
            step_exchanges_add(out,
                               (collective){exchange[i].name, whole ? "D H b" : "D H b / TP",
                                            SPW_OPERATION_ALL_TO_ALL, backward, 1},
                               slots * width, b);
        } else if (kind == SPW_COMPILED_EXCHANGE_RAGGED) {
            step_exchanges_add(out,
                               (collective){exchange[i].name, whole ? "T K H b" : "T K H b / TP",
                                            SPW_OPERATION_RAGGED_ALL_TO_ALL, backward, 1},
                               s->assignments * width, b);
        } else if (!exchange[i].for_router) {
            const size_t chunks = parts_of(&exchange[i]);
            const bool waits = exchange[i].back && exchange[i].phase == SPW_PHASE_RECOMPUTE; /* n a turn */
            step_exchanges_add(
                out,
                (collective){exchange[i].name,
                             waits   ? "R T H b (n - 1) / n"
                             : whole ? "R T H b"
                                     : "R T H b / TP",
                             exchange[i].back ? SPW_OPERATION_REDUCE_SCATTER : SPW_OPERATION_ALL_GATHER,
                             backward, chunks},
                s->ranks * s->tokens / chunks * (waits ? exchange[i].row_bytes / b : width), b);
        }
    }
    if (kind != SPW_COMPILED_EXCHANGE_RAGGED) return;
    for (int backward = 0; backward <= recompute; backward++) {
        step_exchanges_add(out, (collective){"sizes_by_rank", "4 R R", SPW_OPERATION_ALL_GATHER, backward, 1},
                           s->ranks * s->ranks, INT_BYTES);
        step_exchanges_add(out,
                           (collective){"sizes_by_expert", "4 R E", SPW_OPERATION_ALL_GATHER, backward, 1},
                           s->ranks * s->experts, INT_BYTES);
    }
    step_exchanges_add(out, (collective){"sizes", "4 R", SPW_OPERATION_ALL_TO_ALL, true, 4}, s->ranks,
                       INT_BYTES);
}

/* The ring gathers the router's logits beside the tokens, recomputed ones too: with a selection bias those before it as well. */
static void add_logits(spw_step_traffic *out, const spw_job *job, const spw_scheme *scheme,
                       const spw_layer_shape *s, bool sorted) {
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    const size_t chunks =
                     scheme->type->traffic.exchanges(scheme, s, exchange) > 0 ? parts_of(&exchange[0]) : 1,
                 kinds = job->model.selection_bias ? 2 : 1;
    const uint64_t logits = s->ranks * s->tokens * s->experts;
    const bool again = !spw_remat_keeps_experts(job->remat);
    for (int backward = 0; backward <= again; backward++)
        step_exchanges_add(
            out, (collective){"logits", "R T E b", SPW_OPERATION_ALL_GATHER, backward, kinds * chunks},
            logits / chunks, s->element_bytes);
    if (!sorted)
        step_exchanges_add(out, (collective){"logits", "R T E b", SPW_OPERATION_REDUCE_SCATTER, true, 1},
                           logits, s->element_bytes);
}

/* The scatter of the top-k weights to [T, E]: XLA gathers indices and updates of all GPUs. With a softmax
 * router the scattered weights themselves are summed over all GPUs too, and gathered for their gradient. */
static void add_indices(spw_step_traffic *out, const spw_job *job, const spw_layer_shape *s) {
    const uint64_t gpus = out->group_size[SPW_GROUP_ALL], choices = gpus * s->tokens * s->top_k;
    const uint64_t spread = gpus * s->tokens * s->experts;
    const bool sigmoid = job->model.sigmoid_router;
    spw_step_item item = {
        .purpose = SPW_PURPOSE_INDICES, .place = SPW_PLACE_MOE_LAYER, .group = SPW_GROUP_ALL, .count = 1};
    for (int backward = 0; backward < 2; backward++) {
        item.backward = backward;
        item.operation = SPW_OPERATION_ALL_GATHER;
        item.family = SPW_FAMILY_ALONE;
        item.name = "choice_indices";
        item.formula = "12 G T K";
        if (!backward || !spw_remat_keeps_experts(job->remat)) {
            spw_step_add(out, item, choices, INDEX_BYTES);
            item.family = SPW_FAMILY_INDICES;
            item.name = "choice_updates";
            item.formula = "4 G T K";
            spw_step_add(out, item, choices, INT_BYTES);
            item.name = "choice_weights";
            item.formula = "b G T K";
            if (sigmoid) spw_step_add(out, item, choices, s->element_bytes);
        }
        item.family = SPW_FAMILY_ALONE;
        item.name = "spread_weights";
        item.formula = "b G T E";
        if (!sigmoid && backward) spw_step_add(out, item, spread, s->element_bytes);
        item.operation = SPW_OPERATION_REDUCE_SCATTER;
        if (!sigmoid) spw_step_add(out, item, spread, s->element_bytes);
        item.name = "choice_weights";
        item.formula = "b G T K";
        if (sigmoid && backward) spw_step_add(out, item, choices, s->element_bytes);
    }
}

/* Backward the peeled layout multiplies the slots of all GPUs, and masks tokens of its group. */
static void add_resharding(spw_step_traffic *out, uint64_t slots, uint64_t capacity,
                           const spw_layer_shape *s) {
    spw_step_item item = {.name = "slots_of_all",
                          .formula = "G D H b",
                          .operation = SPW_OPERATION_ALL_GATHER,
                          .purpose = SPW_PURPOSE_RESHARDING,
                          .place = SPW_PLACE_MOE_LAYER,
                          .group = SPW_GROUP_ALL,
                          .backward = true,
                          .count = 1};
    spw_step_add(out, item, slots * s->hidden, out->group_size[SPW_GROUP_ALL] * s->element_bytes);
    item.name = "dispatch_masks";
    item.formula = "R T E C";
    item.group = SPW_GROUP_EXPERT;
    spw_step_add(out, item, s->ranks * s->tokens * s->experts, capacity);
}

void spw_step_exchanges_add(const spw_point *point, spw_step_traffic *out) {
    const spw_job *job = point->job;
    const spw_scheme *scheme = point->scheme;
    const spw_layer_shape *s = &point->shape;
    const spw_compiled_layer *list = spw_scheme_program(scheme);
    const spw_grid grid = spw_grid_of(job);
    const uint64_t slots =
        scheme->type->memory.buffer_rows != NULL ? scheme->type->memory.buffer_rows(scheme, s) : 0;
    switch (list->exchange) {
    case SPW_COMPILED_EXCHANGE_NONE:
    case SPW_COMPILED_EXCHANGE_LIBRARY: break;
    case SPW_COMPILED_EXCHANGE_PEELED:
        add_peeled(out, slots, s);
        add_resharding(out, slots, spw_scheme_capacity(scheme, s), s);
        break;
    default: add_exchanges(out, scheme, s, list->exchange, slots, !spw_remat_keeps_experts(job->remat));
    }
    if (list->exchange == SPW_COMPILED_EXCHANGE_GATHER)
        add_logits(out, job, scheme, s, list->program == SPW_PROGRAM_RING_SORTED);
    if (list->capacity_slots && spw_grid_mesh_gpus(&grid) > 1) {
        spw_mesh_indices_add(job, s, out);
    } else if (list->capacity_slots) {
        add_indices(out, job, s);
    }
}
