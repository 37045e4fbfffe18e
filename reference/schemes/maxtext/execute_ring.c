/* MaxText ring of experts (docs/schemes.md, section 2.6): all ranks gather all tokens, each computes its own experts, the
 * weighted partial sums are reduce-scattered. With a buffer factor the rows are truncated, local experts served in order.
 * The two logits an expert that travel with a token let the receiver route again; a trace has no logits, so what
 * travels in their place is the slot (1 to top_k, 0: not chosen) and the weight of every expert. */
#include "reference/schemes/maxtext/execute_ring.h"

#include "reference/capacity.h"
#include "reference/schemes/cut_weights.h"
#include "reference/schemes/execute_list.h"
#include "reference/schemes/sorted_rows.h"
#include "reference/schemes/tensor_group.h"

#include "base/memory.h"

typedef struct ring_rank {
    int32_t *expert; /* [ranks * tokens][top_k] choices of all gathered tokens */
    float *weight;   /* the same */
    float *d_weight; /* the same; 0 for experts of other ranks */
    int32_t *token;  /* [buffer] gathered token of each repeated row, -1: none */
    int32_t *
        place; /* [ranks * tokens][top_k] repeated row of a choice of an own expert, -1: another's or dropped */
} ring_rank;

typedef struct ring {
    spw_experts experts;
    bool truncated;
    ring_rank rank[SPW_EXECUTION_RANKS];
    spw_sorted_rows sorted; /* out of the repeated rows */
    spw_spread gathered, repeated, partial, d_partial, dx_gathered;
} ring;

static spw_status create(spw_execution *run, ring *g) {
    const size_t ranks = run->shape.ranks, all = spw_group_ranks(run) * run->assignments;
    const double rows = (double)run->assignments * run->shape.factor;
    spw_status status = SPW_OK;
    g->truncated = run->shape.factor > 0.0 && rows < (double)all;
    SPW_TRY(spw_experts_create(run, g->truncated ? (size_t)rows : all, &g->experts));
    SPW_TRY(spw_sorted_create(run, &g->experts, &g->sorted));
    for (size_t r = 0; r < ranks; r++) {
        ring_rank *p = &g->rank[r];
        SPW_TRY(SPW_SCRATCH(run, all, &p->expert));
        SPW_TRY(SPW_SCRATCH(run, all, &p->weight));
        SPW_TRY(SPW_SCRATCH(run, all, &p->d_weight));
        SPW_TRY(SPW_SCRATCH(run, g->experts.rows, &p->token));
        SPW_TRY(SPW_SCRATCH(run, all, &p->place));
    }
cleanup:
    return status;
}

/* One [experts] array for the slots and one for the weights, a token. */
static spw_status send_choices(spw_execution *run, size_t r, size_t d, float *slot, float *weight) {
    const size_t experts = run->shape.experts, top_k = run->shape.top_k;
    spw_status status = SPW_OK;
    for (size_t t = 0; t < run->tokens; t++) {
        for (size_t x = 0; x < experts; x++) slot[x] = weight[x] = 0.0f;
        for (size_t k = 0; k < top_k; k++) {
            const int32_t x = spw_rank_expert(run, r)[t * top_k + k];
            if (x >= 0) slot[x] = (float)(k + 1), weight[x] = spw_rank_weight(run, r)[t * top_k + k];
        }
        SPW_TRY(spw_fabric_send(run->fabric, r, d, slot, experts, sizeof *slot, 4));
        SPW_TRY(spw_fabric_send(run->fabric, r, d, weight, experts, sizeof *weight, 4));
    }
cleanup:
    return status;
}

static spw_status receive_choices(spw_execution *run, ring *g, size_t d, size_t source, float *slot,
                                  float *weight) {
    const size_t experts = run->shape.experts, top_k = run->shape.top_k;
    spw_status status = SPW_OK;
    for (size_t t = 0; t < run->tokens; t++) {
        const size_t at = (source * run->tokens + t) * top_k;
        for (size_t k = 0; k < top_k; k++) g->rank[d].expert[at + k] = -1;
        SPW_TRY(
            spw_fabric_receive(run->fabric, d, spw_group_peer(run, d, source), slot, experts, sizeof *slot));
        SPW_TRY(spw_fabric_receive(run->fabric, d, spw_group_peer(run, d, source), weight, experts,
                                   sizeof *weight));
        for (size_t x = 0; x < experts; x++) {
            if (slot[x] == 0.0f) continue;
            g->rank[d].expert[at + (size_t)slot[x] - 1] = (int32_t)x;
            g->rank[d].weight[at + (size_t)slot[x] - 1] = weight[x];
        }
    }
cleanup:
    return status;
}

