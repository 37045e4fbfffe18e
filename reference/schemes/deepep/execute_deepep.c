/* DeepEP with exact receive counts, and the PyTorch layer around it (docs/schemes.md, sections 4.1 to 4.4). What a rank
 * allocates follows from what it receives. */
#include "reference/schemes/deepep/deepep_ranks.h"
#include "reference/schemes/deepep/fused_experts.h"
#include "reference/schemes/execute_list.h"

enum { INDEX_BYTES = 8, SCALE_BLOCK = 128 }; /* topk_idx is int64 */

typedef struct deepep {
    spw_deepep moved;
    spw_fused_experts experts;
    bool fp8;
    size_t pad, blocks; /* blocks: scales of a row */
    size_t held[SPW_EXECUTION_RANKS], tokens[SPW_EXECUTION_RANKS];
    int32_t *row[SPW_EXECUTION_RANKS]; /* [held] received row of each row of x; -1: padding */
    int32_t
        *place[SPW_EXECUTION_RANKS]; /* [ranks * tokens][top_k] row of x of each choice, -1: another rank's */
    spw_spread in_rank, received, source, send_head, index, weight, slot, row_weight, summed, d_summed,
        d_row_weight, d_received, d_weight, scales, d_scales;
} deepep;

static spw_status create(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, choices = ranks * run->assignments;
    spw_status status = SPW_OK;
    g->fp8 = spw_execution_is(&run->shape, "dtype", "fp8");
    g->pad = (size_t)spw_execution_number(&run->shape, "pad", 1.0);
    g->blocks = (run->shape.hidden + SCALE_BLOCK - 1) / SCALE_BLOCK;
    SPW_TRY(spw_deepep_create(run, INDEX_BYTES, &g->moved));
    SPW_TRY(spw_fused_create(run, g->held, &g->experts));
    for (size_t r = 0; r < ranks; r++) {
        g->tokens[r] = run->tokens;
        SPW_TRY(SPW_SCRATCH(run, choices, &g->place[r]));
        SPW_TRY(SPW_SCRATCH(run, choices + run->local * g->pad, &g->row[r]));
    }
cleanup:
    return status;
}

/* A tensor of the received rows. */
static spw_status received_born(spw_execution *run, deepep *g, spw_spread *tensor, const char *name,
                                size_t width, size_t element_bytes) {
    return spw_born_at(run, tensor, name, g->moved.rows, width, element_bytes);
}

/* Where the received choices of own experts go: expert by expert, of each by received row; padding behind. */
static void place_rows(spw_execution *run, deepep *g, size_t d) {
    const spw_deepep_rank *m = &g->moved.rank[d];
    const size_t top_k = run->shape.top_k, slots = m->received * top_k;
    size_t next = 0;
    for (size_t i = 0; i < slots; i++) g->place[d][i] = -1;
    for (size_t x = 0; x < run->local; x++) {
        const size_t at = d * run->local + x;
        g->experts.begin[at] = next;
        for (size_t i = 0; i < slots; i++) {
            if (m->expert[i] < 0 || (size_t)m->expert[i] != at) continue;
            g->place[d][i] = (int32_t)next;
            g->row[d][next++] = (int32_t)(i / top_k);
        }
        g->experts.count[at] = next - g->experts.begin[at];
        for (; next % g->pad != 0; next++) g->row[d][next] = -1;
    }
    g->held[d] = run->out.rows[d] = next;
}

static spw_status dispatch(spw_execution *run, deepep *g, const char *exchange) {
    const spw_deepep_message message = {.fp8 = g->fp8, .choices = true};
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k, narrow = g->fp8 ? 1 : 0;
    spw_status status = SPW_OK;
    spw_step(run, "layout");
    SPW_TRY(spw_born_at(run, &g->in_rank, "is_token_in_rank", g->tokens, run->shape.ranks, 1));
    spw_step(run, "dispatch");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_deepep_send(run, &g->moved, message, spw_rank_x));
    spw_deepep_arrive(run, &g->moved, message);
    SPW_TRY(received_born(run, g, &g->received, "received", hidden, narrow));
    SPW_TRY(received_born(run, g, &g->source, "received_source", 1, 4));
    SPW_TRY(spw_born_at(run, &g->send_head, "send_head", g->tokens, run->shape.ranks, 4));
    SPW_TRY(received_born(run, g, &g->index, "received_index", top_k, INDEX_BYTES));
    SPW_TRY(received_born(run, g, &g->weight, "received_weight", top_k, 4));
    if (g->fp8) SPW_TRY(received_born(run, g, &g->scales, "received_scales", g->blocks, 4));
    SPW_TRY(spw_deepep_receive(run, &g->moved, message, &g->received, g->fp8 ? &g->scales : NULL));
cleanup:
    return status;
}

