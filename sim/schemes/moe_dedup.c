/* ROCm MaxText moe_dedup (docs/schemes.md, section 3.6): a row a (token, rank) over ragged all-to-alls, expanded on the
 * receiver into one or two tiers of fixed capacity; weights multiply the activation. */
#include "sim/schemes/fused_expert_events.h"

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

enum {
    SEND_META,
    SEND,
    RECEIVED,
    META,
    SUMMED,
    RETURNED,
    D_RETURNED,
    D_SUMMED,
    D_RECEIVED,
    D_META,
    DX_RETURNED,
    D_META_RETURNED,
    X,
    ROW_WEIGHT,
    FC1,
    ACT,
    Y,
    DY,
    D_ACT,
    D_FC1,
    D_ROW_WEIGHT,
    DX,
    ONE_TIER, /* the second one's from here on */
    OVERFLOW_X = ONE_TIER,
    OVERFLOW_ROW_WEIGHT,
    OVERFLOW_FC1,
    OVERFLOW_ACT,
    OVERFLOW_Y,
    OVERFLOW_DY,
    OVERFLOW_D_ACT,
    OVERFLOW_D_FC1,
    OVERFLOW_D_ROW_WEIGHT,
    OVERFLOW_DX,
    OVERFLOW_D_RECEIVED,
    OVERFLOW_D_META,
    TWO_TIERS
};
#define SLOTS SPW_ROWS_OWN_0
#define OVERFLOW_ROWS SPW_ROWS_OWN_1