/* All tokens, or all their gradients, to all ranks of one's place in a group; into [ranks * tokens][width]. */
static spw_status all_gather(spw_execution *run, ring *g, const float *const *from, bool choices,
                             spw_spread *to) {
    const size_t size = run->tokens * to->width;
    float *slot = NULL, *weight = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(run->shape.experts, &slot));
    SPW_TRY(SPW_ALLOC(run->shape.experts, &weight));
    for (size_t d = 0; d < run->shape.ranks; d++) {
        for (size_t source = 0; source < spw_group_ranks(run); source++) {
            const size_t r = spw_group_peer(run, d, source);
            SPW_TRY(spw_send_rows(run, r, d, from[r], 1, size));
            if (choices) SPW_TRY(send_choices(run, r, d, slot, weight));
            SPW_TRY(spw_receive_rows(run, d, r, to->at[d] + source * size, 1, size));
            if (choices) SPW_TRY(receive_choices(run, g, d, source, slot, weight));
        }
    }
cleanup:
    spw_free(weight), spw_free(slot);
    return status;
}

/* Every rank has partial sums for all tokens; rank r gets the sum of those for its own, added in order of rank. */
static spw_status reduce_scatter(spw_execution *run, const spw_spread *partial, spw_spread *to) {
    const size_t ranks = run->shape.ranks, size = run->tokens * partial->width;
    double *sum = NULL;
    float *part = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(size, &sum));
    SPW_TRY(SPW_ALLOC(size, &part));
    for (size_t r = 0; r < ranks; r++) {
        const size_t own = r / spw_group_size(run);
        for (size_t i = 0; i < size; i++) sum[i] = 0.0;
        for (size_t place = 0; place < spw_group_ranks(run); place++) {
            const size_t d = spw_group_peer(run, r, place);
            SPW_TRY(spw_send_rows(run, d, r, partial->at[d] + own * size, 1, size));
            SPW_TRY(spw_receive_rows(run, r, d, part, 1, size));
            for (size_t i = 0; i < size; i++) sum[i] += (double)part[i];
        }
        for (size_t i = 0; i < size; i++) to->at[r][i] = (float)sum[i];
    }
cleanup:
    spw_free(part), spw_free(sum);
    return status;
}

/* Decides which rows rank d computes, and in what order. */
static spw_status route(spw_execution *run, ring *g, size_t d) {
    const size_t top_k = run->shape.top_k, groups = spw_group_ranks(run), all = groups * run->assignments,
                 place = d / spw_group_size(run);
    ring_rank *p = &g->rank[d];
    size_t *offset = g->experts.offset + d * (run->local + 1), dropped = 0, row = 0;
    uint8_t *keep = NULL;
    spw_status status = SPW_OK;
    const spw_choices choices = {groups * run->tokens, top_k, run->shape.experts, p->expert};
    SPW_TRY(SPW_ALLOC(all, &keep));
    SPW_TRY(spw_ref_keep_by_expert_id(choices, groups, g->experts.rows, keep, &dropped));
    for (size_t i = 0; i < g->experts.rows; i++) p->token[i] = -1;
    for (size_t i = 0; i < all; i++) {
        const bool own = p->expert[i] >= 0 && (size_t)p->expert[i] / run->local == place;
        p->place[i] = own && keep[i] ? (int32_t)(g->truncated ? row : i) : -1;
        if (own && !keep[i] && run->pass == SPW_PASS_FORWARD)
            run->out.dropped[spw_group_peer(run, d, i / run->assignments)]++;
        if (!g->truncated || p->place[i] >= 0) p->token[g->truncated ? row++ : i] = (int32_t)(i / top_k);
    }
    row = 0;
    for (size_t x = 0; x < run->local; x++) {
        offset[x] = row;
        for (size_t i = 0; i < all; i++) {
            if (p->place[i] >= 0 && (size_t)p->expert[i] == place * run->local + x)
                g->sorted.place[d][row++] = p->place[i];
        }
    }
    offset[run->local] = run->out.rows[d] = row;
cleanup:
    spw_free(keep);
    return status;
}

