/* ScatterMoE (docs/schemes.md, section 6.3): GLUMLP with two ParallelExperts, on one rank. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/single_rank.h"
#include "reference/schemes/torch/autograd_glu.h"

#include <string.h>

typedef struct scattermoe {
    bool compiled; /* the activation is one kernel */
    spw_single_rank rank;
    spw_spread input, silu, expanded;
} scattermoe;

static spw_status forward(spw_execution *run, void *layer) {
    scattermoe *m = layer;
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    const bool save = run->pass != SPW_PASS_FORWARD;
    spw_experts *e = &m->rank.experts;
    spw_status status = SPW_OK;
    spw_step(run, "input");
    SPW_TRY(spw_born(run, &m->input, "input", run->tokens, hidden));
    memcpy(m->input.at[0], run->in.x, run->tokens * hidden * sizeof *run->in.x);
    spw_step(run, "up projection");
    SPW_TRY(spw_single_rank_up(run, &m->rank));
    spw_step(run, "activation");
    if (!m->compiled) {
        SPW_TRY(spw_experts_born(run, e, &m->silu, "silu", ffn));
        spw_glu_silu(run, e, &m->silu);
    }
    SPW_TRY(spw_experts_born(run, e, &e->act, "act", ffn));
    spw_experts_swiglu(run, e);
    if (!save && !m->compiled) spw_dies(run, &m->silu);
    spw_step(run, "down projection");
    SPW_TRY(spw_experts_born(run, e, &m->expanded, "y_expanded", hidden));
    SPW_TRY(spw_experts_product(run, e, 2, &e->act, &m->expanded));
    spw_single_rank_sum(run, &m->rank, m->expanded.at[0], true, run->out.y);
    if (save) return SPW_OK;
    spw_dies(run, &m->expanded);
    spw_step(run, "return");
    spw_dies(run, &m->rank.gates), spw_dies(run, &e->act), spw_dies(run, &m->input);
cleanup:
    return status;
}

static void weight_gradient(spw_execution *run, const scattermoe *m) {
    const size_t hidden = run->shape.hidden;
    for (size_t i = 0; i < run->assignments; i++) {
        double sum = 0.0;
        for (size_t h = 0; h < hidden && m->rank.row[i] >= 0; h++) {
            sum += (double)run->in.dy[i / run->shape.top_k * hidden + h] *
                   (double)m->expanded.at[0][(size_t)m->rank.row[i] * hidden + h];
        }
        run->out.d_weight[i] = (float)sum;
    }
}

/* d_w0_w1_out from d_act; in eager mode by way of the gradients of both halves. */
static spw_status activation_gradient(spw_execution *run, scattermoe *m, spw_spread *d_act) {
    const size_t ffn = run->shape.ffn, half = m->rank.held[0] * ffn;
    spw_experts *e = &m->rank.experts;
    spw_spread d_silu, d_up, d_gate;
    spw_status status = SPW_OK;
    if (m->compiled) {
        spw_step(run, "activation gradient");
        SPW_TRY(spw_single_rank_halves(run, &m->rank, &m->rank.d_gates, "d_w0_w1_out", &e->dw0, &e->dw1));
        spw_glu_swiglu_gradient(run, e, d_act, &e->dw0, &e->dw1);
        spw_dies(run, &m->rank.gates), spw_dies(run, d_act);
        return SPW_OK;
    }
    spw_step(run, "product gradient");
    SPW_TRY(spw_experts_born(run, e, &d_silu, "d_silu", ffn));
    SPW_TRY(spw_experts_born(run, e, &d_up, "d_w1_out", ffn));
    spw_glu_swiglu_gradient(run, e, d_act, &d_silu, &d_up); /* d_silu: already that of w0_out */
    spw_dies(run, &m->silu), spw_dies(run, d_act);
    spw_step(run, "silu gradient");
    SPW_TRY(spw_experts_born(run, e, &d_gate, "d_w0_out", ffn));
    memcpy(d_gate.at[0], d_silu.at[0], half * sizeof(float));
    spw_dies(run, &m->rank.gates), spw_dies(run, &d_silu);
    spw_step(run, "chunk gradient");
    SPW_TRY(spw_single_rank_halves(run, &m->rank, &m->rank.d_gates, "d_w0_w1_out", &e->dw0, &e->dw1));
    memcpy(e->dw0.at[0], d_gate.at[0], half * sizeof(float));
    memcpy(e->dw1.at[0], d_up.at[0], half * sizeof(float));
    spw_dies(run, &d_gate), spw_dies(run, &d_up);
cleanup:
    return status;
}

static spw_status backward(spw_execution *run, void *layer) {
    scattermoe *m = layer;
    spw_experts *e = &m->rank.experts;
    spw_spread d_act, grouped_x;
    spw_status status = SPW_OK;
    spw_step(run, "down projection gradient");
    weight_gradient(run, m);
    spw_single_rank_load_dy(run, &m->rank, m->expanded.at[0]); /* over the expanded output */
    SPW_TRY(spw_experts_weight_gradient(run, e, 2, &e->act, &m->expanded));
    SPW_TRY(spw_experts_born(run, e, &d_act, "d_act", run->shape.ffn));
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &m->expanded, &d_act));
    spw_dies(run, &e->act), spw_dies(run, &m->expanded);
    SPW_TRY(activation_gradient(run, m, &d_act));
    spw_step(run, "up projection gradient");
    SPW_TRY(spw_experts_born(run, e, &grouped_x, "grouped_x", run->shape.hidden)); /* then dx, in its place */
    SPW_TRY(spw_single_rank_up_gradient(run, &m->rank, &grouped_x));
    spw_single_rank_sum(run, &m->rank, grouped_x.at[0], false, run->out.dx);
    spw_dies(run, &grouped_x), spw_dies(run, &m->rank.d_gates), spw_dies(run, &m->input);
cleanup:
    return status;
}

spw_status spw_execute_scattermoe(spw_execution *run) {
    scattermoe *m = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &m);
    if (status != SPW_OK) return status;
    m->compiled = spw_execution_is(&run->shape, "activation", "compiled");
    SPW_TRY(spw_single_rank_create(run, run->shape.top_k, run->in.expert, run->in.weight, &m->rank));
    status = spw_single_rank_run(run, forward, backward, m);
cleanup:
    return status;
}
