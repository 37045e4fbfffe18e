#include "reference/schemes/deepep/execute_deepep_jax.h"

#include "reference/schemes/deepep/deepep_ranks.h"
#include "reference/schemes/sorted_rows.h"

typedef struct jax_rank {
    int32_t *fan; /* [ranks * tokens][top_k] place in fan-out order (by row, then slot), -1: another rank's */
    int32_t *row; /* [buffer] received row of each row of x */
} jax_rank;

typedef struct deepep {
    spw_experts experts;
    spw_deepep moved;
    jax_rank rank[SPW_EXECUTION_RANKS];
    spw_sorted_rows sorted; /* out of fan-out order */
    spw_spread received, fanned_in, d_fanned_in, dx_received;
} deepep;

enum { INDEX_BYTES = 4 }; /* Primus-Turbo's indices */
static const spw_deepep_message with_choices = {.choices = true}, rows_alone = {.choices = false};

static spw_status create(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, top_k = run->shape.top_k, worst = ranks * run->tokens;
    spw_status status = SPW_OK;
    SPW_TRY(spw_experts_create(run, worst * (run->local < top_k ? run->local : top_k), &g->experts));
    SPW_TRY(spw_sorted_create(run, &g->experts, &g->sorted));
    SPW_TRY(spw_deepep_create(run, INDEX_BYTES, &g->moved));
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &g->rank[r].fan));
        SPW_TRY(SPW_SCRATCH(run, g->experts.rows, &g->rank[r].row));
    }
cleanup:
    return status;
}

/* Sorts the received (row, slot) pairs of own experts by expert, stable. */
static void sort_received(spw_execution *run, deepep *g, size_t d) {
    const spw_deepep_rank *m = &g->moved.rank[d];
    jax_rank *p = &g->rank[d];
    const size_t top_k = run->shape.top_k, slots = m->received * top_k;
    size_t *offset = g->experts.offset + d * (run->local + 1), place = 0, row = 0;
    for (size_t i = 0; i < slots; i++) {
        const bool own = m->expert[i] >= 0 && (size_t)m->expert[i] / run->local == d;
        p->fan[i] = own ? (int32_t)place++ : -1;
    }
    for (size_t x = 0; x < run->local; x++) {
        offset[x] = row;
        for (size_t i = 0; i < slots; i++) {
            if (p->fan[i] < 0 || (size_t)m->expert[i] != d * run->local + x) continue;
            g->sorted.place[d][row] = p->fan[i];
            p->row[row++] = (int32_t)(i / top_k);
        }
    }
    offset[run->local] = run->out.rows[d] = row;
}

static spw_status dispatch(spw_execution *run, deepep *g, const char *exchange) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_born(run, &g->received, "received", ranks * run->tokens, hidden));
    SPW_TRY(spw_deepep_send(run, &g->moved, with_choices, spw_rank_x));
    spw_deepep_arrive(run, &g->moved, with_choices);
    SPW_TRY(spw_deepep_receive(run, &g->moved, with_choices, &g->received, NULL));
    for (size_t r = 0; r < ranks; r++) sort_received(run, g, r);
    spw_step(run, "fan-out");
    SPW_TRY(spw_born(run, &g->experts.x, "x", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_gather_rows(g->received.at[r], g->rank[r].row, run->out.rows[r], hidden, g->experts.x.at[r]);
    }
    if (run->pass == SPW_PASS_FORWARD) spw_dies(run, &g->received);
cleanup:
    return status;
}

static spw_status combine(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "fan-in");
    SPW_TRY(spw_born(run, &g->fanned_in, "fanned_in", ranks * run->tokens, hidden));
    for (size_t r = 0; r < ranks; r++) {
        const spw_deepep_rank *m = &g->moved.rank[r];
        spw_sum_rows(m->received, run->shape.top_k, hidden, g->rank[r].fan, m->weight, g->sorted.y.at[r],
                     g->fanned_in.at[r]);
    }
    spw_dies(run, &g->sorted.y);
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine"));
    SPW_TRY(spw_deepep_return(run, &g->moved, &g->fanned_in, false, run->out.y));
    spw_dies(run, &g->fanned_in);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_born(run, &g->d_fanned_in, "d_fanned_in", ranks * run->tokens, hidden));
    SPW_TRY(spw_deepep_send(run, &g->moved, rows_alone, spw_rank_dy));
    SPW_TRY(spw_deepep_receive(run, &g->moved, rows_alone, &g->d_fanned_in, NULL));
    spw_step(run, "fan-in gradient");
    SPW_TRY(spw_born(run, &g->sorted.dy, "dy_unsorted", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) {
        const spw_deepep_rank *m = &g->moved.rank[r];
        spw_sum_rows_gradient(
            &(spw_row_table){m->received, run->shape.top_k, hidden, g->rank[r].fan, m->weight},
            g->sorted.y.at[r], g->d_fanned_in.at[r], g->sorted.dy.at[r], m->d_weight);
    }
    spw_dies(run, &g->sorted.y), spw_dies(run, &g->d_fanned_in);
    SPW_TRY(spw_unsort_gradient(run, &g->experts, &g->sorted));
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "fan-out gradient");
    SPW_TRY(spw_sort_gradient(run, &g->experts, &g->sorted));
    SPW_TRY(spw_born(run, &g->dx_received, "dx_received", ranks * run->tokens, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_sum_rows(g->moved.rank[r].received, run->shape.top_k, hidden, g->rank[r].fan, NULL,
                     g->sorted.dx.at[r], g->dx_received.at[r]);
    }
    spw_dies(run, &g->sorted.dx);
    spw_step(run, "dispatch gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(spw_deepep_return(run, &g->moved, &g->dx_received, true, run->out.dx));
    spw_dies(run, &g->dx_received), spw_dies(run, &g->received);
cleanup:
    return status;
}

spw_status spw_deepep_jax_execute(spw_execution *run, spw_ragged_forward *forward,
                                  spw_ragged_backward *backward) {
    deepep *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(dispatch(run, g, "dispatch"));
    SPW_TRY(forward(run, &g->experts, false));
    SPW_TRY(spw_unsort(run, &g->experts, &g->sorted));
    SPW_TRY(combine(run, g));
    run->pass = SPW_PASS_RECOMPUTE; /* the combine is not repeated, nothing needs its result */
    SPW_TRY(dispatch(run, g, "dispatch again"));
    SPW_TRY(forward(run, &g->experts, true));
    SPW_TRY(spw_unsort(run, &g->experts, &g->sorted));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    SPW_TRY(backward(run, &g->experts));
    SPW_TRY(dispatch_gradient(run, g));
cleanup:
    return status;
}
