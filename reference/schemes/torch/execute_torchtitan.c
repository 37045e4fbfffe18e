/* torchtitan's MoE behind its all-to-all token dispatcher (docs/schemes.md, section 6.5): dispatch and combine of
 * AllToAllTokenDispatcher around GroupedExperts. Products of rows and scores are one rounding, as in the plain layer: the
 * fp32 tensors between are there, and hold what they would but for that. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/routed.h"
#include "reference/schemes/torch/autograd_glu.h"

#include <string.h>

typedef struct torchtitan {
    spw_routed routed;
    spw_autograd_glu glu;
    size_t tokens[SPW_EXECUTION_RANKS];
    spw_spread choice_order, scores_sorted, token_index, sent, pieces, received, segment_ids, row_index;
    spw_spread y_received, returned, zeros, returned_fp32, weighted_fp32, weighted, output;
    spw_spread d_weighted, d_weighted_fp32, d_returned_fp32, score_products, d_scores, d_returned,
        dy_received;
    spw_spread dx_received, dx_returned, dx, d_top_scores;
} torchtitan;

/* Pieces of the sources, then one tensor of them. */
static spw_status born_of_pieces(spw_execution *run, torchtitan *m, const char *pieces, spw_spread *whole,
                                 const char *name, const size_t *rows) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_born_at(run, &m->pieces, pieces, rows, run->shape.hidden, 0));
    SPW_TRY(spw_born_at(run, whole, name, rows, run->shape.hidden, 0));
    spw_dies(run, &m->pieces);
cleanup:
    return status;
}

static spw_status dispatch(spw_execution *run, void *state, const char *exchange) {
    torchtitan *m = state;
    const size_t hidden = run->shape.hidden, *sent = m->routed.sent, *received = m->routed.received;
    const bool forward = run->pass == SPW_PASS_FORWARD;
    spw_status status = SPW_OK;
    spw_step(run, "sort");
    SPW_TRY(spw_born_at(run, &m->choice_order, "choice_order", sent, 1, 8));
    SPW_TRY(spw_born_at(run, &m->scores_sorted, "scores_sorted", sent, 1, 4));
    SPW_TRY(spw_born_at(run, &m->token_index, "token_index", sent, 1, 8));
    if (forward) spw_dies(run, &m->choice_order);
    spw_step(run, "gather");
    SPW_TRY(spw_born_at(run, &m->sent, "sent", sent, hidden, 0));
    spw_routed_gather(run, &m->routed, run->in.x, false, &m->sent);
    spw_step(run, "all-to-all");
    SPW_TRY(born_of_pieces(run, m, "received_pieces", &m->received, "received", received));
    SPW_TRY(spw_routed_send(run, &m->routed, exchange, &m->sent, &m->received));
    spw_step(run, "permute");
    SPW_TRY(spw_born_at(run, &m->segment_ids, "segment_ids", received, 1, 8));
    SPW_TRY(spw_born_at(run, &m->row_index, "row_index", received, 1, 8));
    SPW_TRY(spw_experts_born(run, &m->glu.experts, &m->glu.experts.x, "x", hidden));
    spw_routed_to_experts(run, &m->routed, &m->received, &m->glu.experts.x);
    spw_dies(run, &m->segment_ids), spw_dies(run, &m->received);
    spw_step(run, "return");
    spw_dies(run, &m->sent);
cleanup:
    return status;
}

static void copy_sent(const spw_execution *run, const torchtitan *m, const spw_spread *from, spw_spread *to) {
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(to->at[r], from->at[r], m->routed.sent[r] * run->shape.hidden * sizeof(float));
}

