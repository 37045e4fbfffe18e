/* MegaBlocks with expert parallelism (docs/schemes.md, section 6.1): parallel_forward_once with its three experts. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/routed.h"
#include "reference/schemes/torch/autograd_glu.h"

enum { BLOCK_ROWS = 128 };

typedef struct megablocks {
    bool memory_optimized;
    spw_routed routed;
    spw_autograd_glu glu;
    spw_spread sent, received, y_received, returned, expanded, d_returned, dy_received, dx_received,
        dx_returned;
} megablocks;

static spw_status to_experts(spw_execution *run, megablocks *m, const char *exchange) {
    const size_t hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "gather");
    SPW_TRY(spw_born_at(run, &m->sent, "sent", m->routed.sent, hidden, 0));
    spw_routed_gather(run, &m->routed, run->in.x, false, &m->sent);
    spw_step(run, "all-to-all");
    SPW_TRY(spw_born_at(run, &m->received, "received", m->routed.received, hidden, 0));
    SPW_TRY(spw_routed_send(run, &m->routed, exchange, &m->sent, &m->received));
    spw_step(run, "local gather");
    SPW_TRY(spw_experts_born(run, &m->glu.experts, &m->glu.experts.x, "x", hidden));
    spw_routed_to_experts(run, &m->routed, &m->received, &m->glu.experts.x);
cleanup:
    return status;
}

/* The caller still names what it sent and what the experts returned. */
static spw_status from_experts(spw_execution *run, megablocks *m, const char *exchange) {
    const size_t hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "local scatter");
    SPW_TRY(spw_born_at(run, &m->y_received, "y_received_order", m->routed.received, hidden, 0));
    spw_routed_from_experts(run, &m->routed, &m->glu.experts.y, &m->y_received);
    spw_dies(run, &m->glu.experts.y), spw_dies(run, &m->received);
    spw_step(run, "all-to-all back");
    SPW_TRY(spw_born_at(run, &m->returned, "returned", m->routed.sent, hidden, 0));
    SPW_TRY(spw_routed_return(run, &m->routed, exchange, &m->y_received, &m->returned));
    spw_step(run, "scatter");
    SPW_TRY(
        spw_born(run, &m->expanded, "expanded", run->assignments, hidden)); /* in token order, then summed */
    spw_routed_sum(run, &m->routed, &m->returned, true, run->out.y);
    spw_dies(run, &m->expanded);
    spw_step(run, "return");
    spw_dies(run, &m->sent), spw_dies(run, &m->y_received);
cleanup:
    return status;
}

/* Up to y. What is not saved dies in the order in which Python lets go of it. */
static spw_status experts_forward(spw_execution *run, megablocks *m, bool save) {
    spw_experts *e = &m->glu.experts;
    const bool optimized = m->memory_optimized;
    spw_status status = SPW_OK;
    SPW_TRY(spw_glu_gates(run, &m->glu));
    if (!save || optimized) spw_dies(run, &m->glu.silu);
    if (!save && !optimized) spw_dies(run, &e->w0);
    SPW_TRY(spw_glu_output(run, &m->glu));
    if (!save && optimized) spw_dies(run, &e->w0);
    if (!save) spw_dies(run, &e->w1);
    if (!save || optimized) spw_dies(run, &e->act);
    if (!save) spw_dies(run, &e->x);
cleanup:
    return status;
}

