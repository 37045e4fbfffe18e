#include "reference/schemes/execute_deepep_jax.h"

#include "reference/schemes/deepep_ranks.h"

typedef struct jax_rank {
    int32_t *fan; /* [ranks * tokens][top_k] place in fan-out order (by row, then slot), -1: another rank's */
    int32_t *sorted; /* [buffer] place in fan-out order of each row of x */
    int32_t *row;    /* [buffer] received row of each row of x */
} jax_rank;

typedef struct deepep {
    spw_experts experts;
    spw_deepep moved;
    jax_rank rank[SPW_EXECUTION_RANKS];
    spw_spread received, y_unsorted, fanned_in, d_fanned_in, dy_unsorted, dx_unsorted, dx_received;
} deepep;

enum { INDEX_BYTES = 4 }; /* Primus-Turbo's indices */
static const spw_deepep_message with_choices = {.choices = true}, rows_alone = {.choices = false};

static spw_status create(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, top_k = run->shape.top_k, worst = ranks * run->tokens;
    spw_status status = SPW_OK;
    SPW_TRY(spw_experts_create(run, worst * (run->local < top_k ? run->local : top_k), &g->experts));
    SPW_TRY(spw_deepep_create(run, INDEX_BYTES, &g->moved));
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &g->rank[r].fan));
        SPW_TRY(SPW_SCRATCH(run, g->experts.rows, &g->rank[r].sorted));
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
            p->sorted[row] = p->fan[i];
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

/* y back into fan-out order. */
static spw_status unsort(spw_execution *run, deepep *g) {
    const size_t hidden = run->shape.hidden;
    spw_step(run, "unsort");
    const spw_status status = spw_born(run, &g->y_unsorted, "y_unsorted", g->experts.rows, hidden);
    if (status != SPW_OK) return status;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_scatter_rows(g->experts.y.at[r], g->rank[r].sorted, run->out.rows[r], hidden,
                         g->y_unsorted.at[r]);
    }
    spw_dies(run, &g->experts.y);
    return SPW_OK;
}

static spw_status combine(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "fan-in");
    SPW_TRY(spw_born(run, &g->fanned_in, "fanned_in", ranks * run->tokens, hidden));
    for (size_t r = 0; r < ranks; r++) {
        const spw_deepep_rank *m = &g->moved.rank[r];
        spw_sum_rows(m->received, run->shape.top_k, hidden, g->rank[r].fan, m->weight, g->y_unsorted.at[r],
                     g->fanned_in.at[r]);
    }
    spw_dies(run, &g->y_unsorted);
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine"));
    SPW_TRY(spw_deepep_return(run, &g->moved, &g->fanned_in, false, run->out.y));
    spw_dies(run, &g->fanned_in);
cleanup:
    return status;
}

/* d_weight of each choice, and dy_unsorted = weight * d_fanned_in. */
static void fan_in_gradient(spw_execution *run, deepep *g, size_t r) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
    const spw_deepep_rank *m = &g->moved.rank[r];
    const int32_t *fan = g->rank[r].fan;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < m->received * top_k; i++) {
        const float *d = g->d_fanned_in.at[r] + i / top_k * hidden;
        double sum = 0.0;
        for (size_t h = 0; h < hidden && fan[i] >= 0; h++) {
            const size_t at = (size_t)fan[i] * hidden + h;
            sum += (double)d[h] * (double)g->y_unsorted.at[r][at];
            g->dy_unsorted.at[r][at] = (float)((double)m->weight[i] * (double)d[h]);
        }
        m->d_weight[i] = (float)sum;
    }
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
    SPW_TRY(spw_born(run, &g->dy_unsorted, "dy_unsorted", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) fan_in_gradient(run, g, r);
    spw_dies(run, &g->y_unsorted), spw_dies(run, &g->d_fanned_in);
    spw_step(run, "unsort gradient");
    SPW_TRY(spw_born(run, &g->experts.dy, "dy", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_gather_rows(g->dy_unsorted.at[r], g->rank[r].sorted, run->out.rows[r], hidden,
                        g->experts.dy.at[r]);
    }
    spw_dies(run, &g->dy_unsorted);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "fan-out gradient");
    SPW_TRY(spw_born(run, &g->dx_unsorted, "dx_unsorted", g->experts.rows, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_scatter_rows(g->experts.dx0.at[r], g->rank[r].sorted, run->out.rows[r], hidden,
                         g->dx_unsorted.at[r]);
    }
    spw_dies(run, &g->experts.dx0);
    SPW_TRY(spw_born(run, &g->dx_received, "dx_received", ranks * run->tokens, hidden));
    for (size_t r = 0; r < ranks; r++) {
        spw_sum_rows(g->moved.rank[r].received, run->shape.top_k, hidden, g->rank[r].fan, NULL,
                     g->dx_unsorted.at[r], g->dx_received.at[r]);
    }
    spw_dies(run, &g->dx_unsorted);
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
    SPW_TRY(unsort(run, g));
    SPW_TRY(combine(run, g));
    run->pass = SPW_PASS_RECOMPUTE; /* the combine is not repeated, nothing needs its result */
    SPW_TRY(dispatch(run, g, "dispatch again"));
    SPW_TRY(forward(run, &g->experts, true));
    SPW_TRY(unsort(run, g));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    SPW_TRY(backward(run, &g->experts));
    SPW_TRY(dispatch_gradient(run, g));
cleanup:
    return status;
}