static spw_status combine(spw_execution *run, void *state, const char *exchange) {
    torchtitan *m = state;
    const size_t hidden = run->shape.hidden, *sent = m->routed.sent;
    const bool forward = run->pass == SPW_PASS_FORWARD;
    spw_status status = SPW_OK;
    spw_step(run, "unpermute");
    SPW_TRY(spw_born_at(run, &m->y_received, "y_received_order", m->routed.received, hidden, 0));
    spw_routed_from_experts(run, &m->routed, &m->glu.experts.y, &m->y_received);
    spw_step(run, "all-to-all back");
    SPW_TRY(born_of_pieces(run, m, "returned_pieces", &m->returned, "returned", sent));
    SPW_TRY(spw_routed_return(run, &m->routed, exchange, &m->y_received, &m->returned));
    spw_dies(run, &m->y_received);
    spw_step(run, "weight");
    SPW_TRY(spw_born(run, &m->zeros, "zeros", run->tokens, hidden));
    SPW_TRY(spw_born_at(run, &m->returned_fp32, "returned_fp32", sent, hidden, 4));
    copy_sent(run, m, &m->returned, &m->returned_fp32);
    SPW_TRY(spw_born_at(run, &m->weighted_fp32, "weighted_fp32", sent, hidden, 4));
    if (forward) spw_dies(run, &m->returned_fp32);
    SPW_TRY(spw_born_at(run, &m->weighted, "weighted", sent, hidden, 0));
    spw_routed_sum(run, &m->routed, &m->returned, true, run->out.y);
    spw_dies(run, &m->weighted_fp32), spw_dies(run, &m->returned);
    spw_step(run, "scatter add");
    SPW_TRY(spw_born(run, &m->output, "output", run->tokens, hidden));
    spw_dies(run, &m->zeros);
    spw_step(run, "return of combine");
    spw_dies(run, &m->weighted);
    spw_step(run, "layer end");
    spw_dies(run, &m->glu.experts.y);
    if (forward) {
        spw_dies(run, &m->glu.experts.x), spw_dies(run, &m->row_index);
        spw_dies(run, &m->token_index), spw_dies(run, &m->scores_sorted);
    }
    spw_dies(run, &m->output);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, void *state) {
    torchtitan *m = state;
    const size_t hidden = run->shape.hidden, *sent = m->routed.sent;
    spw_status status = SPW_OK;
    spw_step(run, "scatter add gradient");
    SPW_TRY(spw_born_at(run, &m->d_weighted, "d_weighted", sent, hidden, 0));
    spw_routed_gather(run, &m->routed, run->in.dy, false, &m->d_weighted);
    spw_step(run, "weight gradient");
    SPW_TRY(spw_born_at(run, &m->d_weighted_fp32, "d_weighted_fp32", sent, hidden, 4));
    spw_dies(run, &m->d_weighted);
    SPW_TRY(spw_born_at(run, &m->d_returned_fp32, "d_returned_fp32", sent, hidden, 4));
    spw_routed_gather(run, &m->routed, run->in.dy, true, &m->d_returned_fp32);
    SPW_TRY(spw_born_at(run, &m->score_products, "score_products", sent, hidden, 4));
    SPW_TRY(spw_born_at(run, &m->d_scores, "d_scores", sent, 1, 4));
    spw_routed_weight_gradient(run, &m->routed, &m->returned_fp32);
    spw_dies(run, &m->score_products), spw_dies(run, &m->returned_fp32);
    spw_dies(run, &m->scores_sorted), spw_dies(run, &m->d_weighted_fp32);
    SPW_TRY(spw_born_at(run, &m->d_returned, "d_returned", sent, hidden, 0));
    copy_sent(run, m, &m->d_returned_fp32, &m->d_returned);
    spw_dies(run, &m->d_returned_fp32);
    spw_step(run, "all-to-all back gradient");
    SPW_TRY(born_of_pieces(run, m, "dy_pieces", &m->dy_received, "dy_received", m->routed.received));
    SPW_TRY(spw_routed_send(run, &m->routed, "combine gradient", &m->d_returned, &m->dy_received));
    spw_dies(run, &m->d_returned);
    spw_step(run, "unpermute gradient");
    SPW_TRY(spw_experts_born(run, &m->glu.experts, &m->glu.experts.dy, "dy", hidden));
    spw_routed_to_experts(run, &m->routed, &m->dy_received, &m->glu.experts.dy);
    spw_dies(run, &m->dy_received);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, void *state) {
    torchtitan *m = state;
    const size_t hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "permute gradient");
    SPW_TRY(spw_born_at(run, &m->dx_received, "dx_received_order", m->routed.received, hidden, 0));
    spw_routed_from_experts(run, &m->routed, &m->glu.experts.dx1, &m->dx_received);
    spw_dies(run, &m->glu.experts.dx1), spw_dies(run, &m->row_index);
    spw_step(run, "all-to-all gradient");
    SPW_TRY(born_of_pieces(run, m, "dx_pieces", &m->dx_returned, "dx_returned", m->routed.sent));
    SPW_TRY(spw_routed_return(run, &m->routed, "dispatch gradient", &m->dx_received, &m->dx_returned));
    spw_dies(run, &m->dx_received);
    spw_step(run, "gather gradient");
    SPW_TRY(spw_born(run, &m->dx, "dx", run->tokens, hidden));
    spw_routed_sum(run, &m->routed, &m->dx_returned, false, run->out.dx);
    spw_dies(run, &m->dx_returned), spw_dies(run, &m->token_index);
    spw_step(run, "sort gradient");
    SPW_TRY(spw_born_at(run, &m->d_top_scores, "d_top_scores", m->tokens, run->shape.top_k, 4));
    spw_dies(run, &m->d_scores), spw_dies(run, &m->choice_order);
    spw_step(run, "layer end");
    spw_dies(run, &m->dx), spw_dies(run, &m->d_top_scores);
cleanup:
    return status;
}

static const spw_scheme_passes layer = {dispatch, combine, combine_gradient, dispatch_gradient};

spw_status spw_execute_torchtitan(spw_execution *run) {
    torchtitan *m = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &m);
    if (status != SPW_OK) return status;
    SPW_TRY(spw_routed_by_choice(run, 1, &m->routed, &m->glu.experts));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        m->tokens[r] = run->tokens;
        SPW_TRY(SPW_SCRATCH(run, m->routed.held[r] * run->shape.ffn + 1, &m->glu.gate[r]));
    }
    status = spw_run_passes(run, &layer, m, &spw_glu_up_last, &m->glu);
cleanup:
    return status;
}
