/* Megatron-Core's flex dispatcher with NCCL EP, through TransformerEngine (docs/schemes.md, section 5.7): into as many rows as
 * arrive, or into a fixed number, beyond which tokens find no slot, rows no place, and the step runs again. */
#include "base/memory.h"
#include "sim/routing/counts.h"
#include "sim/schemes/deepep/nccl_ep.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/megatron/megatron_deepep.h"

static const spw_scheme_option options[] = {
    {"rank_capacity", 0.0, 1e6, 0.0, false,
     "moe_expert_rank_capacity_factor: rows of a rank as a multiple of the assignments it makes; a step in "
     "which one has more is run again; 0 = as many as arrive",
     NULL},
    SPW_MEGATRON_ALIGN_OPTION,
    {.name = NULL},
};

static bool is_fixed(const spw_scheme *scheme) {
    return spw_scheme_option_value(scheme, "rank_capacity") > 0.0;
}

static spw_megatron_deepep_kind kind_of(const spw_scheme *scheme) {
    return is_fixed(scheme) ? SPW_MEGATRON_NCCLEP_FIXED : SPW_MEGATRON_NCCLEP;
}

static void megatron_ncclep_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_megatron_deepep_layer(kind_of(scheme), s, b);
}

static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    return spw_megatron_deepep_exchanges(kind_of(scheme), s, out);
}

/* int(P_64(T) K f), rounded up to the alignment. */
static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    const double rows =
        (double)(spw_nccl_ep_tokens(s) * s->top_k) * spw_scheme_option_value(scheme, "rank_capacity");
    return spw_pad_up((uint64_t)rows, spw_megatron_align(scheme));
}

/* Without a limit the library reckons with all choices of all ranks. */
static uint64_t slots(const spw_scheme *scheme, const spw_layer_shape *s) {
    return is_fixed(scheme) ? buffer_rows(scheme, s) : s->ranks * spw_nccl_ep_tokens(s) * s->top_k;
}

static size_t handle_bytes(const spw_scheme *scheme, const spw_layer_shape *s, size_t i) {
    return i == 0 ? spw_nccl_ep_handle_bytes(s, slots(scheme, s)) : 0;
}

static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    return spw_nccl_ep_group_bytes(s, slots(scheme, s));
}

/* Every expert may leave a part of its last tile empty. */
static double worst_factor(const spw_scheme *scheme, const spw_layer_shape *s) {
    const uint64_t padding = s->experts_per_rank * (spw_megatron_align(scheme) - 1);
    return (double)(s->worst_rows + padding) / (double)s->assignments;
}

static spw_drop_rule drop_rule(const spw_scheme *scheme) {
    return is_fixed(scheme) ? SPW_DROP_BY_TOKEN : SPW_DROP_BY_LIMIT;
}

/* A token takes one slot of each rank that it chose, by source rank and position; without one it is not sent there. */
static spw_status keep(const spw_scheme *scheme, const spw_layer_shape *s, const spw_choices *choices,
                       uint8_t *kept) {
    const size_t most = buffer_rows(scheme, s);
    size_t *next = NULL;
    const spw_status status = SPW_ALLOC(s->ranks, &next);
    if (status != SPW_OK) return status;
    for (size_t t = 0; t < s->ranks * s->tokens; t++) {
        const int32_t *expert = choices->expert + t * s->top_k;
        uint8_t *stays = kept + t * s->top_k;
        for (size_t k = 0; k < s->top_k; k++) {
            size_t first = 0;
            if (expert[k] < 0) continue;
            const size_t d = (size_t)expert[k] / s->experts_per_rank;
            while (expert[first] < 0 || (size_t)expert[first] / s->experts_per_rank != d) first++;
            stays[k] = first < k ? stays[first] : next[d]++ < most;
        }
    }
    spw_free(next);
    return SPW_OK;
}

/* Where more tokens than slots go to a rank. */
static bool may_drop(const spw_routed_group *routed) {
    const spw_layer_shape *s = routed->shape;
    const size_t most = buffer_rows(routed->scheme, s);
    bool more = false;
    for (size_t d = 0; d < s->ranks; d++) {
        uint64_t tokens = 0;
        for (size_t r = 0; r < s->ranks; r++) tokens += spw_distinct_of(routed, r)[d];
        more = more || tokens > most;
    }
    return more;
}

static void megatron_ncclep_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_scheme *scheme = routed->scheme;
    spw_megatron_deepep_flow(routed, out);
    spw_pad_within(routed, spw_megatron_align(scheme),
                   is_fixed(scheme) ? buffer_rows(scheme, routed->shape) : UINT64_MAX, out);
}

static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const uint64_t of_expert = (rows->held + s->experts_per_rank - 1) / s->experts_per_rank,
                   held = s->experts_per_rank * spw_pad_up(of_expert, spw_megatron_align(scheme)),
                   most = slots(scheme, s);
    rows->held = is_fixed(scheme) && held > most ? most : held;
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (is_fixed(scheme) && buffer_rows(scheme, s) < spw_nccl_ep_tokens(s))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': rank_capacity gives %zu rows, and NCCL EP wants at least the %zu tokens "
            "that a rank may send; rank_capacity=%.3g or more would be right",
            scheme->text, buffer_rows(scheme, s), spw_nccl_ep_tokens(s), 1.0 / (double)s->top_k);
    return spw_nccl_ep_check(scheme, s);
}

const spw_scheme_type spw_scheme_megatron_ncclep = {
    .name = "megatron-ncclep",
    .trainer = SPW_TRAINER_MEGATRON,
    .about.summary =
        "Megatron-Core, flex dispatcher with NCCL EP: rows come permuted, into as many as arrive or a fixed "
        "number; a step that overflows runs again",
    .about.section = "event list of the scheme (5.7)",
    .about.source = "NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py _NCCLEPManager; "
                    "NVIDIA/TransformerEngine pytorch/ep.py; NVIDIA/nccl-extensions nccl_ep",
    .options = options,
    .routing.factor = "rank_capacity",
    .routing.worst_factor = worst_factor,
    .routing.limits = true,
    .routing.drop_rule = drop_rule,
    .routing.keep = keep,
    .routing.may_drop = may_drop,
    .routing.flow = megatron_ncclep_flow,
    .routing.lines = spw_no_lines,
    .routing.balance = balance,
    .megatron = {.dispatcher = SPW_MEGATRON_TOKENS, .fp8 = true},
    .memory.layer = megatron_ncclep_layer,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "P_align(P_64(T) K rank_capacity)",
    .memory.own_rows = handle_bytes,
    .memory.own_rows_formula = {"routing table of a dispatch (5.7)", NULL},
    .values.weighted_activation = true,
    .traffic.by_node = true,
    .traffic.once_a_rank = true,
    .traffic.exchanges = exchanges,
    .memory.communication_bytes = communication_bytes,
    .memory.communication_source = "buffers of the NCCL EP group (5.7)",
    .memory.communication_formula =
        "2 R T rows, weights there and back and a row for each slot; more between nodes",
    .check = check,
};
