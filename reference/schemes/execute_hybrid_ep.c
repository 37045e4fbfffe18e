/* HybridEP under Megatron-Core's flex dispatcher, executed (docs/schemes.md, section 4.8): every rank knows the whole routing
 * map, so a row travels without a header, but with the weights of all experts of the destination's node. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/fused_experts.h"

#include "base/memory.h"

#include <math.h>

typedef struct hybrid_rank {
    size_t received; /* rows of the registered buffer, by source and token */
    int32_t *token;  /* [ranks * tokens] each of them, counted over all ranks */
    int32_t *place;  /* [ranks * tokens][local] dense_to_expert_map: its row of x for each expert, or -1 */
    int32_t *origin; /* [held] row of the registered buffer of each row of x, -1: padding */
    float *buffer;   /* [ranks * tokens][hidden] registered, hence no tensor */
    float *chances;  /* [ranks * tokens][node experts] the same for weights or their gradients */
} hybrid_rank;

typedef struct hybrid_ep {
    spw_fused_experts experts;
    double budget;
    size_t pad, node_experts, limit; /* limit: rows of a rank, with a budget */
    size_t held[SPW_EXECUTION_RANKS], gathered[SPW_EXECUTION_RANKS], tokens[SPW_EXECUTION_RANKS];
    hybrid_rank rank[SPW_EXECUTION_RANKS];
    spw_spread routing, places, local_routing, expert_rows, row_weight;
} hybrid_ep;

static spw_status create(spw_execution *run, hybrid_ep *g) {
    const size_t ranks = run->shape.ranks, all = ranks * run->tokens,
                 node_ranks = run->shape.node_ranks > 0 ? run->shape.node_ranks : ranks;
    spw_status status = SPW_OK;
    g->budget = spw_execution_number(&run->shape, "budget", 0.0);
    g->pad = (size_t)spw_execution_number(&run->shape, "pad", 1.0);
    g->node_experts = run->local * node_ranks;
    g->limit = ((size_t)((double)run->assignments * g->budget) + g->pad - 1) / g->pad * g->pad;
    SPW_TRY(spw_fused_create(run, g->held, &g->experts));
    g->experts.weight = &g->row_weight;
    for (size_t r = 0; r < ranks; r++) {
        g->gathered[r] = all;
        g->tokens[r] = run->tokens;
        SPW_TRY(SPW_SCRATCH(run, all, &g->rank[r].token));
        SPW_TRY(SPW_SCRATCH(run, all * run->local, &g->rank[r].place));
        SPW_TRY(SPW_SCRATCH(run, all * run->local + run->local * g->pad + g->limit, &g->rank[r].origin));
        SPW_TRY(SPW_SCRATCH(run, all * run->shape.hidden, &g->rank[r].buffer));
        SPW_TRY(SPW_SCRATCH(run, all * g->node_experts, &g->rank[r].chances));
    }
cleanup:
    return status;
}

/* Where a rank's rows go, from the routing map alone: expert by expert, each padded, of an expert tokens by source and
 * position; beyond the limit nothing has a place. */
static void scan(spw_execution *run, hybrid_ep *g, size_t d) {
    const size_t all = run->shape.ranks * run->tokens, experts = run->shape.experts;
    const float *map = g->routing.at[d];
    hybrid_rank *p = &g->rank[d];
    size_t first = 0;
    p->received = 0;
    for (size_t t = 0; t < all; t++) {
        bool wanted = false;
        for (size_t x = 0; x < run->local; x++) wanted |= map[t * experts + d * run->local + x] > 0.0f;
        if (wanted) p->token[p->received++] = (int32_t)t;
    }
    for (size_t x = 0; x < run->local; x++) {
        const size_t at = d * run->local + x;
        size_t next = first;
        g->experts.begin[at] = first;
        g->experts.count[at] = 0;
        for (size_t j = 0; j < p->received; j++) {
            const bool chosen = map[(size_t)p->token[j] * experts + at] > 0.0f,
                       fits = chosen && (g->budget <= 0.0 || next < g->limit);
            p->place[j * run->local + x] = fits ? (int32_t)next : -1;
            if (fits) p->origin[next] = (int32_t)j, g->experts.count[at]++;
            if (chosen && !fits) run->out.dropped[(size_t)p->token[j] / run->tokens]++;
            next += chosen;
        }
        for (first = next; first % g->pad != 0; first++) {
            if (g->budget <= 0.0 || first < g->limit) p->origin[first] = -1;
        }
        if (g->experts.begin[at] > g->limit && g->budget > 0.0) g->experts.begin[at] = g->limit;
    }
    run->out.rows[d] = g->budget > 0.0 && first > g->limit ? g->limit : first;
    g->held[d] = g->budget > 0.0 ? g->limit : first;
    for (size_t i = run->out.rows[d]; i < g->held[d]; i++) p->origin[i] = -1;
}

