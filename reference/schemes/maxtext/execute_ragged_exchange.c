#include "reference/schemes/maxtext/execute_ragged_exchange.h"

#include "base/memory.h"
#include "reference/combine.h"
#include "reference/plan.h"
#include "reference/schemes/cut_weights.h"
#include "reference/schemes/tensor_group.h"

/* What a rank knows of the exchange: its own sorting, and what the all-gather of counts told it. */
typedef struct spw_ragged_rank {
    spw_plan plan;     /* of its own assignments */
    size_t *kept;      /* [experts] rows it may send to each expert */
    int32_t *unsorted; /* [assignments] own place of the assignment, -1: unused slot */
    size_t *taken;     /* [ranks][local] rows it receives from each source for each local expert */
    int32_t *from_x;   /* [buffer] place among the received rows of each row of x; -1: none */
} spw_ragged_rank;

typedef struct spw_ragged {
    spw_experts experts;
    spw_ragged_rank rank[SPW_EXECUTION_RANKS];
    spw_spread repeated, sorted, received, y_unsorted, returned, returned_unsorted, d_returned,
        d_returned_sorted, dy_received, dx_unsorted, dx_returned;
} spw_ragged;

/* Rows of the receive buffer: int(N f), or the worst case R T min(e, K). */
static size_t buffer_rows(const spw_execution *run) {
    const spw_execution_shape *s = &run->shape;
    if (s->factor > 0.0) return (size_t)((double)run->assignments * s->factor);
    return spw_group_ranks(run) * run->tokens * (run->local < s->top_k ? run->local : s->top_k);
}

/* Every rank sends its counts to every other, so that all can agree on who has room. */
static spw_status gather_counts(spw_execution *run, size_t rank, size_t *count) {
    const size_t experts = run->shape.experts;
    for (size_t source = 0; source < spw_group_ranks(run); source++) {
        const spw_status status = spw_fabric_receive(run->fabric, rank, spw_group_peer(run, rank, source),
                                                     count + source * experts, experts, sizeof *count);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

/* count [ranks][experts] becomes what is kept: the buffer of each destination is filled in order of source rank, inside a
 * source in order of expert (MaxText _truncate_matrix). */
static void truncate_counts(const spw_execution *run, size_t buffer, size_t *count) {
    for (size_t d = 0; d < spw_group_ranks(run); d++) {
        size_t room = buffer;
        for (size_t source = 0; source < spw_group_ranks(run); source++) {
            for (size_t x = d * run->local; x < (d + 1) * run->local; x++) {
                size_t *n = &count[source * run->shape.experts + x];
                if (*n > room) *n = room;
                room -= *n;
            }
        }
    }
}

/* Fills in what `rank` does with the agreed counts. */
static void agree(spw_execution *run, spw_ragged *g, size_t rank, const size_t *kept) {
    const size_t ranks = spw_group_ranks(run), experts = run->shape.experts, local = run->local,
                 place_of_rank = rank / spw_group_size(run);
    spw_ragged_rank *r = &g->rank[rank];
    size_t *offset = g->experts.offset + rank * (local + 1);
    for (size_t x = 0; x < experts; x++) {
        r->kept[x] = kept[place_of_rank * experts + x];
        run->out.dropped[rank] += r->plan.count[x] - r->kept[x];
    }
    for (size_t i = 0; i < run->assignments; i++) r->unsorted[i] = r->plan.row[i] < 0 ? -1 : (int32_t)i;
    for (size_t source = 0; source < ranks; source++) {
        for (size_t x = 0; x < local; x++) {
            r->taken[source * local + x] = kept[source * experts + place_of_rank * local + x];
        }
    }
    size_t row = 0;
    for (size_t x = 0; x < local;
         x++) { /* sorted by expert, then by source: a stable sort of what was received */
        size_t place = 0;
        offset[x] = row;
        for (size_t i = 0; i < ranks * local; i++) {
            for (size_t n = 0; n < r->taken[i] && i % local == x; n++)
                r->from_x[row++] = (int32_t)(place + n);
            place += r->taken[i];
        }
    }
    offset[local] = run->out.rows[rank] = row;
    for (; row < g->experts.rows; row++) r->from_x[row] = -1;
}

static spw_status create(spw_execution *run, spw_ragged *g) {
    const size_t ranks = run->shape.ranks, experts = run->shape.experts;
    size_t *count = NULL;
    spw_status status = SPW_OK;
    *g = (spw_ragged){.experts = {.rows = 0}};
    SPW_TRY(spw_experts_create(run, buffer_rows(run), &g->experts));
    SPW_TRY(SPW_SCRATCH(run, spw_group_ranks(run) * experts, &count));
    SPW_TRY(spw_fabric_begin(run->fabric, "counts"));
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(spw_ref_plan_create(run->tokens, run->shape.top_k, experts, spw_rank_expert(run, r),
                                    &g->rank[r].plan));
        for (size_t d = 0; d < spw_group_ranks(run); d++) {
            SPW_TRY(spw_fabric_send(run->fabric, r, spw_group_peer(run, r, d), g->rank[r].plan.count, experts,
                                    sizeof *count, sizeof(int32_t)));
        }
    }
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(SPW_SCRATCH(run, experts, &g->rank[r].kept));
        SPW_TRY(SPW_SCRATCH(run, run->assignments, &g->rank[r].unsorted));
        SPW_TRY(SPW_SCRATCH(run, experts, &g->rank[r].taken));
        SPW_TRY(SPW_SCRATCH(run, g->experts.rows, &g->rank[r].from_x));
        SPW_TRY(gather_counts(run, r, count));
        truncate_counts(run, g->experts.rows, count);
        agree(run, g, r, count);
    }
cleanup:
    return status;
}