/* One node of autograd: recomputes the activation, writes d_act over it and dx over dy. */
static spw_status optimized_backward(spw_execution *run, megablocks *m) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    spw_experts *e = &m->glu.experts;
    spw_status status = SPW_OK;
    spw_step(run, "activation again");
    SPW_TRY(spw_experts_born(run, e, &m->glu.silu, "silu", ffn));
    spw_glu_silu(run, e, &m->glu.silu);
    SPW_TRY(spw_experts_born(run, e, &e->act, "act", ffn));
    spw_experts_swiglu(run, e);
    spw_step(run, "product gradient");
    SPW_TRY(spw_experts_weight_gradient(run, e, 2, &e->act, &e->dy));
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &e->dy, &e->act));
    SPW_TRY(spw_experts_born(run, e, &m->glu.d_silu, "d_silu", ffn));
    SPW_TRY(spw_experts_born(run, e, &e->dw1, "d_w1_out", ffn));
    spw_dies(run, &m->glu.silu);
    spw_step(run, "silu gradient");
    SPW_TRY(spw_experts_born(run, e, &e->dw0, "d_w0_out", ffn));
    spw_glu_swiglu_gradient(run, e, &e->act, &e->dw0, &e->dw1);
    spw_dies(run, &m->glu.d_silu);
    spw_step(run, "input gradients");
    SPW_TRY(spw_experts_weight_gradient(run, e, 0, &e->x, &e->dw0));
    SPW_TRY(spw_experts_weight_gradient(run, e, 1, &e->x, &e->dw1));
    SPW_TRY(spw_experts_input_gradient(run, e, 0, &e->dw0, &e->dy));
    SPW_TRY(spw_experts_born(run, e, &e->dx1, "dx_w1", hidden));
    SPW_TRY(spw_experts_input_gradient(run, e, 1, &e->dw1, &e->dx1));
    spw_glu_add(run, e, hidden, &e->dx1, &e->dy);
    spw_dies(run, &e->dx1), spw_dies(run, &e->act);
    spw_dies(run, &e->dw0), spw_dies(run, &e->dw1);
    spw_dies(run, &e->w0), spw_dies(run, &e->w1), spw_dies(run, &e->x);
cleanup:
    return status;
}

static spw_status backward(spw_execution *run, megablocks *m) {
    const size_t hidden = run->shape.hidden;
    spw_experts *e = &m->glu.experts;
    spw_spread *dx = m->memory_optimized ? &e->dy : &e->dx1, expanded;
    spw_status status = SPW_OK;
    spw_step(run, "scatter gradient");
    SPW_TRY(spw_born_at(run, &m->d_returned, "d_returned", m->routed.sent, hidden, 0));
    spw_routed_gather(run, &m->routed, run->in.dy, true, &m->d_returned);
    spw_routed_weight_gradient(run, &m->routed, &m->returned);
    spw_dies(run, &m->returned);
    spw_step(run, "all-to-all back gradient");
    SPW_TRY(spw_born_at(run, &m->dy_received, "dy_received", m->routed.received, hidden, 0));
    SPW_TRY(spw_routed_send(run, &m->routed, "combine gradient", &m->d_returned, &m->dy_received));
    spw_dies(run, &m->d_returned);
    spw_step(run, "local scatter gradient");
    SPW_TRY(spw_experts_born(run, e, &e->dy, "dy", hidden));
    spw_routed_to_experts(run, &m->routed, &m->dy_received, &e->dy);
    spw_dies(run, &m->dy_received);
    if (m->memory_optimized) {
        SPW_TRY(optimized_backward(run, m));
    } else {
        SPW_TRY(spw_glu_backward(run, &m->glu));
    }
    spw_step(run, "local gather gradient");
    SPW_TRY(spw_born_at(run, &m->dx_received, "dx_received_order", m->routed.received, hidden, 0));
    spw_routed_from_experts(run, &m->routed, dx, &m->dx_received);
    spw_dies(run, dx);
    spw_step(run, "all-to-all gradient");
    SPW_TRY(spw_born_at(run, &m->dx_returned, "dx_returned", m->routed.sent, hidden, 0));
    SPW_TRY(spw_routed_return(run, &m->routed, "dispatch gradient", &m->dx_received, &m->dx_returned));
    spw_dies(run, &m->dx_received);
    spw_step(run, "gather gradient");
    SPW_TRY(spw_born(run, &expanded, "dx_expanded", run->assignments, hidden));
    spw_routed_sum(run, &m->routed, &m->dx_returned, false, run->out.dx);
    spw_dies(run, &expanded), spw_dies(run, &m->dx_returned);
cleanup:
    return status;
}

spw_status spw_execute_megablocks(spw_execution *run) {
    megablocks *m = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &m);
    if (status != SPW_OK) return status;
    m->memory_optimized = spw_execution_is(&run->shape, "impl", "memory_optimized");
    SPW_TRY(spw_routed_by_choice(run, spw_execution_is(&run->shape, "impl", "sparse") ? BLOCK_ROWS : 1,
                                 &m->routed, &m->glu.experts));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(to_experts(run, m, "dispatch"));
    SPW_TRY(experts_forward(run, m, false));
    SPW_TRY(from_experts(run, m, "combine"));
    spw_dies(run, &m->returned);
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(to_experts(run, m, "dispatch again"));
    SPW_TRY(experts_forward(run, m, true));
    SPW_TRY(from_experts(run, m, "combine again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(backward(run, m));
cleanup:
    return status;
}
