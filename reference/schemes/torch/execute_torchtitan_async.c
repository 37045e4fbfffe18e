/* torchtitan's MoE with minimal async EP (docs/schemes.md, section 6.6): every choice is copied to its place in the receiver's
 * symmetric buffer and back to its place at the source. The buffers are no pass's; the two that PyTorch uses in turn are as
 * many as are in use here. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/routed.h"
#include "reference/schemes/torch/autograd_glu.h"

typedef struct async {
    spw_routed routed;
    spw_autograd_glu glu;
    size_t worst, tokens[SPW_EXECUTION_RANKS], capacity[SPW_EXECUTION_RANKS];
    spw_spread arrived, sent, returned; /* in buffers, or within a kernel */
    spw_spread row_slot, row_token, dispatch_ranks, dispatch_rows, combine_ranks, combine_rows, slot_row;
    spw_spread output, d_returned, d_scores, dx;
} async;

/* A tensor that lies in a buffer: it counts no bytes. */
static spw_status in_buffer(spw_execution *run, const async *m, spw_spread *tensor, const char *name) {
    return spw_born_sparse(run, tensor, name, 0, run->shape.hidden, m->worst * run->shape.hidden);
}

static spw_status scratch(spw_execution *run, spw_spread *tensor, const size_t *rows) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks; r++)
        SPW_TRY(SPW_SCRATCH(run, rows[r] * run->shape.hidden, &tensor->at[r]));
cleanup:
    return status;
}

static spw_status dispatch(spw_execution *run, void *state, const char *exchange) {
    async *m = state;
    const size_t *sent = m->routed.sent;
    spw_status status = SPW_OK;
    spw_step(run, "sort");
    SPW_TRY(spw_born_at(run, &m->row_slot, "row_slot", sent, 1, 8));
    SPW_TRY(spw_born_at(run, &m->row_token, "row_token", sent, 1, 8));
    spw_step(run, "metadata");
    SPW_TRY(spw_born_at(run, &m->dispatch_ranks, "dispatch_ranks", sent, 1, 8));
    SPW_TRY(spw_born_at(run, &m->dispatch_rows, "dispatch_rows", sent, 1, 8));
    SPW_TRY(spw_born_at(run, &m->combine_ranks, "combine_ranks", m->capacity, 1, 8));
    SPW_TRY(spw_born_at(run, &m->combine_rows, "combine_rows", m->capacity, 1, 8));
    SPW_TRY(spw_born_at(run, &m->slot_row, "slot_row", sent, 1, 8));
    spw_step(run, "copy to peers");
    spw_routed_gather(run, &m->routed, run->in.x, false, &m->sent);
    SPW_TRY(spw_routed_send(run, &m->routed, exchange, &m->sent, &m->arrived));
    SPW_TRY(in_buffer(run, m, &m->glu.experts.x, "x"));
    spw_routed_to_experts(run, &m->routed, &m->arrived, &m->glu.experts.x);
    spw_dies(run, &m->row_token);
cleanup:
    return status;
}

static spw_status combine(spw_execution *run, void *state, const char *exchange) {
    async *m = state;
    spw_status status = SPW_OK;
    spw_step(run, "copy to origins");
    spw_routed_from_experts(run, &m->routed, &m->glu.experts.y, &m->arrived);
    SPW_TRY(spw_routed_return(run, &m->routed, exchange, &m->arrived, &m->returned));
    SPW_TRY(spw_born_at(run, &m->output, "output", m->tokens, run->shape.hidden, 0));
    spw_routed_sum(run, &m->routed, &m->returned, true, run->out.y);
    spw_step(run, "layer end");
    spw_dies(run, &m->glu.experts.y);
    if (run->pass == SPW_PASS_FORWARD) {
        spw_dies(run, &m->glu.experts.x), spw_dies(run, &m->combine_ranks), spw_dies(run, &m->combine_rows);
        spw_dies(run, &m->slot_row), spw_dies(run, &m->dispatch_ranks), spw_dies(run, &m->dispatch_rows);
        spw_dies(run, &m->row_slot);
    }
    spw_dies(run, &m->output);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, void *state) {
    async *m = state;
    const size_t *sent = m->routed.sent;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_born_at(run, &m->d_returned, "d_returned", sent, run->shape.hidden, 0));
    spw_routed_gather(run, &m->routed, run->in.dy, true, &m->d_returned);
    SPW_TRY(spw_born_at(run, &m->d_scores, "d_scores", sent, 1, 4));
    spw_routed_weight_gradient(run, &m->routed, &m->returned);
    SPW_TRY(spw_routed_send(run, &m->routed, "combine gradient", &m->d_returned, &m->arrived));
    SPW_TRY(in_buffer(run, m, &m->glu.experts.dy, "dy"));
    spw_routed_to_experts(run, &m->routed, &m->arrived, &m->glu.experts.dy);
    spw_dies(run, &m->d_returned), spw_dies(run, &m->dispatch_ranks), spw_dies(run, &m->dispatch_rows);
    spw_dies(run, &m->row_slot);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, void *state) {
    async *m = state;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch gradient");
    spw_routed_from_experts(run, &m->routed, &m->glu.experts.dx1, &m->arrived);
    SPW_TRY(spw_routed_return(run, &m->routed, "dispatch gradient", &m->arrived, &m->returned));
    SPW_TRY(spw_born_at(run, &m->dx, "dx", m->tokens, run->shape.hidden, 0));
    spw_routed_sum(run, &m->routed, &m->returned, false, run->out.dx);
    spw_dies(run, &m->glu.experts.dx1), spw_dies(run, &m->combine_ranks);
    spw_dies(run, &m->combine_rows), spw_dies(run, &m->slot_row);
    spw_step(run, "layer end");
    spw_dies(run, &m->dx), spw_dies(run, &m->d_scores);
cleanup:
    return status;
}

static spw_status create(spw_execution *run, async *m) {
    const size_t top_k = run->shape.top_k, each = run->local < top_k ? run->local : top_k;
    spw_status status = SPW_OK;
    SPW_TRY(spw_routed_by_choice(run, 1, &m->routed, &m->glu.experts));
    m->worst = run->shape.ranks * run->tokens * each;
    m->glu.experts.rows = m->worst, m->glu.experts.rows_at = NULL;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        m->tokens[r] = run->tokens, m->capacity[r] = m->worst;
        SPW_TRY(SPW_SCRATCH(run, m->worst * run->shape.ffn, &m->glu.gate[r]));
    }
    SPW_TRY(scratch(run, &m->arrived, m->routed.received));
    SPW_TRY(scratch(run, &m->sent, m->routed.sent));
    SPW_TRY(scratch(run, &m->returned, m->routed.sent));
cleanup:
    return status;
}

static const spw_scheme_passes layer = {dispatch, combine, combine_gradient, dispatch_gradient};

spw_status spw_execute_torchtitan_async(spw_execution *run) {
    async *m = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &m);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, m));
    status = spw_run_passes(run, &layer, m, &spw_glu_up_last, &m->glu);
cleanup:
    return status;
}
