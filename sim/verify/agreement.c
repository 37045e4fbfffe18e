#include "sim/verify/agreement.h"

#include "base/memory.h"
#include "reference/combine.h"
#include "reference/schemes/execution.h"
#include "reference/token_rounding.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/selection.h"
#include "sim/verify/plain_layer.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything one case needs. */
typedef struct workspace {
    const spw_scheme *scheme;
    const spw_verify_case *c;
    spw_counts *counts;
    spw_layout *layout;
    uint16_t *ids, *weights;  /* as a trace holds them */
    spw_selection *selection; /* what the scheme does by prediction */
    const spw_flow *flow;
    int32_t *kept; /* [ranks][tokens][top_k] choices that it keeps */
    /* Of a scheme that adds tokens to experts, all [ranks][tokens][experts]; else NULL. */
    float *score, *taken;
    uint8_t *member;
    int32_t *joined;          /* the column's id where a token is a member, else -1 */
    size_t *member_count;     /* [experts] */
    spw_plain_layer plain;    /* the truth, on the kept choices */
    spw_execution_output out; /* what was executed */
    spw_arena *arena;
    spw_fabric *fabric;
    spw_verify_tally *tally;
} workspace;

__attribute__((format(printf, 3, 4))) static void compare(workspace *w, bool good, const char *format, ...) {
    spw_verify_tally *t = w->tally;
    t->comparisons++;
    t->agreed += good;
    if (good || t->first_miss[0] != '\0') return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(t->first_miss, sizeof t->first_miss, format, args);
    va_end(args);
}

static void compare_count(workspace *w, const char *what, size_t rank, uint64_t predicted,
                          uint64_t executed) {
    compare(w, predicted == executed, "%s: %s of rank %zu: predicted %" PRIu64 ", executed %" PRIu64,
            w->scheme->text, what, rank, predicted, executed);
}

/* --- Prediction ------------------------------------------------------------------------------------------------- */

/* The half that is exactly `value`, a multiple of 2^-10 in (0, 1]. */
static uint16_t half_of(float value) {
    int exponent = 0;
    const float mantissa = frexpf(value, &exponent); /* in [0.5, 1) */
    return (uint16_t)((exponent + 14) << 10 | ((int)(mantissa * 2048.0f) & 1023));
}

/* Executed ranks of one rank of the shape: the GPUs of a tensor group follow each other. */
static size_t copies(const spw_layer_shape *s) { return s->tensor > 0 ? s->tensor : 1; }

/* What the ranks that share an expert hold together. */
static spw_layer_shape whole_experts(const spw_layer_shape *shape) {
    spw_layer_shape s = *shape;
    s.ffn *= spw_layer_sharers(shape) * copies(shape);
    return s;
}

static size_t matrix_elements(const spw_layer_shape *s) {
    return s->experts * s->hidden * s->ffn * spw_layer_sharers(s) * copies(s);
}

static spw_status predict(workspace *w) {
    const spw_layer_shape *s = &w->c->shape;
    const size_t choices = s->ranks * s->assignments;
    const spw_placement placement = {s->ranks, s->ranks, s->node_ranks > 0 ? s->node_ranks : s->ranks,
                                     s->experts, s->expert_tensor};
    const uint8_t *kept = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_counts_create(placement, s->sequences, &w->counts));
    SPW_TRY(spw_layout_create(s->ranks, s->sequences, &w->layout));
    SPW_TRY(SPW_ALLOC(choices, &w->ids));
    SPW_TRY(SPW_ALLOC(choices, &w->weights));
    SPW_TRY(SPW_ALLOC(choices, &w->kept));
    for (size_t i = 0; i < choices; i++) {
        w->ids[i] = w->c->expert[i] < 0 ? UINT16_MAX : (uint16_t)w->c->expert[i];
        w->weights[i] = half_of(w->plain.weight[i]);
    }
    for (size_t i = 0; i < s->ranks * s->sequences; i++) {
        SPW_TRY(spw_layout_append(w->layout, i / s->sequences,
                                  (spw_segment){i * s->sequence_length, (uint32_t)s->sequence_length,
                                                (uint32_t)(i % s->sequences)}));
    }
    const spw_trace_record record = {.tokens = s->ranks * s->tokens,
                                     .top_k = s->top_k,
                                     .experts = s->experts,
                                     .id_bytes = 2,
                                     .missing = UINT16_MAX,
                                     .expert_id = w->ids,
                                     .weight = w->weights};
    SPW_TRY(spw_counts_fill(w->counts, &record, w->layout));
    SPW_TRY(spw_selection_create(placement, s, &w->selection));
    SPW_TRY(spw_selection_run(w->selection, w->scheme, w->counts, &record, w->layout));
    SPW_TRY(spw_selection_kept(w->selection, &kept));
    w->flow = spw_selection_flow(w->selection, 0);
    for (size_t i = 0; i < choices; i++) w->kept[i] = kept[i] ? w->c->expert[i] : -1;

