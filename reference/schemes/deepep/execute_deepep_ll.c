/* DeepEP's low-latency kernels, executed (docs/schemes.md, section 4.5): one message a choice, into slots fixed in advance;
 * what comes back is weighed and summed where the token came from. */
#include "reference/schemes/deepep/fused_experts.h"
#include "reference/schemes/execute_list.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 128, SOURCE_BYTES = 16 };

typedef struct low_latency {
    spw_fused_experts experts;
    bool fp8;
    size_t slots, blocks; /* slots: of one expert; blocks: scales of a row */
    size_t rows[SPW_EXECUTION_RANKS], assignments[SPW_EXECUTION_RANKS];
    int32_t *origin[SPW_EXECUTION_RANKS]; /* [rows] choice of its source that stands in each slot in use */
    int32_t *source[SPW_EXECUTION_RANKS]; /* [rows] and the rank it came from */
    spw_spread received_source, returned, d_returned;
} low_latency;

static spw_status create(spw_execution *run, low_latency *g) {
    const size_t ranks = run->shape.ranks;
    const size_t given = (size_t)spw_execution_number(&run->shape, "max_tokens", 0.0),
                 most = given > 0 ? given : run->tokens;
    spw_status status = SPW_OK;
    if (most < run->tokens)
        return spw_fail(SPW_EARG, "%zu tokens a rank exceed the %zu of the buffers", run->tokens, most);
    g->fp8 = strcmp(spw_execution_word(&run->shape, "dtype", "fp8"), "fp8") == 0;
    g->slots = ranks * most;
    g->blocks = (run->shape.hidden + BLOCK - 1) / BLOCK;
    SPW_TRY(spw_fused_create(run, g->rows, &g->experts));
    for (size_t r = 0; r < ranks; r++) {
        g->rows[r] = run->local * g->slots;
        g->assignments[r] = run->assignments;
        SPW_TRY(SPW_SCRATCH(run, g->rows[r], &g->origin[r]));
        SPW_TRY(SPW_SCRATCH(run, g->rows[r], &g->source[r]));
    }
cleanup:
    return status;
}

/* A row to every expert that was chosen, by token and choice: row `i / share` of `rows` for choice i. */
static spw_status send(spw_execution *run, low_latency *g, size_t r, const float *rows, size_t share) {
    const size_t hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < run->assignments; i++) {
        const int32_t x = spw_rank_expert(run, r)[i], at[2] = {(int32_t)i, x};
        const float *row = rows + i / share * hidden;
        if (x < 0) continue;
        const size_t d = (size_t)x / run->local;
        SPW_TRY(spw_fabric_send(run->fabric, r, d, at, 1, sizeof at, SOURCE_BYTES));
        SPW_TRY(spw_fabric_send(run->fabric, r, d, row, hidden, sizeof *row,
                                g->fp8 ? 1 : run->shape.element_bytes));
        for (size_t s = 0; g->fp8 && s < g->blocks; s++) { /* the row itself is not rounded */
            float most = 0.0f;
            for (size_t h = s * BLOCK; h < hidden && h < (s + 1) * BLOCK; h++)
                most = fmaxf(most, fabsf(row[h]));
            most /= 448.0f;
            SPW_TRY(spw_fabric_send(run->fabric, r, d, &most, 1, sizeof most, 4));
        }
    }
cleanup:
    return status;
}

/* Into the next free slot of the expert, source by source. */
static spw_status receive(spw_execution *run, low_latency *g, size_t d, spw_spread *to, spw_spread *scales) {
    const size_t hidden = run->shape.hidden;
    size_t *count = g->experts.count + d * run->local, *begin = g->experts.begin + d * run->local;
    spw_status status = SPW_OK;
    for (size_t x = 0; x < run->local; x++) begin[x] = x * g->slots, count[x] = 0;
    for (size_t s = 0; s < run->shape.ranks; s++) {
        while (spw_fabric_waiting(run->fabric, d, s) > 0) {
            int32_t at[2];
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, at, 1, sizeof at));
            const size_t x = (size_t)at[1] - d * run->local, row = begin[x] + count[x]++;
            SPW_TRY(spw_receive_rows(run, d, s, to->at[d] + row * hidden, 1, hidden));
            if (g->fp8)
                SPW_TRY(spw_fabric_receive(run->fabric, d, s, scales->at[d] + row * g->blocks, g->blocks,
                                           sizeof(float)));
            g->origin[d][row] = at[0];
            g->source[d][row] = (int32_t)s;
        }
    }
cleanup:
    return status;
}

/* Every row back to where it came from: to [ranks][assignments][hidden]. */
static spw_status send_back(spw_execution *run, low_latency *g, const spw_spread *rows, float *const *to) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    int32_t *order = NULL; /* which choice the next row of a pair is: the address that the kernel writes to */
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(run->assignments, &order));
    for (size_t d = 0; d < ranks; d++) {
        for (size_t s = 0; s < ranks; s++) {
            size_t count = 0;
            for (size_t i = 0; i < run->local * g->slots; i++) {
                const size_t x = i / g->slots, group = d * run->local + x;
                if (i - g->experts.begin[group] >= g->experts.count[group] || g->source[d][i] != (int32_t)s)
                    continue;
                SPW_TRY(spw_send_rows(run, d, s, rows->at[d] + i * hidden, 1, hidden));
                order[count++] = g->origin[d][i];
            }
            for (size_t i = 0; i < count; i++)
                SPW_TRY(spw_receive_rows(run, s, d, to[s] + (size_t)order[i] * hidden, 1, hidden));
        }
    }
cleanup:
    spw_free(order);
    return status;
}

