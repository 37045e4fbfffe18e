/* Megatron-Core without host synchronization behind HybridEP (docs/schemes.md, section 5.6): a rank holds as many rows as
 * moe_expert_rank_capacity_factor gives it, used or not; with the paged stash what the backward pass needs of those in use
 * waits in pages of a pool for all layers. A step that overflows either is run once more without both. */
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/megatron/megatron_deepep.h"

#include <math.h>

static const char *const graphs[] = {"none", "full", NULL};

static const spw_scheme_option options[] = {
    {"rank_capacity", 0.0, 1e6, 0.0, true,
     "moe_expert_rank_capacity_factor: rows of a rank as a multiple of the assignments it makes; a step in "
     "which one has more is run again",
     NULL},
    {"stash", 0.0, 1e6, 0.0, false,
     "moe_paged_stash_buffer_size_factor_cuda: pages on the GPU as a multiple of what balanced routing "
     "fills; "
     "0 = "
     "no paged stash",
     NULL},
    {"host", 0.0, 1e6, 0.0, false,
     "moe_paged_stash_buffer_size_factor_cpu: the same of pages in host memory, for what the GPU's do not "
     "hold",
     NULL},
    {"page", 1.0, 65536.0, 64.0, false, "moe_paged_stash_page_size: rows of a page", NULL},
    SPW_MEGATRON_ALIGN_OPTION,
    {"graph", 0.0, 0.0, 0.0, false,
     "full: cuda_graph_impl full_iteration, forward and backward of a step in one CUDA graph", graphs},
    {.name = NULL},
};

static bool stashes(const spw_scheme *scheme) { return spw_scheme_option_value(scheme, "stash") > 0.0; }

static spw_megatron_deepep_kind kind_of(const spw_scheme *scheme) {
    return stashes(scheme) ? SPW_MEGATRON_HYBRIDEP_STASH : SPW_MEGATRON_HYBRIDEP_FIXED;
}

static void megatron_syncfree_layer(const spw_scheme *scheme, const spw_layer_shape *s,
                                    spw_layer_builder *b) {
    spw_megatron_deepep_layer(kind_of(scheme), s, b);
}

static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    return spw_megatron_deepep_exchanges(kind_of(scheme), s, out);
}

/* int(T K f), rounded up to the alignment. */
static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    const double rows = (double)s->assignments * spw_scheme_option_value(scheme, "rank_capacity");
    return spw_pad_up((uint64_t)rows, spw_megatron_align(scheme));
}

/* Every expert may leave a part of its last tile empty. */
static double worst_factor(const spw_scheme *scheme, const spw_layer_shape *s) {
    const uint64_t padding = s->experts_per_rank * (spw_megatron_align(scheme) - 1);
    return (double)(s->worst_rows + padding) / (double)s->assignments;
}

static void megatron_syncfree_flow(const spw_routed_group *routed, spw_flow *out) {
    spw_megatron_deepep_flow(routed, out);
    spw_pad_within(routed, spw_megatron_align(routed->scheme), buffer_rows(routed->scheme, routed->shape),
                   out);
}

static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const uint64_t of_expert = (rows->held + s->experts_per_rank - 1) / s->experts_per_rank,
                   most = buffer_rows(scheme, s),
                   held = s->experts_per_rank * spw_pad_up(of_expert, spw_megatron_align(scheme));
    rows->held = held < most ? held : most;
}

/* a // b of floating-point numbers, as Python has it: the rest is taken off before the quotient is rounded. */
static uint64_t floor_quotient(double a, double b) {
    const double quotient = (a - fmod(a, b)) / b, below = floor(quotient);
    return (uint64_t)(quotient - below > 0.5 ? below + 1.0 : below);
}

/* The tensors that TransformerEngine marks in its fused MXFP8 experts: fc1's input and fc2's, column by column, each with a
 * byte of scale for 32 rows, fc1's output in bf16, the weights of the rows. Buffers are by type and width: the input of fc1
 * and its scales are bytes both. */