static void destroy(spw_execution *run, spw_ragged *g) {
    for (size_t r = 0; r < run->shape.ranks; r++) spw_ref_plan_destroy(&g->rank[r].plan);
}

/* The ragged all-to-all: a rank's rows, sorted by expert, to the receive buffers; what has no room stays behind. */
static spw_status to_experts(spw_execution *run, spw_ragged *g, const spw_spread *sorted,
                             spw_spread *received) {
    const size_t ranks = run->shape.ranks, width = sorted->width, received_from = run->shape.experts;
    spw_status status = SPW_OK;
    for (size_t r = 0; r < ranks; r++) {
        const spw_ragged_rank *from = &g->rank[r];
        for (size_t x = 0; x < run->shape.experts; x++) {
            SPW_TRY(spw_send_rows(run, r, spw_group_peer(run, r, x / run->local),
                                  sorted->at[r] + from->plan.offset[x] * width, from->kept[x], width));
        }
    }
    for (size_t r = 0; r < ranks; r++) {
        size_t place = 0;
        for (size_t i = 0; i < received_from; i++) {
            const size_t rows = g->rank[r].taken[i];
            SPW_TRY(spw_receive_rows(run, r, spw_group_peer(run, r, i / run->local),
                                     received->at[r] + place * width, rows, width));
            place += rows;
        }
    }
cleanup:
    return status;
}

/* And back. Rows that were left behind keep the zeros that they were born with. */
static spw_status from_experts(spw_execution *run, spw_ragged *g, const spw_spread *unsorted,
                               spw_spread *returned) {
    const size_t ranks = run->shape.ranks, width = unsorted->width, received_from = run->shape.experts;
    spw_status status = SPW_OK;
    for (size_t r = 0; r < ranks; r++) {
        size_t place = 0;
        for (size_t i = 0; i < received_from; i++) {
            const size_t rows = g->rank[r].taken[i];
            SPW_TRY(spw_send_rows(run, r, spw_group_peer(run, r, i / run->local),
                                  unsorted->at[r] + place * width, rows, width));
            place += rows;
        }
    }
    for (size_t r = 0; r < ranks; r++) {
        const spw_ragged_rank *to = &g->rank[r];
        for (size_t x = 0; x < run->shape.experts; x++) {
            SPW_TRY(spw_receive_rows(run, r, spw_group_peer(run, r, x / run->local),
                                     returned->at[r] + to->plan.offset[x] * width, to->kept[x], width));
        }
    }
cleanup:
    return status;
}