cleanup:
    return status;
}

/* --- Token rounding ------------------------------------------------------------------------------------------------ */

/* Scores of all experts, multiples of 2^-10 in [0, 1); those of the choices do not matter. */
static uint64_t mix(uint64_t z) { /* splitmix64 (Steele, Lea, Flood 2014) */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Who goes where, by the reference's rounding; and that the prediction keeps the same choices. */
static spw_status round_tokens(workspace *w) {
    const spw_rounding way = spw_scheme_option_is(w->scheme, "rounding", "up")     ? SPW_ROUND_UP
                             : spw_scheme_option_is(w->scheme, "rounding", "down") ? SPW_ROUND_DOWN
                                                                                   : SPW_ROUND_NEAREST;
    const spw_layer_shape *s = &w->c->shape;
    const size_t cells = s->tokens * s->experts;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(cells, &w->score));
    SPW_TRY(SPW_ALLOC(cells, &w->taken));
    SPW_TRY(SPW_ALLOC(cells, &w->member));
    SPW_TRY(SPW_ALLOC(cells, &w->joined));
    SPW_TRY(SPW_ALLOC(s->experts, &w->member_count));
    for (size_t i = 0; i < cells; i++)
        w->score[i] = (float)(mix(w->c->seed * 0x9E3779B97F4A7C15u + i) % 1024) / 1024.0f;
    SPW_TRY(spw_ref_token_rounding(&(spw_rounded_choices){s->tokens, s->top_k, s->experts,
                                                          (size_t)spw_scheme_option_value(w->scheme, "tile"),
                                                          way, w->score, w->c->expert, w->plain.weight},
                                   w->taken, w->member, w->member_count));
    for (size_t i = 0; i < cells; i++) w->joined[i] = w->member[i] ? (int32_t)(i % s->experts) : -1;
    for (size_t i = 0; i < s->assignments; i++) {
        const int32_t x = w->c->expert[i];
        if (x < 0) continue;
        compare(w, (w->kept[i] >= 0) == (w->member[i / s->top_k * s->experts + (size_t)x] != 0),
                "%s: token %zu is predicted to %s expert %d", w->scheme->text, i / s->top_k,
                w->kept[i] >= 0 ? "stay with" : "lose", (int)x);
    }

cleanup:
    return status;
}

static bool adds_tokens(const workspace *w) {
    return w->scheme->type->routing.adds_tokens != NULL && w->scheme->type->routing.adds_tokens(w->scheme);
}

/* The truth: the plain layer on what the scheme makes of the choices. */
static spw_status run_plain(workspace *w) {
    const spw_layer_shape *s = &w->c->shape, whole = whole_experts(s);
    const spw_scheme_type *type = w->scheme->type;
    spw_plain_routing routing = {.slots = s->top_k,
                                 .expert = w->kept,
                                 .weight = w->plain.weight,
                                 .bounds = type->values.reorders_sums || type->values.weighted_activation ||
                                           copies(s) > 1,
                                 .weighted_activation = type->values.weighted_activation};
    if (adds_tokens(w)) {
        const spw_status status = round_tokens(w);
        if (status != SPW_OK) return status;
        routing.slots = s->experts;
        routing.expert = w->joined;
        routing.weight = w->taken;
    }
    return spw_plain_layer_run(&whole, &routing, &w->plain);
}

/* --- Execution -------------------------------------------------------------------------------------------------- */

static double option_factor(const spw_scheme *scheme) {
    const double factor = spw_scheme_factor(scheme);
    return isnan(factor) ? 0.0 : fmax(factor, 0.0); /* below 0: options say more */
}