static spw_status dispatch(spw_execution *run, void *state, const char *exchange) {
    low_latency *g = state;
    const size_t ranks = run->shape.ranks;
    spw_fused_experts *e = &g->experts;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_fused_born(run, e, &e->x, "x", run->shape.hidden, g->fp8 ? 1 : 0));
    SPW_TRY(spw_fused_born(run, e, &g->received_source, "received_source", 1, 4));
    if (g->fp8) SPW_TRY(spw_fused_born(run, e, &e->x_scales, "x_scales", g->blocks, 4));
    for (size_t r = 0; r < ranks; r++) SPW_TRY(send(run, g, r, spw_rank_x(run, r), run->shape.top_k));
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(receive(run, g, r, &e->x, &e->x_scales));
        run->out.rows[r] = 0;
        for (size_t x = 0; x < run->local; x++) run->out.rows[r] += e->count[r * run->local + x];
    }
cleanup:
    return status;
}

/* out [ranks][tokens][hidden] = sum over the choices of weight * row; weighted false: weights 1. */
static void sum_choices(spw_execution *run, float *const *rows, bool weighted, float *out) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < run->shape.ranks * run->tokens; t++) {
        const size_t r = t / run->tokens, first = t % run->tokens * top_k;
        for (size_t h = 0; h < hidden; h++) {
            double sum = 0.0;
            for (size_t i = first; i < first + top_k; i++) {
                if (spw_rank_expert(run, r)[i] < 0) continue;
                sum +=
                    (weighted ? (double)spw_rank_weight(run, r)[i] : 1.0) * (double)rows[r][i * hidden + h];
            }
            out[t * hidden + h] = (float)sum;
        }
    }
}

/* The forward pass sums the rows out of the receive buffer, which is no tensor; the recomputed ones are kept. */
static spw_status combine(spw_execution *run, void *state, const char *exchange) {
    low_latency *g = state;
    const bool keep = run->pass == SPW_PASS_RECOMPUTE;
    float *buffer[SPW_EXECUTION_RANKS] = {NULL};
    spw_status status = SPW_OK;
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    if (keep) SPW_TRY(spw_born_at(run, &g->returned, "returned", g->assignments, run->shape.hidden, 0));
    for (size_t r = 0; r < run->shape.ranks && !keep; r++)
        SPW_TRY(SPW_ALLOC(run->assignments * run->shape.hidden, &buffer[r]));
    SPW_TRY(send_back(run, g, &g->experts.y, keep ? g->returned.at : buffer));
    sum_choices(run, keep ? g->returned.at : buffer, true, run->out.y);
    spw_dies(run, &g->experts.y);
    if (!keep) spw_dies(run, &g->received_source);
cleanup:
    for (size_t r = 0; r < run->shape.ranks; r++) spw_free(buffer[r]);
    return status;
}

/* Of every choice: the gradient of its weight, and dy times the weight. */
static void weigh(spw_execution *run, low_latency *g, size_t r) {
    const size_t hidden = run->shape.hidden;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < run->assignments; i++) {
        const float *dy = spw_rank_dy(run, r) + i / run->shape.top_k * hidden;
        double sum = 0.0;
        for (size_t h = 0; h < hidden && spw_rank_expert(run, r)[i] >= 0; h++) {
            sum += (double)dy[h] * (double)g->returned.at[r][i * hidden + h];
            g->d_returned.at[r][i * hidden + h] = (float)((double)spw_rank_weight(run, r)[i] * (double)dy[h]);
        }
        run->out.d_weight[r * run->assignments + i] = (float)sum;
    }
}

static spw_status combine_gradient(spw_execution *run, void *state) {
    low_latency *g = state;
    const size_t ranks = run->shape.ranks;
    spw_fused_experts *e = &g->experts;
    spw_status status = SPW_OK;
    spw_step(run, "weighted dy");
    SPW_TRY(spw_born_at(run, &g->d_returned, "d_returned", g->assignments, run->shape.hidden, 0));
    for (size_t r = 0; r < ranks; r++) weigh(run, g, r);
    spw_dies(run, &g->returned);
    spw_step(run, "combine gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_fused_born(run, e, &e->dy, "dy", run->shape.hidden, g->fp8 ? 1 : 0));
    if (g->fp8) SPW_TRY(spw_fused_born(run, e, &e->dy_scales, "dy_scales", g->blocks, 4));
    for (size_t r = 0; r < ranks; r++) SPW_TRY(send(run, g, r, g->d_returned.at[r], 1));
    for (size_t r = 0; r < ranks; r++) SPW_TRY(receive(run, g, r, &e->dy, &e->dy_scales));
    spw_dies(run, &g->d_returned);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, void *state) {
    low_latency *g = state;
    float *buffer[SPW_EXECUTION_RANKS] = {NULL};
    spw_status status = SPW_OK;
    spw_step(run, "dispatch gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    for (size_t r = 0; r < run->shape.ranks; r++)
        SPW_TRY(SPW_ALLOC(run->assignments * run->shape.hidden, &buffer[r]));
    SPW_TRY(send_back(run, g, &g->experts.dx, buffer));
    sum_choices(run, buffer, false, run->out.dx);
    spw_dies(run, &g->experts.dx), spw_dies(run, &g->received_source);
cleanup:
    for (size_t r = 0; r < run->shape.ranks; r++) spw_free(buffer[r]);
    return status;
}

static const spw_scheme_passes layer = {dispatch, combine, combine_gradient, dispatch_gradient};

spw_status spw_execute_deepep_ll(spw_execution *run) {
    low_latency *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    status = spw_run_passes(run, &layer, g, &spw_fused_passes, &g->experts);
cleanup:
    return status;
}