static spw_status dispatch(spw_execution *run, spw_ragged *g, const char *exchange) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, top_k = run->shape.top_k;
    spw_status status = SPW_OK;
    spw_step(run, "repeat");
    SPW_TRY(spw_born(run, &g->repeated, "repeated", run->assignments, hidden));
    for (size_t r = 0; r < ranks; r++) {
        for (size_t i = 0; i < run->assignments * hidden; i++) {
            g->repeated.at[r][i] = spw_rank_x(run, r)[i / hidden / top_k * hidden + i % hidden];
        }
    }
    spw_step(run, "sort");
    SPW_TRY(spw_born(run, &g->sorted, "sorted", run->assignments, hidden));
    for (size_t r = 0; r < ranks; r++) {
        const spw_plan *plan = &g->rank[r].plan;
        spw_gather_rows(g->repeated.at[r], plan->assignment, plan->rows, hidden, g->sorted.at[r]);
    }
    spw_dies(run, &g->repeated);
    spw_step(run, "dispatch");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_born(run, &g->received, "received", g->experts.rows, hidden));
    SPW_TRY(to_experts(run, g, &g->sorted, &g->received));
    spw_dies(run, &g->sorted);
    spw_step(run, "local sort");
    SPW_TRY(spw_born(run, &g->experts.x, "x", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_gather_rows(g->received.at[r], g->rank[r].from_x, g->experts.rows, hidden, g->experts.x.at[r]);
    }
    spw_dies(run, &g->received);
cleanup:
    return status;
}

static spw_status combine(spw_execution *run, spw_ragged *g, const char *exchange) {
    const size_t ranks = run->shape.ranks, width = spw_group_width(run);
    spw_status status = SPW_OK;
    spw_step(run, "local unsort");
    SPW_TRY(spw_born(run, &g->returned, "returned", run->assignments, width));
    SPW_TRY(spw_born(run, &g->y_unsorted, "y_unsorted", g->experts.rows, width));
    for (size_t r = 0; r < ranks; r++) {
        spw_scatter_rows(g->experts.y.at[r], g->rank[r].from_x, g->experts.rows, width, g->y_unsorted.at[r]);
    }
    spw_dies(run, &g->experts.y);
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(from_experts(run, g, &g->y_unsorted, &g->returned));
    spw_dies(run, &g->y_unsorted);
    spw_step(run, "unsort");
    SPW_TRY(spw_born(run, &g->returned_unsorted, "returned_unsorted", run->assignments, width));
    for (size_t r = 0; r < ranks; r++) {
        const spw_plan *plan = &g->rank[r].plan;
        spw_scatter_rows(g->returned.at[r], plan->assignment, plan->rows, width, g->returned_unsorted.at[r]);
    }
    spw_dies(run, &g->returned);
cleanup:
    return status;
}

/* A plan whose rows stand in the order of the assignments. */
static spw_plan own_order(const spw_execution *run, const spw_ragged *g, size_t rank) {
    return (spw_plan){.tokens = run->tokens, .top_k = run->shape.top_k, .row = g->rank[rank].unsorted};
}

static spw_status output(spw_execution *run, spw_ragged *g) {
    const size_t width = spw_group_width(run);
    spw_spread part;
    const spw_status status = spw_group_scratch(run, run->tokens, width, &part);
    if (status != SPW_OK) return status;
    spw_step(run, "sum over choices");
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_plan plan = own_order(run, g, r);
        spw_ref_combine(&plan, width, g->returned_unsorted.at[r], spw_rank_weight(run, r), part.at[r], NULL);
        spw_group_put_tokens(run, r, part.at[r], run->out.y);
    }
    spw_dies(run, &g->returned_unsorted);
    return SPW_OK;
}