static void name_options(const spw_scheme *scheme, spw_execution_option out[SPW_SCHEME_OPTIONS + 1]) {
    size_t i = 0;
    for (; scheme->type->options[i].name != NULL; i++) {
        const char *const *words = scheme->type->options[i].choices;
        out[i] = (spw_execution_option){scheme->type->options[i].name, scheme->option[i],
                                        words != NULL ? words[(size_t)scheme->option[i]] : NULL};
    }
    out[i] = (spw_execution_option){.name = NULL};
}

static spw_status execute(workspace *w) {
    const spw_layer_shape *s = &w->c->shape;
    const size_t tokens = s->ranks * s->tokens, matrix = matrix_elements(s), ranks = s->ranks * copies(s);
    spw_status status = SPW_OK;
    const spw_executor *executor = spw_executor_find(w->scheme->type->name);
    if (executor == NULL)
        return spw_fail(SPW_EARG, "scheme %s has no executed counterpart in reference/schemes",
                        w->scheme->type->name);
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &w->out.y));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &w->out.dx));
    SPW_TRY(SPW_ALLOC(tokens * s->top_k, &w->out.d_weight));
    if (w->score != NULL) SPW_TRY(SPW_ALLOC(tokens * s->experts, &w->out.d_score));
    SPW_TRY(SPW_ALLOC(matrix, &w->out.gradients.w0));
    SPW_TRY(SPW_ALLOC(matrix, &w->out.gradients.w1));
    SPW_TRY(SPW_ALLOC(matrix, &w->out.gradients.wo));
    SPW_TRY(SPW_ALLOC(ranks, &w->out.rows));
    SPW_TRY(SPW_ALLOC(ranks, &w->out.dropped));
    SPW_TRY(spw_arena_create(ranks, &w->arena));
    SPW_TRY(spw_fabric_create(ranks, &w->fabric));
    spw_execution_option option[SPW_SCHEME_OPTIONS + 1];
    name_options(w->scheme, option);
    const spw_execution_shape shape = {.ranks = ranks,
                                       .expert_tensor = copies(s) > 1 ? copies(s) : s->expert_tensor,
                                       .tensor_group = copies(s) > 1,
                                       .experts = s->experts,
                                       .top_k = s->top_k,
                                       .hidden = s->hidden,
                                       .ffn = s->ffn,
                                       .sequences = s->sequences,
                                       .sequence_length = s->sequence_length,
                                       .element_bytes = s->element_bytes,
                                       .node_ranks = s->node_ranks,
                                       .activation = spw_plain_layer_activation(s),
                                       .recompute_activation =
                                           spw_remat_repeats(s->remat, SPW_MODULE_MOE_ACT),
                                       .factor = option_factor(w->scheme),
                                       .option = option};
    const spw_execution_input input = {.expert = w->c->expert,
                                       .weight = w->plain.weight,
                                       .score = w->score,
                                       .x = w->plain.x,
                                       .dy = w->plain.dy,
                                       .weights = w->plain.weights};
    SPW_TRY(spw_execute(executor, &shape, &input, &w->out, w->arena, w->fabric));

cleanup:
    return status;
}

/* --- Judgement -------------------------------------------------------------------------------------------------- */

/* Rows that `source` sends to `d`, or gets back. A gather sends what arrived to the ranks that share the experts. */
static uint64_t rows_sent(const workspace *w, bool gathers, size_t source, size_t d) {
    const size_t ranks = w->c->shape.ranks, t = spw_layer_sharers(&w->c->shape);
    uint64_t arrived = 0;
    if (!gathers) return w->flow->wire[source][d];
    for (size_t r = 0; r < ranks && source != d && source / t == d / t; r++)
        arrived += w->flow->wire[r][source];
    return arrived;
}

/* What executed rank `from` sent to `to`: within a tensor group's own place alone. */
static void judge_pair(workspace *w, const spw_exchange *exchange, size_t source, size_t d) {
    const size_t t = copies(&w->c->shape), from = exchange->back ? d : source,
                 to = exchange->back ? source : d;
    const bool same = source % t == d % t;
    const uint64_t predicted =
        same ? rows_sent(w, exchange->gathers, source / t, d / t) * exchange->row_bytes : 0;
    const uint64_t executed = spw_fabric_bytes(w->fabric, exchange->name, from, to);
    compare(w, predicted == executed,
            "%s: bytes of '%s' from rank %zu to %zu: predicted %" PRIu64 ", executed %" PRIu64,
            w->scheme->text, exchange->name, from, to, predicted, executed);
    if (from == to) return;
    w->tally->bytes[0] += predicted;
    w->tally->bytes[1] += executed;
}

