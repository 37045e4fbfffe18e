/* Primus' MegaMoE (docs/schemes.md, section 3.7): dispatch within the grouped product of gate and up, combine within that of
 * down. Rows of the experts lie in a pool for the worst case; what is dispatched stays in it and is sent again for the gradient
 * of the weights. */
#include "sim/job/recipe/remat_modules.h"
#include "sim/schemes/megatron/megatron_layer.h"

enum { TILE = 256, TOKENS = 128, BARRIER = 32, LARGEST_GROUP = 8, HIDDEN = 512 };

static const spw_scheme_option options[] = {{.name = NULL}};

/* Each region of the heap begins with a multiple of this, too. */
static uint64_t region(uint64_t bytes) { return spw_pad_up(bytes, TILE); }
static uint64_t tokens_of(const spw_layer_shape *s) { return spw_pad_up(s->tokens, TOKENS); }

static size_t pool_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    const uint64_t most = s->experts_per_rank < s->top_k ? s->experts_per_rank : s->top_k;
    (void)scheme;
    return spw_pad_up(s->ranks * tokens_of(s) * most + s->experts_per_rank * (TILE - 1), TILE);
}

/* The tables of a dispatch: token and place of each row, expert of each tile, seven numbers an expert, and counts. */
static size_t handle_bytes(const spw_scheme *scheme, const spw_layer_shape *s, size_t i) {
    const size_t rows = pool_rows(scheme, s), local = s->experts_per_rank;
    return i == 0 ? 4 * (2 * rows + rows / TILE + 7 * s->experts + 1) + 8 * (2 * local + 1) : 0;
}

/* Two pools and what returns, flags in two banks, counts of all ranks, where rows came from, weights and their gradients. */
static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    const uint64_t rows = pool_rows(scheme, s), row = s->hidden * s->element_bytes,
                   slots = tokens_of(s) * s->top_k;
    return region(BARRIER) + 2 * region(rows * row) + region(slots * row) +
           2 * region(2 * (rows / TILE) * 8) + region(2 * slots * 8) + region(4 * s->ranks * s->experts) +
           3 * region(4 * rows) + region(4 * slots);
}

static spw_tensor of_pool(const char *name, spw_width width, uint8_t times) {
    return (spw_tensor){name, SPW_ROWS_BUFFER, width, .times = times};
}

static spw_tensor of_tokens(const char *name, spw_width width, uint8_t element_bytes) {
    return (spw_tensor){name, SPW_ROWS_TOKENS, width, .element_bytes = element_bytes};
}

static const spw_tensor row_probs = {"row_probs", SPW_ROWS_BUFFER, SPW_WIDTH_ONE, .element_bytes = 4},
                        d_row_probs = {"d_row_probs", SPW_ROWS_BUFFER, SPW_WIDTH_ONE, .element_bytes = 4};

static void forward(spw_layer_builder *b) {
    static const char *const of_experts[] = {"fc1_output", "row_probs", "handle"}, *const saved[] = {
                                                                                       "logits",
                                                                                       "chosen_probs",
                                                                                       "top_index"};
    const bool first = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_megatron_layer_router(b, false);
    spw_layer_born(b, "top-k", of_tokens("top_probs", SPW_WIDTH_TOP_K, 4));
    spw_layer_born(b, "top-k", of_tokens("top_index", SPW_WIDTH_TOP_K, 8));
    spw_layer_born(b, "dispatch and fc1",
                   (spw_tensor){"handle", SPW_ROWS_OWN_0, SPW_WIDTH_ONE, .element_bytes = 1});
    spw_layer_born(b, "dispatch and fc1", of_pool("fc1_output", SPW_WIDTH_FFN, 2));
    spw_layer_born(b, "dispatch and fc1", row_probs);
    spw_layer_born(b, "swiglu", of_pool("fc2_input", SPW_WIDTH_FFN, 1));
    spw_layer_born(b, "fc2 and combine", of_tokens("output", SPW_WIDTH_HIDDEN, 0));
    spw_layer_dies(b, "fc2 and combine", "fc2_input");
    for (size_t i = 0; i < SPW_COUNT_OF(of_experts) && first; i++)
        spw_layer_dies(b, "fc2 and combine", of_experts[i]);
    for (size_t i = 0; i < SPW_COUNT_OF(saved) && first; i++) spw_layer_dies(b, "layer end", saved[i]);
    spw_layer_dies(b, "layer end", "probs");
    spw_layer_dies(b, "layer end", "routing_map");
    spw_layer_dies(b, "layer end", "top_probs");
    spw_layer_dies(b, "layer end", "output");
}

