/* Primus on Megatron-Core, sync-free levels (docs/schemes.md, section 3.5). 1: fused router and permutation around the
 * all-to-all dispatcher, whose router pads (it has no option `pay`). 2: DeepEP of Primus-Turbo received for the worst case. 3: permuted into a fixed buffer too. */
#include "sim/routing/counts.h"
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/megatron/megatron_alltoall.h"
#include "sim/schemes/megatron/megatron_deepep.h"

static const char *const levels[] = {"1", "2", "3", NULL};

static const spw_scheme_option options[] = {
    {"level", 0.0, 0.0, 1.0, false, "which host synchronizations are gone: 1, 2 or 3", levels},
    SPW_MEGATRON_ALIGN_OPTION,
    {.name = NULL},
};

static size_t level_of(const spw_scheme *scheme) {
    return (size_t)spw_scheme_option_value(scheme, "level") + 1;
}
static spw_megatron_deepep_kind kind_of(const spw_scheme *scheme) {
    return level_of(scheme) == 2 ? SPW_MEGATRON_PRIMUS : SPW_MEGATRON_PRIMUS_FIXED;
}

static void primus_syncfree_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    if (level_of(scheme) == 1) {
        spw_megatron_alltoall_layer(scheme, s, b, true);
    } else {
        spw_megatron_deepep_layer(kind_of(scheme), s, b);
    }
}

static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    return level_of(scheme) == 1 ? spw_megatron_alltoall_exchanges(scheme, s, out)
                                 : spw_megatron_deepep_exchanges(kind_of(scheme), s, out);
}

static bool sends_once(const spw_scheme *scheme) { return level_of(scheme) > 1; }

/* Level 3. Not min(e, K): the code takes top_k rows of every token that could come. */
static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    return s->ranks * s->assignments;
}

static size_t primus_syncfree_lines(const spw_routed_group *routed) {
    return level_of(routed->scheme) == 1 ? spw_megatron_alltoall_lines(routed) : 0;
}

static void primus_syncfree_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    if (level_of(routed->scheme) == 1) {
        spw_megatron_alltoall_flow(routed, out);
        return;
    }
    spw_megatron_deepep_flow(routed, out);
    for (size_t x = 0; x < s->experts; x++)
        out->rows[x / s->experts_per_rank] +=
            spw_pad_up(spw_chosen_rows(routed, x), spw_megatron_align(routed->scheme));
}

static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    if (level_of(scheme) == 1) {
        spw_megatron_alltoall_balance(scheme, s, rows);
    } else {
        const uint64_t even = (rows->held + s->experts_per_rank - 1) / s->experts_per_rank;
        rows->held = s->experts_per_rank * spw_pad_up(even, spw_megatron_align(scheme));
    }
}

/* turbo_deepep_num_cu: 32. */
static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (level_of(scheme) == 1) return 0;
    const spw_deepep_buffers b = spw_deepep_buffer_hint(s->ranks, s->hidden, s->element_bytes, 32);
    return b.nvl_bytes + b.rdma_bytes;
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)s;
    if (level_of(scheme) == 3 && spw_megatron_align(scheme) > 1)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': level 3 permutes into R T K rows, which padding may exceed, and what is "
            "dropped then is not modelled; align=none or level=2 would be right",
            scheme->text);
    return SPW_OK;
}

const spw_scheme_type spw_scheme_primus_syncfree = {
    .name = "primus-syncfree",
    .trainer = SPW_TRAINER_PRIMUS,
    .about.summary =
        "Primus on Megatron-Core without host synchronization: received, at level 3 permuted, for the "
        "worst case",
    .about.section = "event list of the scheme (3.5)",
    .about.source = "AMD-AGI/Primus primus/backends/megatron/core/extensions/primus_turbo.py "
                    "PrimusTurboDeepEPTokenDispatcher; "
                    "AMD-AGI/Primus-Turbo primus_turbo/pytorch/modules/moe/token_dispatcher.py",
    .options = options,
    .memory.layer = primus_syncfree_layer,
    .values.weighted_activation = true,
    .traffic.by_node = true,
    .traffic.once_a_rank = true,
    .traffic.sends_once = sends_once,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "R T K",
    .traffic.exchanges = exchanges,
    .routing.flow = primus_syncfree_flow,
    .routing.lines = primus_syncfree_lines,
    .routing.balance = balance,
    .memory.communication_bytes = communication_bytes,
    .check = check,
};
