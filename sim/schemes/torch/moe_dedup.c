/* ROCm MaxText moe_dedup (docs/schemes.md, section 3.6): a row a (token, rank) over ragged all-to-alls, expanded on the
 * receiver into one or two tiers of fixed capacity; weights multiply the activation. */
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/list.h"
#include "sim/schemes/torch/experts_torch.h"

#include <math.h>

static const spw_scheme_option options[] = {
    {"buffer_factor", 0.001, 1e6, 1.0, true,
     "rows of the first tier as a multiple of the assignments that a rank makes", NULL},
    {"overflow_factor", 0.0, 1e6, 0.0, false,
     "the same of a second tier, which runs when rows reach it; 0 = none", NULL},
    {"max_shards", 0.0, 1e6, 0.0, false,
     "ranks that a token may be sent to, in order of rank; 0 = as many as it can choose", NULL},
    {.name = NULL},
};

static const spw_rows slot_rows = SPW_ROWS_OWN_0;

static size_t capacity(const spw_scheme *scheme, const spw_layer_shape *s, const char *option, size_t left) {
    const double rows = (double)s->assignments * spw_scheme_option_value(scheme, option);
    return rows < (double)left ? (size_t)rows : left;
}

static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return capacity(scheme, s, "buffer_factor", s->ranks * s->assignments);
}

static size_t overflow_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return capacity(scheme, s, "overflow_factor", s->ranks * s->assignments - buffer_rows(scheme, s));
}

static size_t slots_per_token(const spw_scheme *scheme, const spw_layer_shape *s) {
    const size_t given = (size_t)spw_scheme_option_value(scheme, "max_shards"),
                 most = s->ranks < s->top_k ? s->ranks : s->top_k;
    return given > 0 && given < s->ranks ? given : given > 0 ? s->ranks : most;
}

static size_t own_rows(const spw_scheme *scheme, const spw_layer_shape *s, size_t i) {
    return i == 0 ? s->tokens * slots_per_token(scheme, s) : overflow_rows(scheme, s);
}

static spw_tensor metadata(const char *name, spw_rows rows) {
    return (spw_tensor){name, rows, SPW_WIDTH_TOP_K, .times = 2, .element_bytes = 4};
}