#define TIER(p, q, r) \
    SPW_FUSED_TENSORS(p, q, r, 0), \
        [p##ROW_WEIGHT] = {q "row_weight", r, SPW_WIDTH_ONE, .element_bytes = 4}, \
        [p##D_ROW_WEIGHT] = {q "d_row_weight", r, SPW_WIDTH_ONE, .element_bytes = 4}
#define METADATA(text, r) \
    { text, r, SPW_WIDTH_TOP_K, .times = 2, .element_bytes = 4 }

static const spw_tensor tensors[] = {
    [SEND_META] = METADATA("send_meta", SLOTS),
    [SEND] = {"send", SLOTS, SPW_WIDTH_HIDDEN},
    [RECEIVED] = {"received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
    [META] = METADATA("received_meta", SPW_ROWS_GATHERED),
    [SUMMED] = {"summed", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
    [RETURNED] = {"returned", SLOTS, SPW_WIDTH_HIDDEN},
    [D_RETURNED] = {"d_returned", SLOTS, SPW_WIDTH_HIDDEN},
    [D_SUMMED] = {"d_summed", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
    [D_RECEIVED] = {"d_received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
    [D_META] = METADATA("d_received_meta", SPW_ROWS_GATHERED),
    [DX_RETURNED] = {"dx_returned", SLOTS, SPW_WIDTH_HIDDEN},
    [D_META_RETURNED] = METADATA("d_meta_returned", SLOTS),
    TIER(, "", SPW_ROWS_BUFFER),
    TIER(OVERFLOW_, "overflow ", OVERFLOW_ROWS),
    [OVERFLOW_D_RECEIVED] = {"overflow d_received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
    [OVERFLOW_D_META] = METADATA("overflow d_received_meta", SPW_ROWS_GATHERED),
};

#define DISPATCH(phase) \
    SPW_BORN(phase, "metadata", SEND_META), SPW_BORN(phase, "dispatch", SEND), \
        SPW_BORN(phase, "dispatch", RECEIVED), SPW_DIES(phase, "dispatch", SEND), \
        SPW_BORN(phase, "dispatch", META), SPW_DIES(phase, "dispatch", SEND_META)
#define EXPAND(phase, p, q) SPW_BORN(phase, q "expand", p##X), SPW_BORN(phase, q "expand", p##ROW_WEIGHT)
#define RECEIVED_DIE(phase, q) SPW_DIES(phase, q "expand", RECEIVED), SPW_DIES(phase, q "expand", META)
#define TIER_FORWARD(p, q) \
    SPW_BORN(FORWARD, q "fc1", p##FC1), SPW_DIES(FORWARD, q "fc1", p##X), \
        SPW_BORN(FORWARD, q "swiglu", p##ACT), SPW_DIES(FORWARD, q "swiglu", p##FC1), \
        SPW_DIES(FORWARD, q "swiglu", p##ROW_WEIGHT), SPW_BORN(FORWARD, q "fc2", p##Y), \
        SPW_DIES(FORWARD, q "fc2", p##ACT)
/* The second product is dead code there: nothing of the backward pass needs y. */
#define TIER_RECOMPUTE(p, q) SPW_BORN(RECOMPUTE, q "fc1", p##FC1), SPW_BORN(RECOMPUTE, q "swiglu", p##ACT)
#define TIER_BACKWARD(p, q) \
    SPW_FUSED_FC2_GRADIENT(p, q), SPW_BORN(BACKWARD, q "swiglu gradient", p##D_FC1), \
        SPW_BORN(BACKWARD, q "swiglu gradient", p##D_ROW_WEIGHT), SPW_FUSED_SWIGLU_GRADIENT(p, q), \
        SPW_DIES(BACKWARD, q "swiglu gradient", p##ROW_WEIGHT), SPW_FUSED_FC1_GRADIENT(p, q), \
        SPW_BORN(BACKWARD, q "expand gradient", p##D_RECEIVED), \
        SPW_BORN(BACKWARD, q "expand gradient", p##D_META), SPW_DIES(BACKWARD, q "expand gradient", p##DX), \
        SPW_DIES(BACKWARD, q "expand gradient", p##D_ROW_WEIGHT)
#define COMBINE \
    SPW_BORN(FORWARD, "combine", RETURNED), SPW_DIES(FORWARD, "combine", SUMMED), \
        SPW_DIES(FORWARD, "sum over shards", RETURNED)
#define COMBINE_GRADIENT \
    SPW_BORN(BACKWARD, "combine gradient", D_RETURNED), SPW_BORN(BACKWARD, "combine gradient", D_SUMMED), \
        SPW_DIES(BACKWARD, "combine gradient", D_RETURNED), SPW_BORN(BACKWARD, "reduce gradient", DY)
#define DISPATCH_GRADIENT \
    SPW_BORN(BACKWARD, "dispatch gradient", DX_RETURNED), \
        SPW_DIES(BACKWARD, "dispatch gradient", D_RECEIVED), \
        SPW_BORN(BACKWARD, "dispatch gradient", D_META_RETURNED), \
        SPW_DIES(BACKWARD, "dispatch gradient", D_META), SPW_DIES(BACKWARD, "sum over shards", DX_RETURNED), \
        SPW_DIES(BACKWARD, "sum over shards", D_META_RETURNED)

static const spw_event one_tier[] = {
    DISPATCH(FORWARD),
    EXPAND(FORWARD, , ""),
    RECEIVED_DIE(FORWARD, ""),
    TIER_FORWARD(, ""),
    SPW_BORN(FORWARD, "reduce", SUMMED),
    SPW_DIES(FORWARD, "reduce", Y),
    COMBINE,

    DISPATCH(RECOMPUTE),
    EXPAND(RECOMPUTE, , ""),
    RECEIVED_DIE(RECOMPUTE, ""),
    TIER_RECOMPUTE(, ""),

    COMBINE_GRADIENT,
    SPW_DIES(BACKWARD, "reduce gradient", D_SUMMED),
    TIER_BACKWARD(, ""),
    DISPATCH_GRADIENT,
};

/* Both branches of lax.cond take and give arrays of the tier's capacity, so the second tier's are there whether it runs or
 * not. */
static const spw_event two_tiers[] = {
    DISPATCH(FORWARD),
    EXPAND(FORWARD, , ""),
    TIER_FORWARD(, ""),
    EXPAND(FORWARD, OVERFLOW_, "overflow "),
    RECEIVED_DIE(FORWARD, "overflow "),
    TIER_FORWARD(OVERFLOW_, "overflow "),
    SPW_BORN(FORWARD, "reduce", SUMMED),
    SPW_DIES(FORWARD, "reduce", Y),
    SPW_DIES(FORWARD, "reduce", OVERFLOW_Y),
    COMBINE,

    DISPATCH(RECOMPUTE),
    EXPAND(RECOMPUTE, , ""),
    TIER_RECOMPUTE(, ""),
    EXPAND(RECOMPUTE, OVERFLOW_, "overflow "),
    RECEIVED_DIE(RECOMPUTE, "overflow "),
    TIER_RECOMPUTE(OVERFLOW_, "overflow "),

    COMBINE_GRADIENT,
    SPW_BORN(BACKWARD, "reduce gradient", OVERFLOW_DY),
    SPW_DIES(BACKWARD, "reduce gradient", D_SUMMED),
    TIER_BACKWARD(OVERFLOW_, "overflow "),
    TIER_BACKWARD(, ""),
    SPW_DIES(BACKWARD, "sum of tiers", OVERFLOW_D_RECEIVED),
    SPW_DIES(BACKWARD, "sum of tiers", OVERFLOW_D_META),
    DISPATCH_GRADIENT,
};

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

static const spw_layer_list *layer_of(const spw_scheme *scheme, const spw_layer_shape *s) {
    static const spw_layer_list lists[] = {{tensors, one_tier, ONE_TIER, SPW_COUNT_OF(one_tier)},
                                           {tensors, two_tiers, TWO_TIERS, SPW_COUNT_OF(two_tiers)}};
    return &lists[overflow_rows(scheme, s) > 0];
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
static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    const size_t places = buffer_rows(scheme, s) + overflow_rows(scheme, s), first = group * s->ranks;
    const uint32_t *n = c->routed + first * s->experts;
    for (size_t i = 0; i < s->ranks * s->ranks; i++) out->wire[i] = c->distinct[first * s->ranks + i];
    for (size_t r = 0; r < s->ranks; r++) out->dropped[r] = 0;
    for (size_t d = 0; d < s->ranks; d++) {
        size_t room = places;
        for (size_t i = 0; i < s->experts_per_rank * s->ranks; i++) {
            const size_t x = d * s->experts_per_rank + i / s->ranks, source = i % s->ranks;
            const uint32_t want = n[source * s->experts + x];
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
    .summary = "ROCm MaxText moe_dedup: a row a token and rank, expanded into tiers of fixed capacity",
    .shards_state = true,
    .section_source = "event list of the scheme (3.6)",
    .source = "ROCm/maxtext 54afa8f9 src/maxtext/layers/moe_dedup.py, moe.py",
    .options = options,
    .list = {tensors, one_tier, ONE_TIER, SPW_COUNT_OF(one_tier)},
    .layer_of = layer_of,
    .weighted_activation = true,
    .once_a_rank = true,
    .limit_after_keep = true,
    .buffer_rows = buffer_rows,
    .buffer_formula = "trunc(N buffer_factor)",
    .own_rows = own_rows,
    .own_rows_formula = {"T max_shards", "trunc(N overflow_factor)"},
    .exchanges = exchanges,
    .drop_rule = drop_rule,
    .keep = keep,
    .flow = flow,
    .check = check,
};