static spw_status dispatch(spw_execution *run, ring *g, const char *exchange) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    const float *x[SPW_EXECUTION_RANKS];
    spw_status status = SPW_OK;
    for (size_t r = 0; r < ranks; r++) x[r] = spw_rank_x(run, r);
    spw_step(run, "all-gather");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_born(run, &g->gathered, "gathered", spw_group_ranks(run) * run->tokens, hidden));
    SPW_TRY(all_gather(run, g, x, true, &g->gathered));
    for (size_t r = 0; r < ranks; r++) SPW_TRY(route(run, g, r));
    spw_step(run, "repeat");
    SPW_TRY(spw_born(run, &g->repeated, "repeated", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_gather_rows(g->gathered.at[r], g->rank[r].token, g->experts.rows, hidden, g->repeated.at[r]);
    }
    if (run->pass == SPW_PASS_FORWARD) spw_dies(run, &g->gathered);
    spw_step(run, "sort");
    SPW_TRY(spw_born(run, &g->experts.x, "x", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_gather_rows(g->repeated.at[r], g->sorted.place[r], run->out.rows[r], hidden, g->experts.x.at[r]);
    }
    spw_dies(run, &g->repeated);
cleanup:
    return status;
}

static spw_status combine(spw_execution *run, ring *g) {
    const size_t ranks = run->shape.ranks, all = spw_group_ranks(run) * run->tokens,
                 width = spw_group_width(run);
    spw_spread y;
    spw_status status = SPW_OK;
    SPW_TRY(spw_group_scratch(run, run->tokens, width, &y));
    spw_step(run, "weighted partial sums");
    SPW_TRY(spw_born(run, &g->partial, "partial_sums", all, width));
    for (size_t r = 0; r < ranks; r++) {
        spw_sum_rows(all, run->shape.top_k, width, g->rank[r].place, g->rank[r].weight, g->sorted.y.at[r],
                     g->partial.at[r]);
    }
    spw_dies(run, &g->sorted.y);
    spw_step(run, "reduce-scatter");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine"));
    SPW_TRY(reduce_scatter(run, &g->partial, &y));
    for (size_t r = 0; r < ranks; r++) spw_group_put_tokens(run, r, y.at[r], run->out.y);
    spw_dies(run, &g->partial);
cleanup:
    return status;
}

/* Rank d's gradient of the weights of token t of rank r, an array over experts. */
static void weight_gradient_row(const spw_execution *run, const ring *g, size_t d, size_t token, float *row) {
    const size_t top_k = run->shape.top_k;
    for (size_t x = 0; x < run->shape.experts; x++) row[x] = 0.0f;
    for (size_t i = token * top_k; i < (token + 1) * top_k; i++) {
        if (g->rank[d].place[i] >= 0) row[g->rank[d].expert[i]] = g->rank[d].d_weight[i];
    }
}

/* The transpose of gathering the logits: every rank returns one number an expert for each token. Here it is the
 * gradient of the weight, 0 for experts of other ranks. */
static spw_status return_weight_gradients(spw_execution *run, ring *g) {
    const size_t groups = spw_group_ranks(run), experts = run->shape.experts, top_k = run->shape.top_k;
    float *row = NULL;
    spw_spread own;
    spw_status status = SPW_OK;
    SPW_TRY(spw_group_scratch(run, 1, run->assignments, &own));
    SPW_TRY(SPW_ALLOC(experts, &row));
    SPW_TRY(spw_fabric_begin(run->fabric, "router gradient"));
    for (size_t i = 0; i < run->shape.ranks * groups * run->tokens; i++) {
        const size_t d = i / run->tokens % run->shape.ranks, source = i / run->tokens / run->shape.ranks,
                     token = source * run->tokens + i % run->tokens, r = spw_group_peer(run, d, source);
        weight_gradient_row(run, g, d, token, row);
        SPW_TRY(spw_fabric_send(run->fabric, d, r, row, experts, sizeof *row, 4));
        SPW_TRY(spw_fabric_receive(run->fabric, r, d, row, experts, sizeof *row));
        for (size_t k = 0; k < top_k; k++) {
            const int32_t x = run->in.expert[token * top_k + k];
            if (x >= 0) own.at[r][i % run->tokens * top_k + k] += row[x];
        }
    }
    SPW_TRY(spw_group_sum(run, "sum of logits", own.at, run->assignments, run->out.d_weight));
cleanup:
    spw_free(row);
    return status;
}

static spw_status combine_gradient(spw_execution *run, ring *g) {
    const size_t ranks = run->shape.ranks, all = spw_group_ranks(run) * run->tokens,
                 width = spw_group_width(run);
    const float *from[SPW_EXECUTION_RANKS];
    spw_spread dy;
    spw_status status = SPW_OK;
    SPW_TRY(spw_group_scratch(run, run->tokens, width, &dy));
    for (size_t r = 0; r < ranks; r++) {
        spw_group_take(run, r, spw_rank_dy(run, r), dy.at[r]);
        from[r] = dy.at[r];
    }
    spw_step(run, "all-gather of dy");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_born(run, &g->d_partial, "d_partial_sums", all, width));
    SPW_TRY(all_gather(run, g, from, false, &g->d_partial));
    spw_step(run, "partial sums gradient");
    SPW_TRY(spw_born(run, &g->sorted.dy, "dy_unsorted", g->experts.rows, width));
    for (size_t r = 0; r < ranks; r++) {
        const ring_rank *p = &g->rank[r];
        spw_sum_rows_gradient(&(spw_row_table){all, run->shape.top_k, width, p->place, p->weight},
                              g->sorted.y.at[r], g->d_partial.at[r], g->sorted.dy.at[r], p->d_weight);
    }
    spw_dies(run, &g->sorted.y), spw_dies(run, &g->d_partial);
    SPW_TRY(return_weight_gradients(run, g));
    SPW_TRY(spw_unsort_gradient(run, &g->experts, &g->sorted));
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, ring *g) {
    const size_t ranks = run->shape.ranks, all = spw_group_ranks(run) * run->tokens,
                 hidden = run->shape.hidden;
    spw_spread term, part;
    spw_status status = SPW_OK;
    SPW_TRY(spw_group_scratch(run, run->tokens, hidden, &term));
    SPW_TRY(spw_group_scratch(run, run->tokens, spw_group_width(run), &part));
    spw_step(run, "sort gradient");
    SPW_TRY(spw_sort_gradient(run, &g->experts, &g->sorted));
    spw_step(run, "sum over choices");
    SPW_TRY(spw_born(run, &g->dx_gathered, "dx_gathered", all, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_sum_rows(all, run->shape.top_k, hidden, g->rank[r].place, NULL, g->sorted.dx.at[r],
                     g->dx_gathered.at[r]);
    }
    spw_dies(run, &g->sorted.dx);
    spw_step(run, "reduce-scatter of dx");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(reduce_scatter(run, &g->dx_gathered, &term));
    spw_dies(run, &g->dx_gathered), spw_dies(run, &g->gathered);
    SPW_TRY(spw_group_scatter(run, "sum of dx", &term, &part));
    for (size_t r = 0; r < ranks; r++) spw_group_put_tokens(run, r, part.at[r], run->out.dx);
cleanup:
    return status;
}

spw_status spw_ring_execute(spw_execution *run, spw_ragged_forward *forward, spw_ragged_backward *backward) {
    ring *g = NULL;
    spw_expert_gradients whole;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    if (spw_group_size(run) > 1) SPW_TRY(spw_cut_weights(run, &whole));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(dispatch(run, g, "dispatch"));
    SPW_TRY(forward(run, &g->experts, false));
    SPW_TRY(spw_unsort(run, &g->experts, &g->sorted));
    SPW_TRY(combine(run, g));
    run->pass = SPW_PASS_RECOMPUTE; /* the recomputed partial sums are needed by nothing */
    SPW_TRY(dispatch(run, g, "dispatch again"));
    SPW_TRY(forward(run, &g->experts, true));
    SPW_TRY(spw_unsort(run, &g->experts, &g->sorted));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    SPW_TRY(backward(run, &g->experts));
    SPW_TRY(dispatch_gradient(run, g));
    if (spw_group_size(run) > 1) spw_join_gradients(run, &whole);
cleanup:
    return status;
}

spw_status spw_execute_ring(spw_execution *run) {
    return spw_ring_execute(run, spw_experts_forward, spw_experts_backward);
}
