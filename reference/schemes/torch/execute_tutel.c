/* Tutel (docs/schemes.md, section 6.2): a token takes a place of its expert or is dropped; places are exchanged whether
 * filled or not. Encoder and decoder hold fp32. */
#include "reference/capacity.h"
#include "reference/schemes/execute_list.h"
#include "reference/schemes/routed.h"
#include "reference/schemes/torch/autograd_glu.h"

#include <stdlib.h>

enum { FP32 = 4 };

typedef struct tutel {
    double factor;
    size_t alignment;
    bool prioritized;
    spw_routed routed;
    spw_autograd_glu glu;
    size_t tokens[SPW_EXECUTION_RANKS]; /* rows of a tensor of tokens */
    spw_spread input32, dispatched32, dispatched, received, y_sent, returned, returned32;
} tutel;

static spw_status born_tokens(spw_execution *run, tutel *g, spw_spread *out, const char *name) {
    return spw_born_at(run, out, name, g->tokens, run->shape.hidden, FP32);
}
static spw_status born_places(spw_execution *run, tutel *g, spw_spread *out, const char *name,
                              size_t element) {
    return spw_born_at(run, out, name, g->routed.held, run->shape.hidden, element);
}

static void copy(spw_execution *run, const tutel *g, const spw_spread *from, spw_spread *to) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < g->routed.held[r] * run->shape.hidden; i++) to->at[r][i] = from->at[r][i];
    }
}

/* The most choices that an expert has on any rank: what the all-reduce of capacities agrees on. */
static spw_status fullest_expert(spw_execution *run, size_t *out) {
    size_t *count = NULL;
    spw_status status = SPW_SCRATCH(run, run->shape.experts, &count);
    *out = 0;
    for (size_t r = 0; r < run->shape.ranks && status == SPW_OK; r++) {
        for (size_t x = 0; x < run->shape.experts; x++) count[x] = 0;
        for (size_t i = 0; i < run->assignments; i++) {
            const int32_t x = spw_rank_expert(run, r)[i];
            if (x >= 0 && ++count[x] > *out) *out = count[x];
        }
    }
    return status;
}

static spw_status capacity_of(spw_execution *run, const tutel *g, size_t *capacity) {
    const spw_execution_shape *s = &run->shape;
    const double factor = g->factor;
    size_t fullest = 0;
    const spw_status status = fullest_expert(run, &fullest);
    const size_t limit =
        spw_ref_capacity_tutel(run->tokens, s->top_k, s->experts, factor < 0.0 ? -factor : factor, 1);
    size_t places = factor > 0.0 || (factor < 0.0 && limit < fullest) ? limit : fullest;
    while (places % g->alignment != 0) places++;
    *capacity = places;
    return status;
}

/* A token and its best weight. */
typedef struct ranked_token {
    float best;
    size_t token;
} ranked_token;

static int by_best(const void *left, const void *right) {
    const ranked_token *a = left, *b = right;
    if (a->best != b->best) return a->best > b->best ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* place [assignments] of one rank: of the choices that the rule keeps, each takes its expert's next place; choice 0 of all
 * tokens comes first, then choice 1 ...; tokens stand by falling best weight when prioritized. */
static spw_status take_places(spw_execution *run, const tutel *g, size_t r, size_t capacity, int32_t *place) {
    const size_t top_k = run->shape.top_k;
    const int32_t *expert = spw_rank_expert(run, r);
    const bool prioritized = g->prioritized;
    float *best = NULL;
    uint8_t *keep = NULL;
    int32_t *next = NULL;
    ranked_token *order = NULL;
    size_t dropped = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, run->tokens, &best));
    SPW_TRY(SPW_SCRATCH(run, run->tokens, &order));
    SPW_TRY(SPW_SCRATCH(run, run->assignments, &keep));
    SPW_TRY(SPW_SCRATCH(run, run->shape.experts, &next));
    for (size_t i = 0; i < run->assignments; i++) {
        const float weight = spw_rank_weight(run, r)[i];
        if (expert[i] >= 0 && weight > best[i / top_k]) best[i / top_k] = weight;
    }
    for (size_t t = 0; t < run->tokens; t++) order[t] = (ranked_token){prioritized ? best[t] : 0.0f, t};
    if (run->tokens > 0) qsort(order, run->tokens, sizeof *order, by_best);
    const spw_choices choices = {run->tokens, top_k, run->shape.experts, expert};
    SPW_TRY(spw_ref_keep_by_choice_rank(choices, prioritized ? best : NULL, capacity, keep, &dropped));
    for (size_t k = 0; k < top_k; k++) {
        for (size_t t = 0; t < run->tokens; t++) {
            const size_t i = order[t].token * top_k + k;
            place[i] = keep[i] ? next[expert[i]]++ : -1;
        }
    }
