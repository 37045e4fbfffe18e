/* Grouped GEMM behind DeepEP in JAX (docs/schemes.md, sections 3.1 and 3.3). A token travels once a rank, with its
 * choices; the receiver fans it out to its experts, sums what they say and returns one row. Of a forward dispatch the
 * receiver keeps a handle, so that the backward pass sends rows without choices (cached dispatch). */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/ranks.h"

#include "base/memory.h"

typedef struct deepep_rank {
    size_t *sent;     /* [ranks] tokens to each rank: is_token_in_rank, summed */
    int32_t *sent_id; /* [ranks][tokens] which ones, in order */
    size_t received;  /* rows, by source, then by token */
    size_t *source;   /* [ranks + 1] first row of each source */
    int32_t *token;   /* [ranks * tokens] index at the source of each row */
    int32_t *expert;  /* [ranks * tokens][top_k] choices of each row */
    float *weight;    /* [ranks * tokens][top_k] 0 where the expert is of another rank */
    float *d_weight;  /* the same */
    int32_t *fan; /* [ranks * tokens][top_k] place in fan-out order (by row, then slot), -1: another rank's */
    int32_t *sorted; /* [buffer] place in fan-out order of each row of x */
    int32_t *row;    /* [buffer] received row of each row of x */
} deepep_rank;

typedef struct deepep {
    spw_experts experts;
    deepep_rank rank[SPW_EXECUTION_RANKS];
    spw_spread received, y_unsorted, fanned_in, d_fanned_in, dy_unsorted, dx_unsorted, dx_received;
} deepep;

static spw_status create(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, top_k = run->shape.top_k, worst = ranks * run->tokens;
    spw_status status = SPW_OK;
    SPW_TRY(spw_experts_create(run, worst * (run->local < top_k ? run->local : top_k), &g->experts));
    for (size_t r = 0; r < ranks; r++) {
        deepep_rank *p = &g->rank[r];
        SPW_TRY(SPW_SCRATCH(run, ranks, &p->sent));
        SPW_TRY(SPW_SCRATCH(run, worst, &p->sent_id));
        SPW_TRY(SPW_SCRATCH(run, ranks + 1, &p->source));
        SPW_TRY(SPW_SCRATCH(run, worst, &p->token));
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &p->expert));
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &p->weight));
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &p->d_weight));
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &p->fan));
        SPW_TRY(SPW_SCRATCH(run, g->experts.rows, &p->sorted));
        SPW_TRY(SPW_SCRATCH(run, g->experts.rows, &p->row));
        for (size_t t = 0; t < run->tokens; t++) { /* get_dispatch_layout */
            for (size_t d = 0; d < ranks; d++) {
                bool wanted = false;
                for (size_t k = 0; k < top_k; k++) {
                    const int32_t x = spw_rank_expert(run, r)[t * top_k + k];
                    wanted |= x >= 0 && (size_t)x / run->local == d;
                }
                if (wanted) p->sent_id[d * run->tokens + p->sent[d]++] = (int32_t)t;
            }
        }
    }
cleanup:
    return status;
}

/* A row of `width` numbers and the index of the source token, from tokens of every source to the ranks that want it. */
static spw_status send_tokens(spw_execution *run, deepep *g, size_t r, const float *x, bool choices) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
    spw_status status = SPW_OK;
    for (size_t d = 0; d < run->shape.ranks; d++) {
        for (size_t n = 0; n < g->rank[r].sent[d]; n++) {
            const int32_t t = g->rank[r].sent_id[d * run->tokens + n];
            const size_t at = (size_t)t * top_k;
            SPW_TRY(spw_fabric_send(run->fabric, r, d, &t, 1, sizeof t, sizeof t));
            SPW_TRY(spw_send_rows(run, r, d, x + (size_t)t * hidden, 1, hidden));
            if (!choices) continue;
            SPW_TRY(
                spw_fabric_send(run->fabric, r, d, spw_rank_expert(run, r) + at, top_k, sizeof(int32_t), 4));
            SPW_TRY(
                spw_fabric_send(run->fabric, r, d, spw_rank_weight(run, r) + at, top_k, sizeof(float), 4));
        }
    }
