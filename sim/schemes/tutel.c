/* Tutel: a fixed number of places an expert and source rank, filled by choice rank first (docs/schemes.md, section 6.2).
 * Encoder and decoder work in fp32; tokens travel and are multiplied in the type of the activations. */
#include "sim/schemes/glu_events.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

static const char *const no_yes[] = {"false", "true", NULL};

static const spw_scheme_option options[] = {
    {"capacity_factor", -1e6, 1e6, 1.0, true,
     "places of an expert as a multiple of the balanced load of a rank; 0 = as many as the fullest expert "
     "needs; "
     "below 0: the same, at most -capacity_factor times the balanced load",
     NULL},
    {"alignment", 1.0, 65536.0, 1.0, false, "places are rounded up to a multiple of it", NULL},
    {"batch_prioritized", 0.0, 0.0, 0.0, false,
     "tokens whose best weight is greatest are served first, instead of in token order", no_yes},
    {.name = NULL},
};

enum {
    INPUT32,
    DISPATCHED32,
    DISPATCHED,
    RECEIVED,
    X,
    W0,
    W1,
    SILU,
    ACT,
    Y,
    Y_SENT,
    RETURNED,
    RETURNED32,
    OUT32,
    OUT32_CHOICE,
    OUT32_SUM,
    DY32,
    D_RETURNED32,
    D_RETURNED,
    DY_RECEIVED,
    DY,
    DACT,
    DSILU,
    DW0,
    DW1,
    DX0,
    DX1,
    DX_SENT,
    D_DISPATCHED,
    D_DISPATCHED32
};