static spw_status permute(spw_execution *run, deepep *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "permute");
    for (size_t r = 0; r < ranks; r++) place_rows(run, g, r);
    SPW_TRY(spw_fused_born(run, &g->experts, &g->slot, "row_slot", 1, 8));
    SPW_TRY(spw_fused_born(run, &g->experts, &g->row_weight, "row_weight", 1, 4));
    SPW_TRY(spw_fused_born(run, &g->experts, &g->experts.x, "x", hidden, g->fp8 ? 1 : 0));
    if (g->fp8) SPW_TRY(spw_fused_born(run, &g->experts, &g->experts.x_scales, "x_scales", g->blocks, 4));
    for (size_t r = 0; r < ranks; r++) {
        spw_gather_rows(g->received.at[r], g->row[r], g->held[r], hidden, g->experts.x.at[r]);
        if (g->fp8)
            spw_gather_rows(g->scales.at[r], g->row[r], g->held[r], g->blocks, g->experts.x_scales.at[r]);
    }
    spw_dies(run, &g->received), spw_dies(run, &g->scales);
cleanup:
    return status;
}

static spw_status to_experts(spw_execution *run, void *state, const char *exchange) {
    const spw_status status = dispatch(run, state, exchange);
    return status == SPW_OK ? permute(run, state) : status;
}

static spw_status combine(spw_execution *run, void *state, const char *exchange) {
    deepep *g = state;
    const bool keep = run->pass == SPW_PASS_RECOMPUTE;
    spw_status status = SPW_OK;
    spw_step(run, "unpermute");
    SPW_TRY(received_born(run, g, &g->summed, "summed", run->shape.hidden, 0));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_sum_rows(g->moved.rank[r].received, run->shape.top_k, run->shape.hidden, g->place[r],
                     g->moved.rank[r].weight, g->experts.y.at[r], g->summed.at[r]);
    }
    if (!keep) spw_dies(run, &g->experts.y), spw_dies(run, &g->slot), spw_dies(run, &g->row_weight);
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_deepep_return(run, &g->moved, &g->summed, false, run->out.y));
    spw_dies(run, &g->summed), spw_dies(run, &g->index), spw_dies(run, &g->weight);
    if (!keep) spw_dies(run, &g->source), spw_dies(run, &g->send_head), spw_dies(run, &g->in_rank);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, void *state) {
    deepep *g = state;
    const spw_deepep_message message = {.fp8 = g->fp8, .choices = false};
    const size_t hidden = run->shape.hidden, narrow = g->fp8 ? 1 : 0;
    spw_fused_experts *e = &g->experts;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(received_born(run, g, &g->d_summed, "d_summed", hidden, narrow));
    if (g->fp8) SPW_TRY(received_born(run, g, &g->d_scales, "d_summed_scales", g->blocks, 4));
    SPW_TRY(spw_deepep_send(run, &g->moved, message, spw_rank_dy));
    SPW_TRY(spw_deepep_receive(run, &g->moved, message, &g->d_summed, g->fp8 ? &g->d_scales : NULL));
    spw_step(run, "unpermute gradient");
    SPW_TRY(spw_fused_born(run, e, &e->dy, "dy", hidden, narrow));
    if (g->fp8) SPW_TRY(spw_fused_born(run, e, &e->dy_scales, "dy_scales", g->blocks, 4));
    SPW_TRY(spw_fused_born(run, e, &g->d_row_weight, "d_row_weight", 1, 4));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_deepep_rank *m = &g->moved.rank[r];
        spw_sum_rows_gradient(&(spw_row_table){m->received, run->shape.top_k, hidden, g->place[r], m->weight},
                              e->y.at[r], g->d_summed.at[r], e->dy.at[r], m->d_weight);
    }
    spw_dies(run, &g->d_summed), spw_dies(run, &g->d_scales), spw_dies(run, &e->y);
    spw_dies(run, &g->row_weight);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, void *state) {
    deepep *g = state;
    spw_status status = SPW_OK;
    spw_step(run, "permute gradient");
    SPW_TRY(received_born(run, g, &g->d_received, "d_received", run->shape.hidden, 0));
    SPW_TRY(received_born(run, g, &g->d_weight, "d_received_weight", run->shape.top_k, 4));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_sum_rows(g->moved.rank[r].received, run->shape.top_k, run->shape.hidden, g->place[r], NULL,
                     g->experts.dx.at[r], g->d_received.at[r]);
    }
    spw_dies(run, &g->experts.dx), spw_dies(run, &g->d_row_weight), spw_dies(run, &g->slot);
    spw_step(run, "dispatch gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(spw_deepep_return(run, &g->moved, &g->d_received, true, run->out.dx));
    spw_dies(run, &g->d_received), spw_dies(run, &g->d_weight), spw_dies(run, &g->source);
    spw_dies(run, &g->send_head), spw_dies(run, &g->in_rank);
cleanup:
    return status;
}

static const spw_scheme_passes layer = {to_experts, combine, combine_gradient, dispatch_gradient};

spw_status spw_execute_deepep(spw_execution *run) {
    deepep *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    status = spw_run_passes(run, &layer, g, &spw_fused_passes, &g->experts);
cleanup:
    return status;
}