cleanup:
    return status;
}

/* The receiver does not know how many rows come: it takes them until a source has no more. */
static spw_status receive_dispatch(spw_execution *run, deepep *g, size_t d) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
    deepep_rank *p = &g->rank[d];
    size_t row = 0;
    spw_status status = SPW_OK;
    for (size_t s = 0; s < run->shape.ranks; s++) {
        p->source[s] = row;
        for (; spw_fabric_waiting(run->fabric, d, s) > 0; row++) {
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, &p->token[row], 1, sizeof p->token[row]));
            SPW_TRY(spw_receive_rows(run, d, s, g->received.at[d] + row * hidden, 1, hidden));
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, p->expert + row * top_k, top_k, sizeof(int32_t)));
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, p->weight + row * top_k, top_k, sizeof(float)));
        }
    }
    p->source[run->shape.ranks] = p->received = row;
cleanup:
    return status;
}

/* Sorts the received (row, slot) pairs of own experts by expert, stable. */
static void sort_received(spw_execution *run, deepep *g, size_t d) {
    const size_t top_k = run->shape.top_k, slots = g->rank[d].received * top_k;
    deepep_rank *p = &g->rank[d];
    size_t *offset = g->experts.offset + d * (run->local + 1), place = 0, row = 0;
    for (size_t i = 0; i < slots; i++) {
        const bool own = p->expert[i] >= 0 && (size_t)p->expert[i] / run->local == d;
        p->fan[i] = own ? (int32_t)place++ : -1;
        if (!own) p->weight[i] = 0.0f;
    }
    for (size_t x = 0; x < run->local; x++) {
        offset[x] = row;
        for (size_t i = 0; i < slots; i++) {
            if (p->fan[i] < 0 || (size_t)p->expert[i] != d * run->local + x) continue;
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
    for (size_t r = 0; r < ranks; r++) SPW_TRY(send_tokens(run, g, r, spw_rank_x(run, r), true));
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(receive_dispatch(run, g, r));
        sort_received(run, g, r);
    }
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

/* One row a received token back to its source, where rows of several ranks are added in order of rank; with
 * `weights` the gradients of its choices too. to [tokens][hidden] of all ranks. */
static spw_status send_back(spw_execution *run, deepep *g, const spw_spread *rows, bool weights, float *to) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, top_k = run->shape.top_k;
    double *sum = NULL;
    float *row = NULL, *choice = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(run->tokens * hidden, &sum));
    SPW_TRY(SPW_ALLOC(hidden, &row));
    SPW_TRY(SPW_ALLOC(top_k, &choice));
    for (size_t d = 0; d < ranks; d++) {
        const deepep_rank *p = &g->rank[d];
        for (size_t j = 0, s = 0; j < p->received; j++) {
            while (j >= p->source[s + 1]) s++;
            SPW_TRY(spw_fabric_send(run->fabric, d, s, &p->token[j], 1, sizeof p->token[j], 4));
            SPW_TRY(spw_send_rows(run, d, s, rows->at[d] + j * hidden, 1, hidden));
            if (!weights) continue;
            SPW_TRY(spw_fabric_send(run->fabric, d, s, p->d_weight + j * top_k, top_k, sizeof(float), 4));
        }
    }
    for (size_t s = 0; s < ranks; s++) {
        for (size_t i = 0; i < run->tokens * hidden; i++) sum[i] = 0.0;
        for (size_t d = 0; d < ranks; d++) {
            for (size_t n = 0; n < g->rank[s].sent[d]; n++) {
                int32_t t = 0;
                SPW_TRY(spw_fabric_receive(run->fabric, s, d, &t, 1, sizeof t));
                SPW_TRY(spw_receive_rows(run, s, d, row, 1, hidden));
                for (size_t h = 0; h < hidden; h++) sum[(size_t)t * hidden + h] += (double)row[h];
                if (!weights) continue;
                SPW_TRY(spw_fabric_receive(run->fabric, s, d, choice, top_k, sizeof *choice));
                for (size_t k = 0; k < top_k; k++) { /* 0 but from the rank that has the expert */
                    run->out.d_weight[s * run->assignments + (size_t)t * top_k + k] += choice[k];
                }
            }
        }
        for (size_t i = 0; i < run->tokens * hidden; i++) to[s * run->tokens * hidden + i] = (float)sum[i];
    }
cleanup:
    spw_free(choice), spw_free(row), spw_free(sum);
    return status;
}