/* Each rank of a tensor group has the products of its columns alone with dy, which are added up for the weights. */
static spw_status weigh_gradient(spw_execution *run, spw_ragged *g) {
    const size_t width = spw_group_width(run);
    spw_spread dy, d_weight;
    spw_status status = SPW_OK;
    SPW_TRY(spw_group_scratch(run, run->tokens, width, &dy));
    SPW_TRY(spw_group_scratch(run, 1, run->assignments, &d_weight));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_plan plan = own_order(run, g, r);
        spw_group_take(run, r, spw_rank_dy(run, r), dy.at[r]);
        spw_ref_combine_gradient(&plan, width, dy.at[r], g->returned_unsorted.at[r], spw_rank_weight(run, r),
                                 (spw_combine_gradients){g->d_returned.at[r], d_weight.at[r], NULL});
    }
    SPW_TRY(spw_group_sum(run, "sum of logits", d_weight.at, run->assignments, run->out.d_weight));
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, spw_ragged *g) {
    const size_t ranks = run->shape.ranks, width = spw_group_width(run);
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_born(run, &g->d_returned, "d_returned", run->assignments, width));
    SPW_TRY(weigh_gradient(run, g));
    spw_dies(run, &g->returned_unsorted);
    spw_step(run, "sort of dy");
    SPW_TRY(spw_born(run, &g->d_returned_sorted, "d_returned_sorted", run->assignments, width));
    for (size_t r = 0; r < ranks; r++) {
        const spw_plan *plan = &g->rank[r].plan;
        spw_gather_rows(g->d_returned.at[r], plan->assignment, plan->rows, width, g->d_returned_sorted.at[r]);
    }
    spw_step(run, "dispatch of dy");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_born(run, &g->dy_received, "dy_received", g->experts.rows, width));
    SPW_TRY(to_experts(run, g, &g->d_returned_sorted, &g->dy_received));
    spw_step(run, "local sort of dy");
    SPW_TRY(spw_born(run, &g->experts.dy, "dy", g->experts.rows, width));
    for (size_t r = 0; r < ranks; r++) {
        spw_gather_rows(g->dy_received.at[r], g->rank[r].from_x, g->experts.rows, width, g->experts.dy.at[r]);
    }
    spw_dies(run, &g->dy_received), spw_dies(run, &g->d_returned_sorted), spw_dies(run, &g->d_returned);
cleanup:
    return status;
}

/* Terms of the gradient of the input, of which each rank of a tensor group keeps the sum of its columns. */
static spw_status sum_gradient(spw_execution *run, spw_ragged *g) {
    const size_t hidden = run->shape.hidden;
    spw_spread term, part;
    spw_status status = SPW_OK;
    SPW_TRY(spw_group_scratch(run, run->tokens, hidden, &term));
    SPW_TRY(spw_group_scratch(run, run->tokens, spw_group_width(run), &part));
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_ref_permute_gradient(&g->rank[r].plan, hidden, g->dx_returned.at[r], term.at[r], NULL);
    SPW_TRY(spw_group_scatter(run, "sum of dx", &term, &part));
    for (size_t r = 0; r < run->shape.ranks; r++) spw_group_put_tokens(run, r, part.at[r], run->out.dx);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, spw_ragged *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "local unsort of dx");
    SPW_TRY(spw_born(run, &g->dx_unsorted, "dx_unsorted", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_scatter_rows(g->experts.dx0.at[r], g->rank[r].from_x, g->experts.rows, hidden,
                         g->dx_unsorted.at[r]);
    }
    spw_dies(run, &g->experts.dx0);
    spw_step(run, "combine of dx");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(spw_born(run, &g->dx_returned, "dx_returned", run->assignments, hidden));
    SPW_TRY(from_experts(run, g, &g->dx_unsorted, &g->dx_returned));
    spw_dies(run, &g->dx_unsorted);
    spw_step(run, "sum over choices");
    SPW_TRY(sum_gradient(run, g));
    spw_dies(run, &g->dx_returned);
cleanup:
    return status;
}

spw_status spw_ragged_execute(spw_execution *run, spw_ragged_forward *forward,
                              spw_ragged_backward *backward) {
    spw_ragged *g = NULL;
    spw_expert_gradients whole;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    if (spw_group_size(run) > 1) SPW_TRY(spw_cut_weights(run, &whole));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(dispatch(run, g, "dispatch"));
    SPW_TRY(forward(run, &g->experts, false));
    SPW_TRY(combine(run, g, "combine"));
    SPW_TRY(output(run, g));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(dispatch(run, g, "dispatch again"));
    SPW_TRY(forward(run, &g->experts, true));
    SPW_TRY(combine(run, g, "combine again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    SPW_TRY(backward(run, &g->experts));
    SPW_TRY(dispatch_gradient(run, g));
    if (spw_group_size(run) > 1) spw_join_gradients(run, &whole);

cleanup:
    destroy(run, g);
    return status;
}