static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "metadata", metadata("send_meta", slot_rows));
    spw_layer_born(b, "dispatch", (spw_tensor){"send", slot_rows, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "dispatch", (spw_tensor){"received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "dispatch", "send");
    spw_layer_born(b, "dispatch", metadata("received_meta", SPW_ROWS_GATHERED));
    spw_layer_dies(b, "dispatch", "send_meta");
}

/* The tiers: the tensors of the second are called as those of the first, behind "overflow ". */
static const spw_experts_fused tiers[] = {{.rows = SPW_ROWS_BUFFER, .weighted = true},
                                          {.rows = SPW_ROWS_OWN_1, .weighted = true}};
static const char *const prefix[] = {"", "overflow "};

/* received and received_meta die where the last tier has been expanded. */
static void expand(spw_layer_builder *b, size_t tier, bool last) {
    spw_layer_prefix(b, prefix[tier]);
    spw_layer_born(b, "expand", spw_experts_fused_x(tiers[tier], "x"));
    spw_layer_born(b, "expand",
                   (spw_tensor){"row_weight", tiers[tier].rows, SPW_WIDTH_ONE, .element_bytes = 4});
    if (!last) return;
    const char *step = tier == 0 ? "expand" : "overflow expand";
    spw_layer_prefix(b, "");
    spw_layer_dies(b, step, "received");
    spw_layer_dies(b, step, "received_meta");
    spw_layer_prefix(b, prefix[tier]);
}

static void tier_gradient(spw_layer_builder *b, size_t tier) {
    spw_layer_prefix(b, prefix[tier]);
    spw_experts_fused_gradient(b, tiers[tier]);
    spw_layer_born(b, "expand gradient", (spw_tensor){"d_received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "expand gradient", metadata("d_received_meta", SPW_ROWS_GATHERED));
    spw_layer_dies(b, "expand gradient", "dx");
    spw_layer_dies(b, "expand gradient", "d_row_weight");
    spw_layer_prefix(b, "");
}

static void combine(spw_layer_builder *b, bool two) {
    spw_layer_born(b, "reduce", (spw_tensor){"summed", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "reduce", "y");
    if (two) spw_layer_dies(b, "reduce", "overflow y");
    spw_layer_born(b, "combine", (spw_tensor){"returned", slot_rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "combine", "summed");
    spw_layer_dies(b, "sum over shards", "returned");
}

static void combine_gradient(spw_layer_builder *b, bool two) {
    spw_layer_born(b, "combine gradient", (spw_tensor){"d_returned", slot_rows, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "combine gradient", (spw_tensor){"d_summed", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "combine gradient", "d_returned");
    spw_layer_born(b, "reduce gradient", spw_experts_fused_x(tiers[0], "dy"));
    if (two) spw_layer_born(b, "reduce gradient", spw_experts_fused_x(tiers[1], "overflow dy"));
    spw_layer_dies(b, "reduce gradient", "d_summed");
}

static void dispatch_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "dispatch gradient", (spw_tensor){"dx_returned", slot_rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "dispatch gradient", "d_received");
    spw_layer_born(b, "dispatch gradient", metadata("d_meta_returned", slot_rows));
    spw_layer_dies(b, "dispatch gradient", "d_received_meta");
    spw_layer_dies(b, "sum over shards", "dx_returned");
    spw_layer_dies(b, "sum over shards", "d_meta_returned");
}

/* Both branches of lax.cond take and give arrays of the tier's capacity, so the second tier's are there whether it runs or
 * not. Recomputed, the second product is dead code: nothing of the backward pass needs y. */
static void moe_dedup_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const bool two = overflow_rows(scheme, s) > 0;
    const size_t last = two ? 1 : 0;
    dispatch(b);
    for (size_t tier = 0; tier <= last; tier++) {
        expand(b, tier, tier == last);
        spw_experts_fused_forward(b, tiers[tier]);
    }
    spw_layer_prefix(b, "");
    combine(b, two);

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    dispatch(b);
    for (size_t tier = 0; tier <= last; tier++) {
        expand(b, tier, tier == last);
        spw_experts_fused_gates(b, tiers[tier]);
    }
    spw_layer_prefix(b, "");

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b, two);
    for (size_t tier = last + 1; tier-- > 0;) tier_gradient(b, tier);
    if (two) {
        spw_layer_dies(b, "sum of tiers", "overflow d_received");
        spw_layer_dies(b, "sum of tiers", "overflow d_received_meta");
    }
    dispatch_gradient(b);
}

/* Each slot goes by 2 K numbers of its own, ids and weights; the transposed exchange carries as many gradients. The
 * recomputed combine is dead code. */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const uint64_t row = s->hidden * s->element_bytes, metadata = 8 * s->top_k;
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, row + metadata},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, row + metadata},
        {"combine gradient", SPW_PHASE_BACKWARD, false, row},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row + metadata},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

/* Can a token choose more ranks than it may be sent to? */
static spw_drop_rule drop_rule(const spw_scheme *scheme) {
    return spw_scheme_option_value(scheme, "max_shards") > 0.0 ? SPW_DROP_BY_TOKEN : SPW_DROP_BY_LIMIT;
}

/* A token goes to the first ranks it has chosen, in order of rank; choices of the others are not sent. */
static spw_status keep(const spw_scheme *scheme, const spw_layer_shape *s, const spw_choices *choices,
                       uint8_t *kept) {
    const size_t most = slots_per_token(scheme, s);
    for (size_t t = 0; t < s->ranks * s->tokens; t++) {
        const int32_t *expert = choices->expert + t * s->top_k;
        size_t shards = 0;
        for (size_t d = 0; d < s->ranks && shards < most; d++) {
            bool chosen = false;
            for (size_t k = 0; k < s->top_k; k++) {
                if (expert[k] < 0 || (size_t)expert[k] / s->experts_per_rank != d) continue;
                kept[t * s->top_k + k] = 1;
                chosen = true;
            }
            shards += chosen;
        }
    }
    return SPW_OK;
}

/* All tiers are one row of places: experts by id, of an expert tokens by source rank and position. */
static void moe_dedup_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    const size_t places = buffer_rows(routed->scheme, s) + overflow_rows(routed->scheme, s);
    spw_flow_distinct(routed, out);
    for (size_t r = 0; r < s->ranks; r++) out->dropped[r] = 0;
    for (size_t d = 0; d < s->ranks; d++) {
        size_t room = places;
        for (size_t i = 0; i < s->experts_per_rank * s->ranks; i++) {
            const size_t x = d * s->experts_per_rank + i / s->ranks, source = i % s->ranks;
            const uint32_t want = spw_routed_of(routed, source)[x];
            const uint32_t take = want < room ? want : (uint32_t)room;
            out->limit[source * s->experts + x] = take;
            out->dropped[source] += want - take;
            room -= take;
        }
        out->rows[d] = places - room;
    }
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    const double shards = spw_scheme_option_value(scheme, "max_shards");
    if (shards != floor(shards))
        return spw_fail(SPW_ECONFIG, "scheme '%s': max_shards=%g must be a whole number of ranks",
                        scheme->text, shards);
    if (buffer_rows(scheme, s) == 0) {
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': buffer_factor of %zu assignments leaves no row; %g or more would be right",
            scheme->text, s->assignments, 1.0 / (double)s->assignments);
    }
    return SPW_OK;
}

const spw_scheme_type spw_scheme_moe_dedup = {
    .name = "moe-dedup",
    .trainer = SPW_TRAINER_MAXTEXT_LAYERS,
    .about.summary = "ROCm MaxText moe_dedup: a row a token and rank, expanded into tiers of fixed capacity",
    .about.section = "event list of the scheme (3.6)",
    .about.source = "ROCm/maxtext 54afa8f9 src/maxtext/layers/moe_dedup.py, moe.py",
    .options = options,
    .routing.factor = "buffer_factor",
    .routing.worst_factor = spw_worst_rank_factor,
    .memory.layer = moe_dedup_layer,
    .values.weighted_activation = true,
    .traffic.once_a_rank = true,
    .routing.limits = true,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "trunc(N buffer_factor)",
    .memory.own_rows = own_rows,
    .memory.own_rows_formula = {"T max_shards", "trunc(N overflow_factor)"},
    .traffic.exchanges = exchanges,
    .routing.drop_rule = drop_rule,
    .routing.keep = keep,
    .routing.flow = moe_dedup_flow,
    .routing.lines = spw_no_lines,
    .check = check,
};