static spw_status combine(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "fan-in");
    SPW_TRY(spw_born(run, &g->fanned_in, "fanned_in", ranks * run->tokens, hidden));
    for (size_t r = 0; r < ranks; r++) {
        const deepep_rank *p = &g->rank[r];
        spw_sum_rows(p->received, run->shape.top_k, hidden, p->fan, p->weight, g->y_unsorted.at[r],
                     g->fanned_in.at[r]);
    }
    spw_dies(run, &g->y_unsorted);
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine"));
    SPW_TRY(send_back(run, g, &g->fanned_in, false, run->out.y));
    spw_dies(run, &g->fanned_in);
cleanup:
    return status;
}

/* d_weight of each choice, and dy_unsorted = weight * d_fanned_in. */
static void fan_in_gradient(spw_execution *run, deepep *g, size_t r) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
    const deepep_rank *p = &g->rank[r];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < p->received * top_k; i++) {
        const float *d = g->d_fanned_in.at[r] + i / top_k * hidden;
        double sum = 0.0;
        for (size_t h = 0; h < hidden && p->fan[i] >= 0; h++) {
            const size_t at = (size_t)p->fan[i] * hidden + h;
            sum += (double)d[h] * (double)g->y_unsorted.at[r][at];
            g->dy_unsorted.at[r][at] = (float)((double)p->weight[i] * (double)d[h]);
        }
        p->d_weight[i] = (float)sum;
    }
}

static spw_status combine_gradient(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_born(run, &g->d_fanned_in, "d_fanned_in", ranks * run->tokens, hidden));
    for (size_t r = 0; r < ranks; r++) SPW_TRY(send_tokens(run, g, r, spw_rank_dy(run, r), false));
    for (size_t r = 0; r < ranks; r++) { /* the handle says how many rows come, and from where */
        for (size_t j = 0, s = 0; j < g->rank[r].received; j++) {
            int32_t token = 0;
            while (j >= g->rank[r].source[s + 1]) s++;
            SPW_TRY(spw_fabric_receive(run->fabric, r, s, &token, 1, sizeof token));
            SPW_TRY(spw_receive_rows(run, r, s, g->d_fanned_in.at[r] + j * hidden, 1, hidden));
        }
    }
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
        const deepep_rank *p = &g->rank[r];
        spw_sum_rows(p->received, run->shape.top_k, hidden, p->fan, NULL, g->dx_unsorted.at[r],
                     g->dx_received.at[r]);
    }
    spw_dies(run, &g->dx_unsorted);
    spw_step(run, "dispatch gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(send_back(run, g, &g->dx_received, true, run->out.dx));
    spw_dies(run, &g->dx_received), spw_dies(run, &g->received);
cleanup:
    return status;
}

spw_status spw_execute_gmm_deepep(spw_execution *run) {
    deepep *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(dispatch(run, g, "dispatch"));
    SPW_TRY(spw_experts_forward(run, &g->experts, false));
    SPW_TRY(unsort(run, g));
    SPW_TRY(combine(run, g));
    run->pass = SPW_PASS_RECOMPUTE; /* the combine is not repeated, nothing needs its result */
    SPW_TRY(dispatch(run, g, "dispatch again"));
    SPW_TRY(spw_experts_forward(run, &g->experts, true));
    SPW_TRY(unsort(run, g));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    SPW_TRY(spw_experts_backward(run, &g->experts));
    SPW_TRY(dispatch_gradient(run, g));
cleanup:
    return status;
}
