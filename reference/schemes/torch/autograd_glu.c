#include "reference/schemes/torch/autograd_glu.h"

#include "reference/swiglu.h"

#include <math.h>
#include <string.h>

static size_t rows_of(const spw_execution *run, const spw_experts *e, size_t rank) {
    return spw_experts_offset(run, e, rank)[run->local];
}

void spw_glu_silu(spw_execution *run, const spw_experts *e, spw_spread *silu) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < rows_of(run, e, r) * run->shape.ffn; i++) {
            const double gate = (double)e->w0.at[r][i];
            silu->at[r][i] = (float)(gate / (1.0 + exp(-gate)));
        }
    }
}

void spw_glu_swiglu_gradient(spw_execution *run, const spw_experts *e, const spw_spread *d_act,
                             spw_spread *d_gate, spw_spread *d_up) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_ref_swiglu_gradient(run->shape.activation, rows_of(run, e, r) * run->shape.ffn, e->w0.at[r],
                                e->w1.at[r], d_act->at[r],
                                (spw_swiglu_gradients){d_gate->at[r], d_up->at[r], NULL});
    }
}

void spw_glu_add(spw_execution *run, const spw_experts *e, size_t width, const spw_spread *from,
                 spw_spread *to) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < rows_of(run, e, r) * width; i++) to->at[r][i] += from->at[r][i];
    }
}

spw_status spw_glu_gates(spw_execution *run, spw_autograd_glu *g) {
    const size_t ffn = run->shape.ffn;
    spw_experts *e = &g->experts;
    spw_status status = SPW_OK;
    spw_step(run, "gemm w0");
    SPW_TRY(spw_experts_born(run, e, &e->w0, "w0_out", ffn));
    SPW_TRY(spw_experts_product(run, e, 0, &e->x, &e->w0));
    spw_step(run, "gemm w1");
    SPW_TRY(spw_experts_born(run, e, &e->w1, "w1_out", ffn));
    SPW_TRY(spw_experts_product(run, e, 1, &e->x, &e->w1));
    spw_step(run, "silu");
    SPW_TRY(spw_experts_born(run, e, &g->silu, "silu", ffn));
    spw_glu_silu(run, e, &g->silu);
    spw_step(run, "product");
    SPW_TRY(spw_experts_born(run, e, &e->act, "act", ffn));
    spw_experts_swiglu(run, e);
cleanup:
    return status;
}

spw_status spw_glu_output(spw_execution *run, spw_autograd_glu *g) {
    spw_status status = SPW_OK;
    spw_step(run, "gemm wo");
    SPW_TRY(spw_experts_born(run, &g->experts, &g->experts.y, "y", run->shape.hidden));
    SPW_TRY(spw_experts_product(run, &g->experts, 2, &g->experts.act, &g->experts.y));
cleanup:
    return status;
}

static spw_status up_last(spw_execution *run, void *experts) {
    spw_autograd_glu *g = experts;
    const size_t ffn = run->shape.ffn;
    const bool forward = run->pass == SPW_PASS_FORWARD;
    spw_experts *e = &g->experts;
    spw_status status = SPW_OK;
    spw_step(run, "gemm w0");
    SPW_TRY(spw_experts_born(run, e, &e->w0, "w0_out", ffn));
    SPW_TRY(spw_experts_product(run, e, 0, &e->x, &e->w0));
    spw_step(run, "silu");
    SPW_TRY(spw_experts_born(run, e, &g->silu, "silu", ffn));
    spw_glu_silu(run, e, &g->silu);
    for (size_t r = 0; r < run->shape.ranks && forward; r++)
        memcpy(g->gate[r], e->w0.at[r], rows_of(run, e, r) * ffn * sizeof(float));
    if (forward) spw_dies(run, &e->w0);
    spw_step(run, "gemm w1");
    SPW_TRY(spw_experts_born(run, e, &e->w1, "w1_out", ffn));
    SPW_TRY(spw_experts_product(run, e, 1, &e->x, &e->w1));
    spw_step(run, "product");
    SPW_TRY(spw_experts_born(run, e, &e->act, "act", ffn));
    for (size_t r = 0; r < run->shape.ranks && forward; r++) e->w0.at[r] = g->gate[r];
    spw_experts_swiglu(run, e);
    for (size_t r = 0; r < run->shape.ranks && forward; r++) e->w0.at[r] = NULL;
    if (forward) spw_dies(run, &e->w1), spw_dies(run, &g->silu);
    SPW_TRY(spw_glu_output(run, g));
    if (forward) spw_dies(run, &e->act);
cleanup:
    return status;
}