static void backward(spw_layer_builder *b) {
    static const char *const of_fc2[] = {"d_fc2_input", "weighted_input", "fc1_output", "row_probs"},
                             *const of_fc1[] = {"d_fc1_output", "d_row_probs", "handle"};
    spw_layer_born(b, "combine and fc2 gradient", of_pool("d_fc2_input", SPW_WIDTH_FFN, 1));
    spw_layer_born(b, "swiglu gradient", of_pool("d_fc1_output", SPW_WIDTH_FFN, 2));
    spw_layer_born(b, "swiglu gradient", d_row_probs);
    spw_layer_born(b, "swiglu gradient", of_pool("weighted_input", SPW_WIDTH_FFN, 1));
    for (size_t i = 0; i < SPW_COUNT_OF(of_fc2); i++) spw_layer_dies(b, "fc2 weight gradient", of_fc2[i]);
    spw_layer_born(b, "fc1 and dispatch gradient", of_tokens("dx", SPW_WIDTH_HIDDEN, 0));
    spw_layer_born(b, "fc1 and dispatch gradient", of_tokens("d_top_probs", SPW_WIDTH_TOP_K, 4));
    for (size_t i = 0; i < SPW_COUNT_OF(of_fc1); i++) spw_layer_dies(b, "fc1 weight gradient", of_fc1[i]);
    spw_layer_born(b, "router gradient", of_tokens("d_probs", SPW_WIDTH_EXPERTS, 4));
    spw_layer_dies(b, "router gradient", "d_top_probs");
    spw_layer_dies(b, "router gradient", "top_index");
    spw_megatron_layer_router_gradient(b, false);
    spw_layer_dies(b, "layer end", "dx");
}

static void primus_megamoe_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme, (void)s;
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        forward(b);
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    backward(b);
}

/* A row takes its rank, its place and its weight along. The tokens are sent once more for the gradient of fc1's weights. */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const uint64_t row = s->hidden * s->element_bytes;
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, row + 12},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, row + 12},
        {"combine again", SPW_PHASE_RECOMPUTE, true, row},
        {"combine gradient", SPW_PHASE_BACKWARD, false, row},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row + 4},
        {"dispatch for fc1's weights", SPW_PHASE_BACKWARD, false, row},
    };
    (void)scheme;
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

static void primus_megamoe_flow(const spw_routed_group *routed, spw_flow *out) {
    spw_every_choice(routed, TILE, out);
}

static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t even = (s->ranks * s->assignments + s->experts - 1) / s->experts;
    (void)scheme;
    rows->held = s->experts_per_rank * spw_pad_up(even, TILE);
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (s->ranks > 1 && s->ranks <= LARGEST_GROUP && (s->node_ranks == 0 || s->node_ranks >= s->ranks))
        return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': Primus runs MegaMoE on 2 to %d expert-parallel ranks of one node, not on %zu "
        "with %zu on a node",
        scheme->text, (int)LARGEST_GROUP, s->ranks, s->node_ranks);
}

static spw_status check_kernels(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (spw_remat_repeats(s->remat, SPW_MODULE_MOE) || spw_remat_repeats(s->remat, SPW_MODULE_MOE_ACT))
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': MegaMoE's layer recomputes nothing by itself; remat full, selective or "
                        "none would be right",
                        scheme->text);
    if (s->hidden % HIDDEN == 0 && s->ffn % TILE == 0 && s->tokens % TOKENS == 0) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "scheme '%s': MegaMoE's kernels take hidden sizes in multiples of %d, expert widths in "
                    "multiples of %d and tokens of a rank in multiples of %d, not %zu, %zu and %zu",
                    scheme->text, (int)HIDDEN, (int)TILE, (int)TOKENS, s->hidden, s->ffn, s->tokens);
}

const spw_scheme_type spw_scheme_primus_megamoe = {
    .name = "primus-megamoe",
    .trainer = SPW_TRAINER_PRIMUS,
    .about.summary = "Primus' MegaMoE: dispatch and combine within the experts' products, rows in a pool for "
                     "the worst case",
    .about.section = "event list of the scheme (3.7)",
    .about.source =
        "AMD-AGI/Primus primus/backends/megatron/core/extensions/mega_moe.py; AMD-AGI/Primus-Turbo "
        "primus_turbo/flydsl/mega, primus_turbo/pytorch/ops/moe/fused_mega_moe.py",
    .options = options,
    .memory.layer = primus_megamoe_layer,
    .memory.buffer_rows = pool_rows,
    .memory.buffer_formula = "P_256(R T min(e, K) + 255 e)",
    .memory.own_rows = handle_bytes,
    .memory.own_rows_formula = {"tables of a dispatch (3.7)", NULL},
    .values.reorders_sums = true,
    .traffic.exchanges = exchanges,
    .routing.flow = primus_megamoe_flow,
    .routing.balance = balance,
    .memory.communication_bytes = communication_bytes,
    .memory.communication_source = "symmetric heap of MegaMoE (3.7)",
    .memory.communication_formula = "two pools of the worst case, a row for each choice, flags and tables",
    .check = check,
    .check_kernels = check_kernels,
};
