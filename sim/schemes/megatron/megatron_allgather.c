/* Megatron-Core, all-gather dispatcher (docs/schemes.md, section 5.3). Every rank gathers all tokens of the group with
 * their router weights, takes the rows of its own experts, and reduce-scatters the sums in fp32. */
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/megatron/megatron_layer.h"

static const spw_scheme_option options[] = {SPW_MEGATRON_CAPACITY_OPTIONS, {.name = NULL}};

/* gathered_rows is one buffer of the whole process: it lives in every pass and is saved by no layer. */
static const spw_tensor gathered_rows = {"gathered_rows", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN};

static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "all-gather",
                   (spw_tensor){"gathered_map", SPW_ROWS_GATHERED, SPW_WIDTH_EXPERTS, .element_bytes = 1});
    spw_layer_born(b, "all-gather",
                   (spw_tensor){"gathered_probs", SPW_ROWS_GATHERED, SPW_WIDTH_EXPERTS, .element_bytes = 4});
    spw_layer_born(b, "all-gather", gathered_rows);
    spw_layer_dies(b, "all-gather", "probs");
    spw_layer_born(b, "permute",
                   (spw_tensor){"local_map", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 1});
    spw_layer_born(
        b, "permute",
        (spw_tensor){"local_probs", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 4});
    spw_layer_born(
        b, "permute",
        (spw_tensor){"map_by_expert", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 1});
    spw_layer_born(b, "permute",
                   (spw_tensor){"argsort", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 8});
    spw_layer_born(b, "permute",
                   (spw_tensor){"permutation", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 8});
    spw_layer_born(b, "permute", (spw_tensor){"fc1_input", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "permute", "map_by_expert");
    spw_layer_dies(b, "permute", "argsort");
    spw_layer_born(
        b, "permute",
        (spw_tensor){"probs_by_expert", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 4});
    spw_layer_born(b, "permute",
                   (spw_tensor){"prob_mask", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 1});
    spw_layer_born(b, "permute", (spw_tensor){"row_probs", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_dies(b, "permute", "local_probs");
    spw_layer_dies(b, "permute", "gathered_map");
}

static void combine(spw_layer_builder *b) {
    spw_layer_born(b, "unpermute", (spw_tensor){"restored_rows", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unpermute", "fc2_output");
    if (spw_layer_phase(b) == SPW_PHASE_FORWARD) spw_layer_dies(b, "unpermute", "fc1_input");
    spw_layer_born(b, "reduce-scatter",
                   (spw_tensor){"restored_fp32", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_born(b, "reduce-scatter",
                   (spw_tensor){"reduced_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_dies(b, "reduce-scatter", "restored_fp32");
    spw_layer_born(b, "reduce-scatter", (spw_tensor){"output", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "reduce-scatter", "reduced_fp32");
    spw_layer_dies(b, "reduce-scatter", "restored_rows");
}

static void end(spw_layer_builder *b) {
    static const char *const saved[] = {"logits",          "chosen_probs", "local_map", "permutation",
                                        "probs_by_expert", "prob_mask",    "row_probs"};
    spw_layer_dies(b, "layer end", "gathered_rows");
    spw_layer_dies(b, "layer end", "gathered_probs");
    spw_layer_dies(b, "layer end", "routing_map");
    for (size_t i = 0; i < SPW_COUNT_OF(saved) && spw_layer_phase(b) == SPW_PHASE_FORWARD; i++)
        spw_layer_dies(b, "layer end", saved[i]);
    spw_layer_dies(b, "layer end", "output");
}

static void combine_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "combine gradient", gathered_rows);
    spw_layer_born(b, "combine gradient",
                   (spw_tensor){"d_reduced_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_born(b, "combine gradient",
                   (spw_tensor){"d_restored_fp32", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_dies(b, "combine gradient", "d_reduced_fp32");
    spw_layer_born(b, "combine gradient",
                   (spw_tensor){"d_restored_rows", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "combine gradient", "d_restored_fp32");
    spw_layer_born(b, "unpermute gradient", (spw_tensor){"d_fc2_output", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unpermute gradient", "d_restored_rows");
}

static void dispatch_gradient(spw_layer_builder *b) {
    spw_layer_born(
        b, "permute gradient",
        (spw_tensor){"d_probs_by_expert", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 4});
    spw_layer_dies(b, "permute gradient", "d_row_probs");
    spw_layer_dies(b, "permute gradient", "probs_by_expert");
    spw_layer_dies(b, "permute gradient", "prob_mask");
    spw_layer_born(
        b, "permute gradient",
        (spw_tensor){"d_gathered_probs", SPW_ROWS_GATHERED, SPW_WIDTH_EXPERTS, .element_bytes = 4});
    spw_layer_dies(b, "permute gradient", "d_probs_by_expert");
    spw_layer_born(b, "permute gradient",
                   (spw_tensor){"d_gathered_rows", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "permute gradient", "d_fc1_input");
    spw_layer_born(b, "dispatch gradient", (spw_tensor){"dx", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "dispatch gradient", "d_gathered_rows");
    spw_layer_born(b, "dispatch gradient",
                   (spw_tensor){"d_probs", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 4});
    spw_layer_dies(b, "dispatch gradient", "d_gathered_probs");
}

static void megatron_allgather_layer(const spw_scheme *scheme, const spw_layer_shape *s,
                                     spw_layer_builder *b) {
    const spw_megatron_experts experts = {.shape = s, .rows = SPW_ROWS_HELD};
    (void)scheme;
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        spw_megatron_layer_begins(b, experts);
        spw_megatron_layer_router(b, false);
        dispatch(b);
        spw_megatron_layer_experts(b, experts);
        combine(b);
        end(b);
        spw_megatron_layer_ends(b, experts);
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_megatron_layer_begins(b, experts);
    combine_gradient(b);
    spw_megatron_layer_experts_gradient(b, experts);
    dispatch_gradient(b);
    spw_megatron_layer_router_gradient(b, false);
    spw_layer_dies(b, "layer end", "local_map");
    spw_layer_dies(b, "layer end", "permutation");
    spw_layer_dies(b, "layer end", "gathered_rows");
    spw_layer_dies(b, "layer end", "dx");
    spw_megatron_layer_ends(b, experts);
}

/* There: a row, its line of the routing map and of the weights. Back: sums in the weights' fp32. */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const uint64_t row = s->hidden * s->element_bytes, sum = s->hidden * 4, map = s->experts,
                   weights = s->experts * 4;
    const spw_exchange list[] = {
        {"all-gather", SPW_PHASE_FORWARD, false, row + map + weights},
        {"reduce-scatter", SPW_PHASE_FORWARD, true, sum},
        {"all-gather again", SPW_PHASE_RECOMPUTE, false, row + map + weights},
        {"reduce-scatter again", SPW_PHASE_RECOMPUTE, true, sum},
        {"combine gradient", SPW_PHASE_BACKWARD, false, sum},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row + weights},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

static void megatron_allgather_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    spw_megatron_flow_begin(routed, out);
    spw_flow_one_line(out, s->ranks, s->tokens);
    for (size_t r = 0; r < s->ranks; r++) {
        const uint32_t *n = spw_routed_of(routed, r);
        for (size_t x = 0; x < s->experts; x++) out->rows[x / s->experts_per_rank] += n[x];
    }
}

static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t capacity = spw_megatron_capacity(scheme, s);
    rows->sent = rows->received = s->ranks * s->tokens;
    if (capacity < s->assignments / s->experts) rows->held = s->experts * capacity;
}

const spw_scheme_type spw_scheme_megatron_allgather = {
    .name = "megatron-allgather",
    .trainer = SPW_TRAINER_MEGATRON,
    .about.summary =
        "Megatron-Core, all-gather dispatcher: all tokens to all ranks, rows of what a rank's experts get",
    .about.section = "event list of the scheme (5.3)",
    .about.source =
        "NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py MoEAllGatherTokenDispatcher",
    .options = options,
    .routing.factor = "capacity_factor",
    .routing.worst_factor = spw_megatron_worst_factor,
    .megatron = {true, SPW_MEGATRON_ALL_GATHER, .offloads = true},
    .memory.layer = megatron_allgather_layer,
    .values.weighted_activation = true,
    .traffic.exchanges = exchanges,
    .routing.drop_rule = spw_megatron_drop_rule,
    .routing.keep = spw_megatron_keep,
    .routing.expert_capacity = spw_megatron_capacity,
    .routing.flow = megatron_allgather_flow,
    .routing.lines = spw_one_line,
    .routing.balance = balance,
};
