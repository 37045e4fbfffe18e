/* Tutel: a fixed number of places an expert and source rank, filled by choice rank first (docs/schemes.md, section 6.2).
 * Encoder and decoder work in fp32; tokens travel and are multiplied in the type of the activations. */
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/list.h"
#include "sim/schemes/torch/experts_torch.h"

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

static double factor_of(const spw_scheme *scheme) {
    return spw_scheme_option_value(scheme, "capacity_factor");
}

/* --- The layer: rows that the capacity fixes, or that follow the fullest expert --- */

static void encode(spw_layer_builder *b, spw_rows rows) {
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_born(b, "cast of the input",
                   (spw_tensor){"input_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_born(b, "encode", (spw_tensor){"dispatched_fp32", rows, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    if (forward) spw_layer_dies(b, "encode", "input_fp32");
    spw_layer_born(b, "cast of the dispatched", (spw_tensor){"dispatched", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "cast of the dispatched", "dispatched_fp32");
    spw_layer_born(b, "all-to-all", (spw_tensor){"received", rows, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "layout of x", (spw_tensor){"x", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "layout of x", "received");
    spw_layer_dies(b, "layout of x", "dispatched");
}

/* One [T, H] a choice, added to the sum so far. */
static void sum_choices(spw_layer_builder *b, const char *step, bool several) {
    const spw_tensor sum = {"token_sum", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4},
                     choice = {"token_choice", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4},
                     new_sum = {"token_new_sum", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4};
    spw_layer_born(b, step, sum);
    if (several) {
        spw_layer_born(b, step, choice);
        spw_layer_born(b, step, new_sum);
        spw_layer_dies(b, step, choice.name);
    }
    spw_layer_dies(b, step, sum.name);
    if (several) spw_layer_dies(b, step, new_sum.name);
}

/* The permuted view of y is made contiguous for the exchange. */
static void decode(spw_layer_builder *b, spw_rows rows, bool several) {
    spw_layer_born(b, "layout of y", (spw_tensor){"y_sent", rows, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "all-to-all back", (spw_tensor){"returned", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "all-to-all back", "y_sent");
    spw_layer_dies(b, "all-to-all back", "y");
    spw_layer_born(b, "cast of the returned",
                   (spw_tensor){"returned_fp32", rows, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    sum_choices(b, "decode", several);
    if (spw_layer_phase(b) == SPW_PHASE_FORWARD) spw_layer_dies(b, "return", "returned_fp32");
    spw_layer_dies(b, "return", "returned");
}

static void decode_gradient(spw_layer_builder *b, spw_rows rows) {
    spw_layer_born(b, "decode gradient",
                   (spw_tensor){"d_output_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_born(b, "decode gradient",
                   (spw_tensor){"d_returned_fp32", rows, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_dies(b, "decode gradient", "d_output_fp32");
    spw_layer_dies(b, "decode gradient", "returned_fp32");
    spw_layer_born(b, "cast gradient of the returned", (spw_tensor){"d_returned", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "cast gradient of the returned", "d_returned_fp32");
    spw_layer_born(b, "all-to-all back gradient", (spw_tensor){"dy_received", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "all-to-all back gradient", "d_returned");
    spw_layer_born(b, "layout of dy", (spw_tensor){"dy", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "layout of dy", "dy_received");
}

static void encode_gradient(spw_layer_builder *b, spw_rows rows, bool several) {
    spw_layer_born(b, "layout of dx", (spw_tensor){"dx_sent", rows, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "all-to-all gradient", (spw_tensor){"d_dispatched", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "all-to-all gradient", "dx_sent");
    spw_layer_dies(b, "all-to-all gradient", "dx_w1");
    spw_layer_born(b, "cast gradient of the dispatched",
                   (spw_tensor){"d_dispatched_fp32", rows, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_dies(b, "cast gradient of the dispatched", "d_dispatched");
    sum_choices(b, "encode gradient", several);
    spw_layer_dies(b, "encode gradient", "d_dispatched_fp32");
    spw_layer_dies(b, "encode gradient", "input_fp32");
}

static void tutel_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const spw_rows rows = factor_of(scheme) > 0.0 ? SPW_ROWS_BUFFER : SPW_ROWS_HELD;
    const bool several = s->top_k > 1;
    encode(b, rows);
    spw_experts_autograd_gates(b, rows);
    spw_layer_dies(b, "product", "silu");
    spw_layer_born(b, "gemm wo", (spw_tensor){"y", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "gemm wo", "act");
    spw_layer_dies(b, "gemm wo", "w0_out");
    spw_layer_dies(b, "gemm wo", "w1_out");
    spw_layer_dies(b, "gemm wo", "x");
    decode(b, rows, several);

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    encode(b, rows);
    spw_experts_autograd_gates(b, rows);
    spw_layer_born(b, "gemm wo", (spw_tensor){"y", rows, SPW_WIDTH_HIDDEN});
    decode(b, rows, several);

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    decode_gradient(b, rows);
    spw_experts_autograd_gradient(b, s, rows, SPW_AUTOGRAD_SILU_LAST);
    encode_gradient(b, rows, several);
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

/* All tokens of a rank may choose the same expert. */
static double worst_factor(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    const size_t places = (s->tokens + s->top_k - 1) / s->top_k;
    const size_t even = (s->tokens + s->experts - 1) / s->experts;
    return (double)places / (double)even;
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
static void tutel_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    size_t fullest = 0;
    for (size_t i = 0; i < s->ranks * s->experts; i++) {
        const uint32_t n = spw_routed_of(routed, i / s->experts)[i % s->experts];
        fullest = n > fullest ? n : fullest;
    }
    const size_t capacity = capacity_of(routed->scheme, s, fullest);
    spw_flow_one_line(out, s->ranks, s->experts_per_rank * capacity);
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
    .trainer = SPW_TRAINER_PYTORCH,
    .about.summary = "Tutel: a number of places an expert and rank, first choices first, equal exchanges",
    .about.section = "event list of the scheme (6.2)",
    .about.source =
        "microsoft/tutel tutel/impls/{fast_dispatch,moe_layer,communicate}.py, tutel/experts/llama_ffn.py",
    .options = options,
    .routing.factor = "capacity_factor",
    .routing.worst_factor = worst_factor,
    .memory.layer = tutel_layer,
    .values.reorders_sums = true,
    .routing.by_choice_rank = true,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "E C",
    .traffic.exchanges = spw_row_exchanges,
    .routing.drop_rule = drop_rule,
    .routing.keep = keep,
    .routing.expert_capacity = expert_capacity,
    .routing.flow = tutel_flow,
    .routing.lines = spw_one_line,
    .routing.balance = balance,
    .check = check,
};
