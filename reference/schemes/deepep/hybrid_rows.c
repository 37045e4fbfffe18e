#include "reference/schemes/deepep/hybrid_rows.h"

#include "base/memory.h"

spw_status spw_hybrid_create(spw_execution *run, size_t pad, bool limited, size_t limit, spw_hybrid_rows *g) {
    const size_t ranks = run->shape.ranks, all = ranks * run->tokens,
                 node_ranks = run->shape.node_ranks > 0 ? run->shape.node_ranks : ranks;
    spw_status status = SPW_OK;
    g->pad = pad;
    g->limited = limited;
    g->node_experts = run->local * node_ranks;
    g->limit = (limit + pad - 1) / pad * pad;
    SPW_TRY(SPW_SCRATCH(run, ranks * run->local, &g->begin));
    SPW_TRY(SPW_SCRATCH(run, ranks * run->local, &g->count));
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
static void scan(spw_execution *run, spw_hybrid_rows *g, size_t d) {
    const size_t all = run->shape.ranks * run->tokens, experts = run->shape.experts;
    const float *map = g->routing.at[d];
    spw_hybrid_rank *p = &g->rank[d];
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
        g->begin[at] = first;
        g->count[at] = 0;
        for (size_t j = 0; j < p->received; j++) {
            const bool chosen = map[(size_t)p->token[j] * experts + at] > 0.0f,
                       fits = chosen && (!g->limited || next < g->limit);
            p->place[j * run->local + x] = fits ? (int32_t)next : -1;
            if (fits) p->origin[next] = (int32_t)j, g->count[at]++;
            if (chosen && !fits) run->out.dropped[(size_t)p->token[j] / run->tokens]++;
            next += chosen;
        }
        for (first = next; first % g->pad != 0; first++) {
            if (!g->limited || first < g->limit) p->origin[first] = -1;
        }
        if (g->begin[at] > g->limit && g->limited) g->begin[at] = g->limit;
    }
    run->out.rows[d] = g->limited && first > g->limit ? g->limit : first;
    g->held[d] = g->limited ? g->limit : first;
    for (size_t i = run->out.rows[d]; i < g->held[d]; i++) p->origin[i] = -1;
}

spw_status spw_hybrid_preprocess(spw_execution *run, spw_hybrid_rows *g) {
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
static void node_weights(const spw_execution *run, const spw_hybrid_rows *g, size_t r, size_t t, size_t d,
                         float *out) {
    const size_t first = d * run->local / g->node_experts * g->node_experts;
    for (size_t i = 0; i < g->node_experts; i++) out[i] = 0.0f;
    for (size_t i = t * run->shape.top_k; i < (t + 1) * run->shape.top_k; i++) {
        const int32_t x = spw_rank_expert(run, r)[i];
        if (x >= 0 && (size_t)x >= first && (size_t)x < first + g->node_experts)
            out[(size_t)x - first] = spw_rank_weight(run, r)[i];
    }
}

spw_status spw_hybrid_move(spw_execution *run, spw_hybrid_rows *g, spw_spread *weights,
                           const float *(*rows)(const spw_execution *run, size_t rank), spw_spread *to) {
    const size_t hidden = run->shape.hidden;
    float *chances = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(g->node_experts, &chances));
    for (size_t d = 0; d < run->shape.ranks; d++) {
        spw_hybrid_rank *p = &g->rank[d];
        for (size_t j = 0; j < p->received; j++) {
            const size_t s = (size_t)p->token[j] / run->tokens, t = (size_t)p->token[j] % run->tokens;
            SPW_TRY(spw_send_rows(run, s, d, rows(run, s) + t * hidden, 1, hidden));
            SPW_TRY(spw_receive_rows(run, d, s, p->buffer + j * hidden, 1, hidden));
            if (weights == NULL) continue;
            node_weights(run, g, s, t, d, chances);
            SPW_TRY(spw_fabric_send(run->fabric, s, d, chances, g->node_experts, sizeof(float), 4));
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, p->chances + j * g->node_experts, g->node_experts,
                                       sizeof(float)));
        }
        spw_gather_rows(p->buffer, p->origin, g->held[d], hidden, to->at[d]);
        for (size_t i = 0; weights != NULL && i < p->received * run->local; i++) {
            const size_t own = d * run->local % g->node_experts + i % run->local;
            if (p->place[i] >= 0)
                weights->at[d][p->place[i]] = p->chances[i / run->local * g->node_experts + own];
        }
    }
cleanup:
    spw_free(chances);
    return status;
}

/* Gradients of a received row's weights, back to the choices of its token. */
static spw_status return_weights(spw_execution *run, spw_hybrid_rows *g, const spw_spread *d_weight, size_t d,
                                 size_t j) {
    spw_hybrid_rank *p = &g->rank[d];
    const size_t s = (size_t)p->token[j] / run->tokens, t = (size_t)p->token[j] % run->tokens,
                 first = d * run->local / g->node_experts * g->node_experts;
    float *chances = p->chances + j * g->node_experts;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < g->node_experts; i++) chances[i] = 0.0f;
    for (size_t x = 0; x < run->local; x++) {
        const int32_t row = p->place[j * run->local + x];
        if (row >= 0) chances[d * run->local - first + x] = d_weight->at[d][row];
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

spw_status spw_hybrid_return(spw_execution *run, spw_hybrid_rows *g, const spw_spread *d_weight,
                             const spw_spread *rows, float *to) {
    const size_t hidden = run->shape.hidden, numbers = run->shape.ranks * run->tokens * hidden;
    double *sum = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(numbers, &sum));
    for (size_t d = 0; d < run->shape.ranks; d++) {
        spw_hybrid_rank *p = &g->rank[d];
        spw_sum_rows(p->received, run->local, hidden, p->place, NULL, rows->at[d], p->buffer);
        for (size_t j = 0; j < p->received; j++) {
            const size_t t = (size_t)p->token[j], s = t / run->tokens;
            SPW_TRY(spw_send_rows(run, d, s, p->buffer + j * hidden, 1, hidden));
            SPW_TRY(spw_receive_rows(run, s, d, p->buffer + j * hidden, 1, hidden));
            for (size_t h = 0; h < hidden; h++) sum[t * hidden + h] += (double)p->buffer[j * hidden + h];
            if (d_weight != NULL) SPW_TRY(return_weights(run, g, d_weight, d, j));
        }
    }
    for (size_t i = 0; i < numbers; i++) to[i] = (float)sum[i];
cleanup:
    spw_free(sum);
    return status;
}

void spw_hybrid_maps_die(spw_execution *run, spw_hybrid_rows *g) {
    spw_dies(run, &g->places), spw_dies(run, &g->local_routing), spw_dies(run, &g->expert_rows);
}