static spw_status preprocess(spw_execution *run, hybrid_ep *g) {
    const size_t ranks = run->shape.ranks, all = ranks * run->tokens, experts = run->shape.experts;
    spw_status status = SPW_OK;
    spw_step(run, "preprocess");
    SPW_TRY(spw_born_at(run, &g->routing, "global_routing_map", g->gathered, experts, 1));
    SPW_TRY(spw_born_at(run, &g->places, "sparse_to_dense_map", g->tokens, ranks, 4));
    SPW_TRY(spw_born_at(run, &g->local_routing, "local_expert_routing_map", g->gathered, run->local, 1));
    SPW_TRY(spw_born_at(run, &g->expert_rows, "dense_to_expert_map", g->gathered, run->local, 4));
    for (size_t r = 0; r < ranks; r++) run->out.dropped[r] = 0;
    for (size_t r = 0; r < ranks; r++) { /* the all-gather of the map */
        for (size_t i = 0; i < all * run->shape.top_k; i++) {
            const int32_t x = run->in.expert[i];
            if (x >= 0) g->routing.at[r][i / run->shape.top_k * experts + (size_t)x] = 1.0f;
        }
        scan(run, g, r);
    }
    spw_dies(run, &g->routing);
cleanup:
    return status;
}

/* Weights of token t of rank r for the experts of the node that d is on. */
static void node_weights(const spw_execution *run, const hybrid_ep *g, size_t r, size_t t, size_t d,
                         float *out) {
    const size_t first = d * run->local / g->node_experts * g->node_experts;
    for (size_t i = 0; i < g->node_experts; i++) out[i] = 0.0f;
    for (size_t i = t * run->shape.top_k; i < (t + 1) * run->shape.top_k; i++) {
        const int32_t x = spw_rank_expert(run, r)[i];
        if (x >= 0 && (size_t)x >= first && (size_t)x < first + g->node_experts)
            out[(size_t)x - first] = spw_rank_weight(run, r)[i];
    }
}

/* Rows of every source into the registered buffers, then into `to`, sorted by expert; with weights, into row_weight too. */
static spw_status move_rows(spw_execution *run, hybrid_ep *g, bool weights,
                            const float *(*rows)(const spw_execution *run, size_t rank), spw_spread *to) {
    const size_t hidden = run->shape.hidden;
    float *chances = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(g->node_experts, &chances));
    for (size_t d = 0; d < run->shape.ranks; d++) {
        hybrid_rank *p = &g->rank[d];
        for (size_t j = 0; j < p->received; j++) {
            const size_t s = (size_t)p->token[j] / run->tokens, t = (size_t)p->token[j] % run->tokens;
            SPW_TRY(spw_send_rows(run, s, d, rows(run, s) + t * hidden, 1, hidden));
            SPW_TRY(spw_receive_rows(run, d, s, p->buffer + j * hidden, 1, hidden));
            if (!weights) continue;
            node_weights(run, g, s, t, d, chances);
            SPW_TRY(spw_fabric_send(run->fabric, s, d, chances, g->node_experts, sizeof(float), 4));
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, p->chances + j * g->node_experts, g->node_experts,
                                       sizeof(float)));
        }
        spw_gather_rows(p->buffer, p->origin, g->held[d], hidden, to->at[d]);
        for (size_t i = 0; weights && i < p->received * run->local; i++) {
            const size_t own = d * run->local % g->node_experts + i % run->local;
            if (p->place[i] >= 0)
                g->row_weight.at[d][p->place[i]] = p->chances[i / run->local * g->node_experts + own];
        }
    }
cleanup:
    spw_free(chances);
    return status;
}

static spw_status dispatch(spw_execution *run, void *state, const char *exchange) {
    hybrid_ep *g = state;
    spw_status status = SPW_OK;
    SPW_TRY(preprocess(run, g));
    spw_step(run, "dispatch");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_fused_born(run, &g->experts, &g->experts.x, "x", run->shape.hidden, 0));
    SPW_TRY(spw_fused_born(run, &g->experts, &g->row_weight, "row_weight", 1, 4));
    SPW_TRY(move_rows(run, g, true, spw_rank_x, &g->experts.x));