/* Rows that the capacity fixes, or that follow the fullest expert. */
#define TENSORS(rows) \
    SPW_GLU_TENSORS(rows), \
        [INPUT32] = {"input_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4}, \
        [DISPATCHED32] = {"dispatched_fp32", rows, SPW_WIDTH_HIDDEN, .element_bytes = 4}, \
        [DISPATCHED] = {"dispatched", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
        [RECEIVED] = {"received", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
        [Y_SENT] = {"y_sent", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
        [RETURNED] = {"returned", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
        [RETURNED32] = {"returned_fp32", rows, SPW_WIDTH_HIDDEN, .element_bytes = 4}, \
        [OUT32] = {"token_sum", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4}, \
        [OUT32_CHOICE] = {"token_choice", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4}, \
        [OUT32_SUM] = {"token_new_sum", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4}, \
        [DY32] = {"d_output_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4}, \
        [D_RETURNED32] = {"d_returned_fp32", rows, SPW_WIDTH_HIDDEN, .element_bytes = 4}, \
        [D_RETURNED] = {"d_returned", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
        [DY_RECEIVED] = {"dy_received", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
        [DX_SENT] = {"dx_sent", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
        [D_DISPATCHED] = {"d_dispatched", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
        [D_DISPATCHED32] = {"d_dispatched_fp32", rows, SPW_WIDTH_HIDDEN, .element_bytes = 4}

static const spw_tensor fixed_tensors[] = {TENSORS(SPW_ROWS_BUFFER)};
static const spw_tensor dynamic_tensors[] = {TENSORS(SPW_ROWS_HELD)};

#define ENCODE(phase) SPW_BORN(phase, "cast of the input", INPUT32), SPW_BORN(phase, "encode", DISPATCHED32)
#define TO_EXPERTS(phase) \
    SPW_BORN(phase, "cast of the dispatched", DISPATCHED), \
        SPW_DIES(phase, "cast of the dispatched", DISPATCHED32), SPW_BORN(phase, "all-to-all", RECEIVED), \
        SPW_BORN(phase, "layout of x", X), SPW_DIES(phase, "layout of x", RECEIVED), \
        SPW_DIES(phase, "layout of x", DISPATCHED)

/* The permuted view of y is made contiguous for the exchange. */
#define EXCHANGE_BACK(phase) \
    SPW_BORN(phase, "layout of y", Y_SENT), SPW_BORN(phase, "all-to-all back", RETURNED), \
        SPW_DIES(phase, "all-to-all back", Y_SENT), SPW_DIES(phase, "all-to-all back", Y), \
        SPW_BORN(phase, "cast of the returned", RETURNED32)

/* One [T, H] a choice, added to the sum so far. */
#define SUM_OF_CHOICES(phase, step) \
    SPW_BORN(phase, step, OUT32), SPW_BORN(phase, step, OUT32_CHOICE), SPW_BORN(phase, step, OUT32_SUM), \
        SPW_DIES(phase, step, OUT32_CHOICE), SPW_DIES(phase, step, OUT32), SPW_DIES(phase, step, OUT32_SUM)
#define SUM_OF_ONE_CHOICE(phase, step) SPW_BORN(phase, step, OUT32), SPW_DIES(phase, step, OUT32)

#define EVENTS(SUM) \
    ENCODE(FORWARD), SPW_DIES(FORWARD, "encode", INPUT32), TO_EXPERTS(FORWARD), SPW_GLU_GATES(FORWARD), \
        SPW_DIES(FORWARD, "product", SILU), SPW_BORN(FORWARD, "gemm wo", Y), \
        SPW_DIES(FORWARD, "gemm wo", ACT), SPW_DIES(FORWARD, "gemm wo", W0), \
        SPW_DIES(FORWARD, "gemm wo", W1), SPW_DIES(FORWARD, "gemm wo", X), EXCHANGE_BACK(FORWARD), \
        SUM(FORWARD, "decode"), SPW_DIES(FORWARD, "return", RETURNED32), \
        SPW_DIES(FORWARD, "return", RETURNED), \
\
        ENCODE(RECOMPUTE), TO_EXPERTS(RECOMPUTE), SPW_GLU_GATES(RECOMPUTE), \
        SPW_BORN(RECOMPUTE, "gemm wo", Y), EXCHANGE_BACK(RECOMPUTE), SUM(RECOMPUTE, "decode"), \
        SPW_DIES(RECOMPUTE, "return", RETURNED), \
\
        SPW_BORN(BACKWARD, "decode gradient", DY32), SPW_BORN(BACKWARD, "decode gradient", D_RETURNED32), \
        SPW_DIES(BACKWARD, "decode gradient", DY32), SPW_DIES(BACKWARD, "decode gradient", RETURNED32), \
        SPW_BORN(BACKWARD, "cast gradient of the returned", D_RETURNED), \
        SPW_DIES(BACKWARD, "cast gradient of the returned", D_RETURNED32), \
        SPW_BORN(BACKWARD, "all-to-all back gradient", DY_RECEIVED), \
        SPW_DIES(BACKWARD, "all-to-all back gradient", D_RETURNED), SPW_BORN(BACKWARD, "layout of dy", DY), \
        SPW_DIES(BACKWARD, "layout of dy", DY_RECEIVED), SPW_GLU_GRADIENT(), \
        SPW_BORN(BACKWARD, "layout of dx", DX_SENT), \
        SPW_BORN(BACKWARD, "all-to-all gradient", D_DISPATCHED), \
        SPW_DIES(BACKWARD, "all-to-all gradient", DX_SENT), SPW_DIES(BACKWARD, "all-to-all gradient", DX1), \
        SPW_BORN(BACKWARD, "cast gradient of the dispatched", D_DISPATCHED32), \
        SPW_DIES(BACKWARD, "cast gradient of the dispatched", D_DISPATCHED), \
        SUM(BACKWARD, "encode gradient"), SPW_DIES(BACKWARD, "encode gradient", D_DISPATCHED32), \
        SPW_DIES(BACKWARD, "encode gradient", INPUT32)

static const spw_event events[] = {EVENTS(SUM_OF_CHOICES)};
static const spw_event top_1_events[] = {EVENTS(SUM_OF_ONE_CHOICE)};

#define LIST(tensors, events) \
    { tensors, events, SPW_COUNT_OF(tensors), SPW_COUNT_OF(events) }

static double factor_of(const spw_scheme *scheme) {
    return spw_scheme_option_value(scheme, "capacity_factor");
}

static const spw_layer_list *layer_of(const spw_scheme *scheme, const spw_layer_shape *s) {
    static const spw_layer_list lists[2][2] = {
        {LIST(fixed_tensors, events), LIST(fixed_tensors, top_1_events)},
        {LIST(dynamic_tensors, events), LIST(dynamic_tensors, top_1_events)}};
    return &lists[!(factor_of(scheme) > 0.0)][s->top_k == 1];
}

static size_t aligned(const spw_scheme *scheme, size_t places) {
    const size_t alignment = (size_t)spw_scheme_option_value(scheme, "alignment");
    return (places + alignment - 1) / alignment * alignment;
}

/* K int(|factor| ceil(T / E)) */
static size_t places_of(const spw_scheme *scheme, const spw_layer_shape *s) {
    const size_t even = (s->tokens + s->experts - 1) / s->experts;
    return s->top_k * (size_t)(fabs(factor_of(scheme)) * (double)even);
}

/* C, when the fullest expert of any rank has `fullest` choices. */
static size_t capacity_of(const spw_scheme *scheme, const spw_layer_shape *s, size_t fullest) {
    const double factor = factor_of(scheme);
    const size_t places = places_of(scheme, s);
    if (factor > 0.0) return aligned(scheme, places);
    return aligned(scheme, factor < 0.0 && places < fullest ? places : fullest);
}

static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return factor_of(scheme) > 0.0 ? s->experts * capacity_of(scheme, s, 0) : 0;
}

static size_t expert_capacity(const spw_scheme *scheme, const spw_layer_shape *s) {
    return factor_of(scheme) == 0.0 ? SIZE_MAX : aligned(scheme, places_of(scheme, s));
}

static bool prioritized(const spw_scheme *scheme) {
    return spw_scheme_option_is(scheme, "batch_prioritized", "true");
}

static spw_drop_rule drop_rule(const spw_scheme *scheme) {
    if (factor_of(scheme) == 0.0) return SPW_DROP_BY_LIMIT;
    return prioritized(scheme) ? SPW_DROP_BY_WEIGHT : SPW_DROP_BY_TOKEN;
}

typedef struct ranked_token {
    float best;
    size_t token;
} ranked_token;

static int by_best(const void *left, const void *right) {
    const ranked_token *a = left, *b = right;
    if (a->best != b->best) return a->best > b->best ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* The tokens of one rank in the order in which they are served. */
static void order_tokens(const spw_layer_shape *s, const float *weight, const int32_t *expert,
                         ranked_token *order) {
    for (size_t t = 0; t < s->tokens; t++) {
        order[t] = (ranked_token){0.0f, t};
        for (size_t i = t * s->top_k; i < (t + 1) * s->top_k && weight != NULL; i++) {
            if (expert[i] >= 0 && weight[i] > order[t].best) order[t].best = weight[i];
        }
    }
    if (weight != NULL && s->tokens > 0) qsort(order, s->tokens, sizeof *order, by_best);
}

/* All first choices, then all second choices, and so on; an expert keeps those that find one of its C places. */
static spw_status keep(const spw_scheme *scheme, const spw_layer_shape *s, const spw_choices *choices,
                       uint8_t *kept) {
    size_t *count = NULL, fullest = 0;
    ranked_token *order = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->ranks * s->experts, &count));
    SPW_TRY(SPW_ALLOC(s->tokens, &order));
    for (size_t i = 0; i < s->ranks * s->assignments; i++) {
        if (choices->expert[i] < 0) continue;
        const size_t n = ++count[i / s->assignments * s->experts + (size_t)choices->expert[i]];
        fullest = n > fullest ? n : fullest;
    }
    const size_t capacity = capacity_of(scheme, s, fullest);
    for (size_t i = 0; i < s->ranks * s->experts; i++) count[i] = 0;
    for (size_t r = 0; r < s->ranks; r++) {
        const size_t first = r * s->assignments;
        order_tokens(s, prioritized(scheme) ? choices->weight + first : NULL, choices->expert + first, order);
        for (size_t k = 0; k < s->top_k; k++) {
            for (size_t t = 0; t < s->tokens; t++) {
                const size_t i = first + order[t].token * s->top_k + k;
                if (choices->expert[i] < 0) continue;
                kept[i] = count[r * s->experts + (size_t)choices->expert[i]]++ < capacity;
            }
        }
    }

cleanup:
    spw_free(order);
    spw_free(count);
    return status;
}

/* The kept choices' fullest expert gives the same C as that of all choices: it is cut at C or it is the fullest. */
static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    size_t fullest = 0;
    for (size_t i = 0; i < s->ranks * s->experts; i++) {
        const uint32_t n = c->routed[group * s->ranks * s->experts + i];
        if (drop_rule(scheme) == SPW_DROP_BY_LIMIT) out->limit[i] = n;
        fullest = n > fullest ? n : fullest;
    }
    const size_t capacity = capacity_of(scheme, s, fullest);
    for (size_t i = 0; i < s->ranks * s->ranks; i++) out->wire[i] = s->experts_per_rank * capacity;
    for (size_t d = 0; d < s->ranks; d++) {
        out->rows[d] = s->experts * capacity;
        out->dropped[d] = 0;
    }
}

/* Only where rows follow the fullest expert: all are as full as the mean. */
static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t even = (s->assignments + s->experts - 1) / s->experts;
    rows->held = rows->received = rows->sent = s->experts * capacity_of(scheme, s, even);
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (!prioritized(scheme) || factor_of(scheme) > 0.0) return spw_check_remat(scheme, s);
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': with batch_prioritized Tutel's code reads the fullest expert off the last token "
        "alone, which is not modelled; capacity_factor above 0, or no batch_prioritized, would be right",
        scheme->text);
}

const spw_scheme_type spw_scheme_tutel = {
    .name = "tutel",
    .summary = "Tutel: a number of places an expert and rank, first choices first, equal exchanges",
    .section_source = "event list of the scheme (6.2)",
    .source =
        "microsoft/tutel tutel/impls/{fast_dispatch,moe_layer,communicate}.py, tutel/experts/llama_ffn.py",
    .options = options,
    .list = LIST(fixed_tensors, events),
    .layer_of = layer_of,
    .reorders_sums = true,
    .by_choice_rank = true,
    .buffer_rows = buffer_rows,
    .buffer_formula = "E C",
    .exchanges = spw_row_exchanges,
    .drop_rule = drop_rule,
    .keep = keep,
    .expert_capacity = expert_capacity,
    .flow = flow,
    .balance = balance,
    .check = check,
};