cleanup:
    return status;
}

static spw_status create(spw_execution *run, tutel *g) {
    int32_t *place = NULL;
    size_t capacity = 0;
    spw_status status = SPW_OK;
    g->factor = spw_execution_number(&run->shape, "capacity_factor", run->shape.factor);
    g->alignment = (size_t)spw_execution_number(&run->shape, "alignment", 1.0);
    g->prioritized = spw_execution_is(&run->shape, "batch_prioritized", "true");
    SPW_TRY(SPW_SCRATCH(run, run->shape.ranks * run->assignments, &place));
    SPW_TRY(capacity_of(run, g, &capacity));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        g->tokens[r] = run->tokens;
        SPW_TRY(take_places(run, g, r, capacity, place + r * run->assignments));
    }
    SPW_TRY(spw_routed_by_place(run, place, capacity, &g->routed, &g->glu.experts));
cleanup:
    return status;
}

static spw_status encode(spw_execution *run, tutel *g, const char *exchange) {
    const size_t tokens = run->tokens * run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "cast of the input");
    SPW_TRY(born_tokens(run, g, &g->input32, "input_fp32"));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < tokens; i++) g->input32.at[r][i] = spw_rank_x(run, r)[i];
    }
    spw_step(run, "encode");
    SPW_TRY(born_places(run, g, &g->dispatched32, "dispatched_fp32", FP32));
    spw_routed_gather(run, &g->routed, run->in.x, false, &g->dispatched32);
    if (run->pass == SPW_PASS_FORWARD) spw_dies(run, &g->input32);
    spw_step(run, "cast of the dispatched");
    SPW_TRY(born_places(run, g, &g->dispatched, "dispatched", 0));
    copy(run, g, &g->dispatched32, &g->dispatched);
    spw_dies(run, &g->dispatched32);
    spw_step(run, "all-to-all");
    SPW_TRY(born_places(run, g, &g->received, "received", 0));
    SPW_TRY(spw_routed_send(run, &g->routed, exchange, &g->dispatched, &g->received));
    spw_step(run, "layout of x");
    SPW_TRY(born_places(run, g, &g->glu.experts.x, "x", 0));
    spw_routed_to_experts(run, &g->routed, &g->received, &g->glu.experts.x);
    spw_dies(run, &g->received), spw_dies(run, &g->dispatched);
cleanup:
    return status;
}

/* The sum over choices as Tutel holds it: the sum so far, one choice, and their sum. */
static spw_status hold_sums(spw_execution *run, tutel *g, const char *step) {
    spw_spread sum, choice, new_sum;
    spw_status status = SPW_OK;
    spw_step(run, step);
    SPW_TRY(born_tokens(run, g, &sum, "token_sum"));
    if (run->shape.top_k > 1) {
        SPW_TRY(born_tokens(run, g, &choice, "token_choice"));
        SPW_TRY(born_tokens(run, g, &new_sum, "token_new_sum"));
        spw_dies(run, &choice), spw_dies(run, &sum), spw_dies(run, &new_sum);
    } else {
        spw_dies(run, &sum);
    }
cleanup:
    return status;
}

static spw_status decode(spw_execution *run, tutel *g, const char *exchange) {
    spw_status status = SPW_OK;
    spw_step(run, "layout of y");
    SPW_TRY(born_places(run, g, &g->y_sent, "y_sent", 0));
    spw_routed_from_experts(run, &g->routed, &g->glu.experts.y, &g->y_sent);
    spw_step(run, "all-to-all back");
    SPW_TRY(born_places(run, g, &g->returned, "returned", 0));
    SPW_TRY(spw_routed_return(run, &g->routed, exchange, &g->y_sent, &g->returned));
    spw_dies(run, &g->y_sent), spw_dies(run, &g->glu.experts.y);
    spw_step(run, "cast of the returned");
    SPW_TRY(born_places(run, g, &g->returned32, "returned_fp32", FP32));
    copy(run, g, &g->returned, &g->returned32);
    SPW_TRY(hold_sums(run, g, "decode"));
    spw_routed_sum(run, &g->routed, &g->returned32, true, run->out.y);
    spw_step(run, "return");
    if (run->pass == SPW_PASS_FORWARD) spw_dies(run, &g->returned32);
    spw_dies(run, &g->returned);
cleanup:
    return status;
}