cleanup:
    return status;
}

/* Gradients of a received row's weights, back to the choices of its token. */
static spw_status return_weights(spw_execution *run, hybrid_ep *g, size_t d, size_t j) {
    hybrid_rank *p = &g->rank[d];
    const size_t s = (size_t)p->token[j] / run->tokens, t = (size_t)p->token[j] % run->tokens,
                 first = d * run->local / g->node_experts * g->node_experts;
    float *chances = p->chances + j * g->node_experts;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < g->node_experts; i++) chances[i] = 0.0f;
    for (size_t x = 0; x < run->local; x++) {
        const int32_t row = p->place[j * run->local + x];
        if (row >= 0) chances[d * run->local - first + x] = g->experts.d_weight.at[d][row];
    }
    SPW_TRY(spw_fabric_send(run->fabric, d, s, chances, g->node_experts, sizeof(float), 4));
    SPW_TRY(spw_fabric_receive(run->fabric, s, d, chances, g->node_experts, sizeof(float)));
    for (size_t i = t * run->shape.top_k; i < (t + 1) * run->shape.top_k; i++) {
        const int32_t x = spw_rank_expert(run, s)[i];
        if (x >= 0 && (size_t)x >= first && (size_t)x < first + g->node_experts)
            run->out.d_weight[s * run->assignments + i] += chances[(size_t)x - first];
    }
cleanup:
    return status;
}

/* Rows of a token's experts on a rank are summed into its row of the registered buffer, which goes back; at the source rows of
 * several ranks are added in order of rank. to [ranks][tokens][hidden]. */
static spw_status move_back(spw_execution *run, hybrid_ep *g, bool weights, const spw_spread *rows,
                            float *to) {
    const size_t hidden = run->shape.hidden, numbers = run->shape.ranks * run->tokens * hidden;
    double *sum = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(numbers, &sum));
    for (size_t d = 0; d < run->shape.ranks; d++) {
        hybrid_rank *p = &g->rank[d];
        spw_sum_rows(p->received, run->local, hidden, p->place, NULL, rows->at[d], p->buffer);
        for (size_t j = 0; j < p->received; j++) {
            const size_t t = (size_t)p->token[j], s = t / run->tokens;
            SPW_TRY(spw_send_rows(run, d, s, p->buffer + j * hidden, 1, hidden));
            SPW_TRY(spw_receive_rows(run, s, d, p->buffer + j * hidden, 1, hidden));
            for (size_t h = 0; h < hidden; h++) sum[t * hidden + h] += (double)p->buffer[j * hidden + h];
            if (weights) SPW_TRY(return_weights(run, g, d, j));
        }
    }
    for (size_t i = 0; i < numbers; i++) to[i] = (float)sum[i];
cleanup:
    spw_free(sum);
    return status;
}

static void maps_die(spw_execution *run, hybrid_ep *g) {
    spw_dies(run, &g->places), spw_dies(run, &g->local_routing), spw_dies(run, &g->expert_rows);
}

static spw_status combine(spw_execution *run, void *state, const char *exchange) {
    hybrid_ep *g = state;
    spw_status status = SPW_OK;
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(move_back(run, g, false, &g->experts.y, run->out.y));
    spw_dies(run, &g->experts.y);
    if (run->pass == SPW_PASS_FORWARD) maps_die(run, g);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, void *state) {
    hybrid_ep *g = state;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_fused_born(run, &g->experts, &g->experts.dy, "dy", run->shape.hidden, 0));
    SPW_TRY(move_rows(run, g, false, spw_rank_dy, &g->experts.dy));
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, void *state) {
    hybrid_ep *g = state;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(move_back(run, g, true, &g->experts.dx, run->out.dx));
    spw_dies(run, &g->experts.dx), spw_dies(run, &g->experts.d_weight);
    maps_die(run, g);
cleanup:
    return status;
}

static const spw_fused_layer layer = {dispatch, combine, combine_gradient, dispatch_gradient};

spw_status spw_execute_hybrid_ep(spw_execution *run) {
    hybrid_ep *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    status = spw_fused_run(run, &layer, g, &g->experts);
cleanup:
    return status;
}
