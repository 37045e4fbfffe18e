/* Megatron-Core, flex dispatcher with DeepEP or HybridEP (docs/schemes.md, section 5.4). A token travels once a rank; the
 * receiver makes a row of it for each of its experts, and pads there. */
#include "sim/routing/counts.h"
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/library_limits.h"
#include "sim/schemes/megatron/megatron_deepep.h"

#include <string.h>

static const char *const backends[] = {"deepep", "hybridep", NULL};

static const spw_scheme_option options[] = {
    {"backend", 0.0, 0.0, 0.0, false, "DeepEP, whose rows PyTorch permutes, or HybridEP, whose kernel does",
     backends},
    SPW_MEGATRON_CAPACITY_OPTIONS,
    SPW_MEGATRON_ALIGN_OPTION,
    {.name = NULL},
};

static bool is_hybrid(const spw_scheme *scheme) {
    return spw_scheme_option_is(scheme, "backend", "hybridep");
}

static spw_megatron_deepep_kind kind_of(const spw_scheme *scheme) {
    return is_hybrid(scheme) ? SPW_MEGATRON_HYBRIDEP : SPW_MEGATRON_DEEPEP;
}

static void megatron_flex_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_megatron_deepep_layer(kind_of(scheme), s, b);
}

static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    return spw_megatron_deepep_exchanges(kind_of(scheme), s, out);
}

/* Behind DeepEP padding rows are tokens that arrived: a rank where one of its experts would need more of them than there
 * are does not pad at all. HybridEP's are empty. */
static uint64_t held_rows(bool hybrid, size_t align, size_t local, const uint64_t *assigned,
                          uint64_t arrived) {
    uint64_t rows = 0, padded = 0;
    bool enough = true;
    for (size_t x = 0; x < local; x++) {
        const uint64_t wanted = spw_pad_up(assigned[x], align);
        enough = enough && (hybrid || wanted <= arrived);
        rows += assigned[x];
        padded += wanted;
    }
    return enough ? padded : rows;
}

enum { LOCAL_EXPERTS = 4096 };

/* Ranks at a time whose experts find room, along the lines of what is chosen. */
static void megatron_flex_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    const size_t mine = s->experts_per_rank, most = LOCAL_EXPERTS / mine,
                 align = spw_megatron_align(routed->scheme);
    const bool hybrid = is_hybrid(routed->scheme);
    uint64_t assigned[LOCAL_EXPERTS], arrived[LOCAL_EXPERTS];
    spw_alike chosen, sent;
    spw_megatron_deepep_flow(routed, out);
    spw_alike_of_counts(routed, &chosen);
    spw_alike_of_flow(out, s->ranks, &sent);
    for (size_t first = 0; first < s->ranks; first += most) {
        const size_t ranks = s->ranks - first < most ? s->ranks - first : most;
        spw_chosen_sums(routed, &chosen, first * mine, ranks * mine, assigned);
        memset(arrived, 0, ranks * sizeof *arrived);
        for (size_t i = 0; i < sent.lines; i++)
            (void)spw_line_add(out->wire[sent.first[i]] + first, ranks, sent.times[i], arrived);
        for (size_t d = 0; d < ranks; d++)
            out->rows[first + d] = held_rows(hybrid, align, mine, assigned + d * mine, arrived[d]);
    }
}

static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t capacity = spw_megatron_capacity(scheme, s), even = s->assignments / s->experts;
    if (capacity < even) rows->held = s->experts * capacity;
    rows->held =
        s->experts_per_rank *
        spw_pad_up((rows->held + s->experts_per_rank - 1) / s->experts_per_rank, spw_megatron_align(scheme));
}

/* 20 multiprocessors unless told otherwise (_DeepepManager). */
static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (is_hybrid(scheme)) return spw_hybrid_ep_bytes(scheme, s);
    const spw_deepep_buffers b = spw_deepep_buffer_hint(s->ranks, s->hidden, s->element_bytes, 20);
    return b.nvl_bytes + b.rdma_bytes;
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (s->experts_per_rank <= LOCAL_EXPERTS) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "scheme '%s': %zu experts a rank; at most %d are supported", scheme->text,
                    s->experts_per_rank, (int)LOCAL_EXPERTS);
}

static bool is_unpadded(const spw_scheme *scheme) { return spw_megatron_align(scheme) == 1; }

static int library(const spw_scheme *scheme) {
    return is_hybrid(scheme) ? SPW_LIBRARY_HYBRIDEP : SPW_LIBRARY_DEEPEP;
}

const spw_scheme_type spw_scheme_megatron_flex = {
    .name = "megatron-flex",
    .trainer = SPW_TRAINER_MEGATRON,
    .library = library,
    .about.summary =
        "Megatron-Core, flex dispatcher: DeepEP or HybridEP, a token once a rank, buffers of what arrives",
    .about.section = "event list of the scheme (5.4)",
    .about.source =
        "NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py MoEFlexTokenDispatcher",
    .options = options,
    .routing.factor = "capacity_factor",
    .routing.worst_factor = spw_megatron_worst_factor,
    .megatron = {true, SPW_MEGATRON_TOKENS, .as_timed = is_unpadded, .arrives_sorted = is_hybrid, .fp8 = true,
                 .freezes = true, .offloads = true},
    .memory.layer = megatron_flex_layer,
    .values.weighted_activation = true,
    .traffic.by_node = true,
    .traffic.once_a_rank = true,
    .traffic.exchanges = exchanges,
    .routing.drop_rule = spw_megatron_drop_rule,
    .routing.keep = spw_megatron_keep,
    .routing.expert_capacity = spw_megatron_capacity,
    .routing.flow = megatron_flex_flow,
    .routing.lines = spw_no_lines,
    .routing.balance = balance,
    .memory.communication_bytes = communication_bytes,
    .memory.communication_source = "buffers of DeepEP (4.3) or HybridEP (4.8)",
    .memory.communication_formula =
        "DeepEP: rings of the channels; HybridEP: R T rows and their weights, and more between nodes",
    .check = check,
};