static bool pool(const spw_scheme *scheme, const spw_layer_shape *s, spw_page_pool *out) {
    enum { BLOCK = 32 };
    const double factor = spw_scheme_option_value(scheme, "rank_capacity");
    *out = (spw_page_pool){.factor = spw_scheme_option_value(scheme, "stash"),
                           .host_factor = spw_scheme_option_value(scheme, "host"),
                           .page_rows = (uint64_t)spw_scheme_option_value(scheme, "page"),
                           .buffer_rows = buffer_rows(scheme, s),
                           .tensor = {{s->hidden, 1, 0},
                                      {s->hidden, BLOCK, 0},
                                      {spw_layer_first(s) * s->ffn * s->element_bytes, 1, 1},
                                      {sizeof(float), 1, 2},
                                      {s->ffn, 1, 3},
                                      {s->ffn, BLOCK, 4}},
                           .tensors = SPW_POOL_TENSORS,
                           .buffers = 5};
    out->mean_rows = floor_quotient((double)out->buffer_rows, factor);
    return stashes(scheme);
}

static const char *outside(const spw_scheme *scheme) {
    return spw_scheme_option_is(scheme, "graph", "full") ? "full-iteration CUDA graph: its pool keeps what "
                                                           "the pass takes from step to step, and what eager "
                                                           "steps and the optimizer take comes on top"
                                                         : NULL;
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    const double page = spw_scheme_option_value(scheme, "page");
    if (!(spw_scheme_option_value(scheme, "rank_capacity") > 0.0))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': rank_capacity must be above 0; without a limit there is no fixed buffer, "
            "which is megatron-flex:backend=hybridep",
            scheme->text);
    if (page != floor(page))
        return spw_fail(SPW_ECONFIG, "scheme '%s': page=%g must be a whole number of rows", scheme->text,
                        page);
    if (spw_scheme_option_value(scheme, "host") > 0.0 && !stashes(scheme))
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': host= holds what the pages of stash= do not; add stash=1.1, which is "
                        "Megatron-Core's own, or leave host away",
                        scheme->text);
    return spw_hybrid_ep_check(scheme, s);
}

static bool is_unpadded(const spw_scheme *scheme) { return spw_megatron_align(scheme) == 1; }
static bool always(const spw_scheme *scheme) { return scheme != NULL; }

const spw_scheme_type spw_scheme_megatron_syncfree = {
    .name = "megatron-syncfree",
    .trainer = SPW_TRAINER_MEGATRON,
    .library = spw_hybrid_ep_library,
    .about.summary =
        "Megatron-Core without host synchronization: HybridEP into fixed buffers, paged stash if set, a step "
        "that overflows runs again",
    .about.section = "event list of the scheme (5.6)",
    .about.source = "NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py _HybridEPManager, "
                    "paged_stash.py",
    .options = options,
    .routing.factor = "rank_capacity",
    .routing.worst_factor = worst_factor,
    .megatron = {true, SPW_MEGATRON_TOKENS, .as_timed = is_unpadded, .arrives_sorted = always, .unread = true,
                 .fp8 = true},
    .memory.layer = megatron_syncfree_layer,
    .memory.buffer_rows = buffer_rows,
    .memory.pool = pool,
    .memory.outside = outside,
    .memory.pool_factor = "stash",
    .memory.buffer_formula = "P_align(T K rank_capacity)",
    .values.weighted_activation = true,
    .traffic.by_node = true,
    .traffic.once_a_rank = true,
    .traffic.exchanges = exchanges,
    .routing.limits = true,
    .routing.flow = megatron_syncfree_flow,
    .routing.lines = spw_no_lines,
    .routing.balance = balance,
    .memory.communication_bytes = spw_hybrid_ep_bytes,
    .memory.communication_source = "registered buffers (4.8)",
    .memory.communication_formula =
        "R T rows and their weights; between nodes T rows in, (nodes - 1) T received, twice that back",
    .check = check,
};