static spw_status forward(spw_execution *run, tutel *g, const char *dispatch, const char *combine) {
    const bool save = run->pass != SPW_PASS_FORWARD;
    spw_experts *e = &g->glu.experts;
    spw_status status = SPW_OK;
    SPW_TRY(encode(run, g, dispatch));
    SPW_TRY(spw_glu_gates(run, &g->glu));
    if (!save) spw_dies(run, &g->glu.silu);
    SPW_TRY(spw_glu_output(run, &g->glu));
    if (!save) spw_dies(run, &e->act), spw_dies(run, &e->w0), spw_dies(run, &e->w1), spw_dies(run, &e->x);
    SPW_TRY(decode(run, g, combine));
cleanup:
    return status;
}

static spw_status decode_gradient(spw_execution *run, tutel *g) {
    spw_spread dy32, d_returned32, d_returned, dy_received;
    spw_status status = SPW_OK;
    spw_step(run, "decode gradient");
    SPW_TRY(born_tokens(run, g, &dy32, "d_output_fp32"));
    SPW_TRY(born_places(run, g, &d_returned32, "d_returned_fp32", FP32));
    spw_routed_gather(run, &g->routed, run->in.dy, true, &d_returned32);
    spw_routed_weight_gradient(run, &g->routed, &g->returned32);
    spw_dies(run, &dy32), spw_dies(run, &g->returned32);
    spw_step(run, "cast gradient of the returned");
    SPW_TRY(born_places(run, g, &d_returned, "d_returned", 0));
    copy(run, g, &d_returned32, &d_returned);
    spw_dies(run, &d_returned32);
    spw_step(run, "all-to-all back gradient");
    SPW_TRY(born_places(run, g, &dy_received, "dy_received", 0));
    SPW_TRY(spw_routed_send(run, &g->routed, "combine gradient", &d_returned, &dy_received));
    spw_dies(run, &d_returned);
    spw_step(run, "layout of dy");
    SPW_TRY(born_places(run, g, &g->glu.experts.dy, "dy", 0));
    spw_routed_to_experts(run, &g->routed, &dy_received, &g->glu.experts.dy);
    spw_dies(run, &dy_received);
cleanup:
    return status;
}

static spw_status encode_gradient(spw_execution *run, tutel *g) {
    spw_spread dx_sent, d_dispatched, d_dispatched32;
    spw_status status = SPW_OK;
    spw_step(run, "layout of dx");
    SPW_TRY(born_places(run, g, &dx_sent, "dx_sent", 0));
    spw_routed_from_experts(run, &g->routed, &g->glu.experts.dx1, &dx_sent);
    spw_step(run, "all-to-all gradient");
    SPW_TRY(born_places(run, g, &d_dispatched, "d_dispatched", 0));
    SPW_TRY(spw_routed_return(run, &g->routed, "dispatch gradient", &dx_sent, &d_dispatched));
    spw_dies(run, &dx_sent), spw_dies(run, &g->glu.experts.dx1);
    spw_step(run, "cast gradient of the dispatched");
    SPW_TRY(born_places(run, g, &d_dispatched32, "d_dispatched_fp32", FP32));
    copy(run, g, &d_dispatched, &d_dispatched32);
    spw_dies(run, &d_dispatched);
    SPW_TRY(hold_sums(run, g, "encode gradient"));
    spw_routed_sum(run, &g->routed, &d_dispatched32, false, run->out.dx);
    spw_dies(run, &d_dispatched32), spw_dies(run, &g->input32);
cleanup:
    return status;
}

spw_status spw_execute_tutel(spw_execution *run) {
    tutel *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(forward(run, g, "dispatch", "combine"));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(forward(run, g, "dispatch again", "combine again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(decode_gradient(run, g));
    SPW_TRY(spw_glu_backward(run, &g->glu));
    SPW_TRY(encode_gradient(run, g));
cleanup:
    return status;
}