static spw_status silu_gradient(spw_execution *run, spw_autograd_glu *g) {
    spw_experts *e = &g->experts;
    spw_status status = SPW_OK;
    spw_step(run, "silu gradient");
    SPW_TRY(spw_experts_born(run, e, &e->dw0, "d_w0_out", run->shape.ffn));
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(e->dw0.at[r], g->d_silu.at[r], rows_of(run, e, r) * run->shape.ffn * sizeof(float));
    spw_dies(run, &e->w0), spw_dies(run, &g->d_silu);
cleanup:
    return status;
}

static spw_status up_gradient(spw_execution *run, spw_experts *e) {
    spw_status status = SPW_OK;
    spw_step(run, "gemm w1 gradient");
    SPW_TRY(spw_experts_born(run, e, &e->dx1, "dx_w1", run->shape.hidden));
    SPW_TRY(spw_experts_input_gradient(run, e, 1, &e->dw1, &e->dx1));
    SPW_TRY(spw_experts_weight_gradient(run, e, 1, &e->x, &e->dw1));
    spw_dies(run, &e->dw1);
cleanup:
    return status;
}

static spw_status gradient(spw_execution *run, spw_autograd_glu *g, bool up_first) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    spw_experts *e = &g->experts;
    spw_status status = SPW_OK;
    spw_step(run, "gemm wo gradient");
    SPW_TRY(spw_experts_born(run, e, &g->d_act, "d_act", ffn));
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &e->dy, &g->d_act));
    SPW_TRY(spw_experts_weight_gradient(run, e, 2, &e->act, &e->dy));
    spw_dies(run, &e->act), spw_dies(run, &e->dy);
    spw_step(run, "product gradient");
    SPW_TRY(spw_experts_born(run, e, &g->d_silu, "d_silu", ffn)); /* already the gradient of w0_out */
    SPW_TRY(spw_experts_born(run, e, &e->dw1, "d_w1_out", ffn));
    spw_glu_swiglu_gradient(run, e, &g->d_act, &g->d_silu, &e->dw1);
    spw_dies(run, &g->silu), spw_dies(run, &e->w1), spw_dies(run, &g->d_act);
    if (!up_first) SPW_TRY(silu_gradient(run, g));
    SPW_TRY(up_gradient(run, e));
    if (up_first) SPW_TRY(silu_gradient(run, g));
    spw_step(run, "gemm w0 gradient");
    SPW_TRY(spw_experts_born(run, e, &e->dx0, "dx_w0", hidden));
    SPW_TRY(spw_experts_input_gradient(run, e, 0, &e->dw0, &e->dx0));
    SPW_TRY(spw_experts_weight_gradient(run, e, 0, &e->x, &e->dw0));
    spw_dies(run, &e->x), spw_dies(run, &e->dw0);
    spw_step(run, "sum of dx");
    spw_glu_add(run, e, hidden, &e->dx0, &e->dx1);
    spw_dies(run, &e->dx0);
cleanup:
    return status;
}

spw_status spw_glu_backward(spw_execution *run, spw_autograd_glu *g) { return gradient(run, g, false); }

static spw_status up_last_gradient(spw_execution *run, void *experts) { return gradient(run, experts, true); }

const spw_expert_passes spw_glu_up_last = {up_last, up_last_gradient};