static void judge_bytes(workspace *w) {
    const spw_layer_shape *s = &w->c->shape;
    const size_t ranks = s->ranks * copies(s);
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    const size_t exchanges = w->scheme->type->traffic.exchanges(w->scheme, s, exchange);
    for (size_t e = 0; e < exchanges; e++)
        for (size_t i = 0; i < ranks * ranks; i++) judge_pair(w, &exchange[e], i / ranks, i % ranks);
}

static spw_status judge_memory(workspace *w) {
    const spw_layer_shape *s = &w->c->shape;
    spw_layer layer;
    const spw_status status = spw_layer_build(w->scheme, s, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    w->tally->peak_bytes[0] = w->tally->peak_bytes[1] = 0;
    for (size_t r = 0; r < s->ranks * copies(s); r++) {
        const spw_rank_rows rows = spw_flow_rows(s, w->flow, r / copies(s));
        const spw_live_set set = spw_layer_live_set(&layer, &rows);
        const spw_arena_peak forward = spw_arena_forward_peak(w->arena, r);
        const spw_arena_peak backward = spw_arena_backward_peak(w->arena, r);
        compare_count(w, "forward peak bytes", r, set.forward_bytes, forward.bytes);
        compare_count(w, "backward peak bytes", r, set.backward_bytes, backward.bytes);
        compare_count(w, "saved bytes", r, set.saved_bytes, spw_arena_saved(w->arena, r));
        const char *step = spw_layer_step(&layer, set.backward_event);
        compare(w, strcmp(step, backward.step) == 0, "%s: rank %zu peaks at '%s', executed at '%s'",
                w->scheme->text, r, step, backward.step);
        if (set.backward_bytes > w->tally->peak_bytes[0]) w->tally->peak_bytes[0] = set.backward_bytes;
        if (backward.bytes > w->tally->peak_bytes[1]) w->tally->peak_bytes[1] = backward.bytes;
    }
    spw_layer_destroy(&layer);
    return SPW_OK;
}

/* Bit for bit, or within (terms + 2) 2^-24 of the sum of magnitudes when partial sums were rounded on the way. */
static void judge_values(workspace *w, const char *what, const float *got, const float *want,
                         const float *scale, size_t terms, size_t count) {
    double worst = 0.0;
    bool exact = true, good = true;
    for (size_t i = 0; i < count; i++) {
        if (got[i] == want[i]) continue;
        exact = false;
        const double limit = scale != NULL ? ((double)terms + 2.0) * 0x1p-24 * (double)scale[i] : 0.0;
        const double error = fabs((double)got[i] - (double)want[i]);
        const bool within = error <= limit && isfinite(got[i]); /* not "error > limit": NaN must fail */
        good = good && within;
        if (within && limit > 0.0 && error / limit > worst) worst = error / limit;
    }
    const spw_agreement agreement = exact ? SPW_AGREE_EXACT : good ? SPW_AGREE_BOUND : SPW_AGREE_NOT;
    compare(w, good, "%s: %s differs from the plain layer beyond the bound", w->scheme->text, what);
    if (agreement > w->tally->values) w->tally->values = agreement;
    if (worst > w->tally->worst_share) w->tally->worst_share = worst;
}

/* Every product of the plain layer in its own order, up to the sums over choices and ranks. */
static void judge_plain(workspace *w) {
    const spw_layer_shape *s = &w->c->shape;
    const size_t tokens = s->ranks * s->tokens, matrix = matrix_elements(s), terms = s->top_k + s->ranks;
    judge_values(w, "y", w->out.y, w->plain.y, w->plain.y_scale, terms, tokens * s->hidden);
    judge_values(w, "dx", w->out.dx, w->plain.dx, w->plain.dx_scale, terms, tokens * s->hidden);
    judge_values(w, "the router weights' gradient", w->out.d_weight, w->plain.d_weight, NULL, 0,
                 tokens * s->top_k);
    judge_values(w, "the gradient of w0", w->out.gradients.w0, w->plain.gradients.w0, NULL, 0, matrix);
    judge_values(w, "the gradient of w1", w->out.gradients.w1, w->plain.gradients.w1, NULL, 0, matrix);
    judge_values(w, "the gradient of wo", w->out.gradients.wo, w->plain.gradients.wo, NULL, 0, matrix);
}

/* Router weights multiplied elsewhere, or sums in another order: other roundings, of the same terms. On the longest way, to dx, there are seven in
 * the plain layer (weighted dy, d_act, the gradient of the gate, two products, their sum, the sum over choices), and one
 * more in the scheme, which rounds the weighted d_act; each sum of partial sums may round once a rank. */
static void judge_bounded(workspace *w) {
    const spw_layer_shape *s = &w->c->shape;
    const spw_plain_scales *scale = &w->plain.scales;
    const size_t tokens = s->ranks * s->tokens, matrix = matrix_elements(s),
                 terms = 7 + 8 + s->ranks + copies(s);
    judge_values(w, "y", w->out.y, w->plain.y, scale->y, terms, tokens * s->hidden);
    judge_values(w, "dx", w->out.dx, w->plain.dx, scale->dx, terms, tokens * s->hidden);
    const bool scores = w->score != NULL;
    judge_values(w, "the router weights' gradient", scores ? w->out.d_score : w->out.d_weight,
                 w->plain.d_weight, scale->d_weight, terms, tokens * (scores ? s->experts : s->top_k));
    judge_values(w, "the gradient of w0", w->out.gradients.w0, w->plain.gradients.w0, scale->w0, terms,
                 matrix);
    judge_values(w, "the gradient of w1", w->out.gradients.w1, w->plain.gradients.w1, scale->w1, terms,
                 matrix);
    judge_values(w, "the gradient of wo", w->out.gradients.wo, w->plain.gradients.wo, scale->wo, terms,
                 matrix);
}

static spw_status judge(workspace *w) {
    const spw_layer_shape *s = &w->c->shape;
    for (size_t r = 0; r < s->ranks * copies(s); r++) {
        const uint64_t rows = w->flow->rows[r / copies(s)], dropped = w->flow->dropped[r / copies(s)];
        compare_count(w, "rows", r, rows, w->out.rows[r]);
        compare_count(w, "dropped assignments", r, dropped, w->out.dropped[r]);
        w->tally->rows[0] += rows;
        w->tally->rows[1] += w->out.rows[r];
        w->tally->dropped[0] += dropped;
        w->tally->dropped[1] += w->out.dropped[r];
    }
    judge_bytes(w);
    const spw_status status = judge_memory(w);
    if (status != SPW_OK) return status;
    if (w->scheme->type->values.reorders_sums || w->scheme->type->values.weighted_activation ||
        copies(s) > 1) {
        judge_bounded(w);
    } else {
        judge_plain(w);
    }
    w->tally->cases++;
    return SPW_OK;
}

static void destroy(workspace *w) {
    spw_counts_destroy(w->counts);
    spw_selection_destroy(w->selection);
    spw_layout_destroy(w->layout);
    spw_plain_layer_destroy(&w->plain);
    spw_arena_destroy(w->arena);
    spw_fabric_destroy(w->fabric);
    void *const owned[] = {w->ids,
                           w->weights,
                           w->kept,
                           w->out.y,
                           w->out.dx,
                           w->out.d_weight,
                           w->out.d_score,
                           w->score,
                           w->taken,
                           w->member,
                           w->joined,
                           w->member_count,
                           w->out.gradients.w0,
                           w->out.gradients.w1,
                           w->out.gradients.wo,
                           w->out.rows,
                           w->out.dropped};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) spw_free(owned[i]);
}

spw_status spw_verify_run(const spw_scheme *scheme, const spw_verify_case *c, spw_verify_tally *tally) {
    spw_status status = SPW_OK;
    workspace w = {.scheme = scheme, .c = c, .tally = tally};
    const spw_layer_shape whole = whole_experts(&c->shape);
    SPW_TRY(spw_plain_layer_create(&whole, c->seed, &w.plain));
    SPW_TRY(predict(&w));
    SPW_TRY(run_plain(&w));
    SPW_TRY(execute(&w));
    SPW_TRY(judge(&w));

cleanup:
    destroy(&w);
    return status;
}
