/* transformers' experts by grouped products (docs/schemes.md, section 6.8), on one rank. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/single_rank.h"
#include "reference/schemes/torch/autograd_glu.h"

#include <string.h>

typedef struct copies {
    spw_single_rank rank;
    spw_spread x, silu, y;
} copies;

/* `made` from `from`, which dies. */
static spw_status turn(spw_execution *run, copies *m, spw_spread *made, const char *name, size_t width,
                       spw_spread *from) {
    const spw_status status = spw_experts_born(run, &m->rank.experts, made, name, width);
    if (status != SPW_OK) return status;
    memcpy(made->at[0], from->at[0], m->rank.held[0] * width * sizeof(float));
    spw_dies(run, from);
    return SPW_OK;
}

static spw_status gates(spw_execution *run, copies *m, bool save) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    spw_experts *e = &m->rank.experts;
    spw_spread raw;
    spw_status status = SPW_OK;
    spw_step(run, "gather");
    SPW_TRY(spw_experts_born(run, e, &m->x, "x", hidden));
    memcpy(m->x.at[0], m->rank.x, m->rank.held[0] * hidden * sizeof(float));
    spw_step(run, "gate and up");
    SPW_TRY(spw_experts_born(run, e, &raw, "w0_w1_raw", 2 * ffn));
    spw_step(run, "mask");
    SPW_TRY(spw_single_rank_up(run, &m->rank));
    spw_dies(run, &raw);
    spw_step(run, "activation");
    SPW_TRY(spw_experts_born(run, e, &m->silu, "silu", ffn));
    spw_glu_silu(run, e, &m->silu);
    SPW_TRY(spw_experts_born(run, e, &e->act, "act", ffn));
    spw_experts_swiglu(run, e);
    if (!save) spw_dies(run, &m->silu);
cleanup:
    return status;
}

static spw_status forward(spw_execution *run, void *layer) {
    copies *m = layer;
    const size_t hidden = run->shape.hidden;
    const bool save = run->pass != SPW_PASS_FORWARD;
    spw_experts *e = &m->rank.experts;
    spw_spread raw, weighted, ordered;
    spw_status status = SPW_OK;
    SPW_TRY(gates(run, m, save));
    spw_step(run, "down");
    SPW_TRY(spw_experts_born(run, e, &raw, "y_raw", hidden));
    SPW_TRY(spw_experts_product(run, e, 2, &e->act, &raw));
    spw_step(run, "mask of down");
    SPW_TRY(turn(run, m, &m->y, "y", hidden, &raw));
    spw_step(run, "weigh");
    SPW_TRY(spw_experts_born(run, e, &weighted, "weighted", hidden));
    memcpy(weighted.at[0], m->y.at[0], m->rank.held[0] * hidden * sizeof(float));
    spw_step(run, "order");
    SPW_TRY(turn(run, m, &ordered, "ordered", hidden, &weighted));
    spw_single_rank_sum(run, &m->rank, ordered.at[0], true, run->out.y); /* weighs and orders */
    spw_step(run, "return");
    spw_dies(run, &ordered);
    if (save) return SPW_OK;
    spw_dies(run, &m->x), spw_dies(run, &m->rank.gates), spw_dies(run, &e->act), spw_dies(run, &m->y);
cleanup:
    return status;
}

static void weight_gradient(spw_execution *run, const copies *m) {
    const size_t hidden = run->shape.hidden;
    for (size_t i = 0; i < run->assignments; i++) {
        double sum = 0.0;
        for (size_t h = 0; h < hidden && m->rank.row[i] >= 0; h++)
            sum += (double)run->in.dy[i / run->shape.top_k * hidden + h] *
                   (double)m->y.at[0][(size_t)m->rank.row[i] * hidden + h];
        run->out.d_weight[i] = (float)sum;
    }
}

/* d_y_raw, of every row. */
static spw_status output_gradient(spw_execution *run, copies *m, spw_spread *d_raw) {
    const size_t hidden = run->shape.hidden;
    spw_experts *e = &m->rank.experts;
    spw_spread each, weighted, products, d_y;
    spw_status status = SPW_OK;
    spw_step(run, "sum gradient");
    SPW_TRY(spw_experts_born(run, e, &each, "d_each", hidden));
    spw_single_rank_load_dy(run, &m->rank, each.at[0]); /* weighed already */
    spw_step(run, "order gradient");
    SPW_TRY(turn(run, m, &weighted, "d_weighted", hidden, &each));
    spw_step(run, "weigh gradient");
    weight_gradient(run, m);
    SPW_TRY(spw_experts_born(run, e, &products, "score_products", hidden));
    SPW_TRY(spw_experts_born(run, e, &d_y, "d_y", hidden));
    memcpy(d_y.at[0], weighted.at[0], m->rank.held[0] * hidden * sizeof(float));
    spw_dies(run, &products), spw_dies(run, &weighted), spw_dies(run, &m->y);
    spw_step(run, "mask of down gradient");
    SPW_TRY(turn(run, m, d_raw, "d_y_raw", hidden, &d_y));
cleanup:
    return status;
}

/* d_w0_w1_raw, from d_act. */
static spw_status activation_gradient(spw_execution *run, copies *m, spw_spread *d_act, spw_spread *raw) {
    const size_t ffn = run->shape.ffn, half = m->rank.held[0] * ffn;
    spw_experts *e = &m->rank.experts;
    spw_spread d_up, d_silu, d_gate;
    spw_status status = SPW_OK;
    spw_step(run, "product gradient");
    SPW_TRY(spw_experts_born(run, e, &d_up, "d_w1_out", ffn));
    SPW_TRY(spw_experts_born(run, e, &d_silu, "d_silu", ffn));
    spw_glu_swiglu_gradient(run, e, d_act, &d_silu, &d_up); /* d_silu: already that of w0_out */
    spw_dies(run, d_act), spw_dies(run, &m->silu);
    spw_step(run, "silu gradient");
    SPW_TRY(turn(run, m, &d_gate, "d_w0_out", ffn, &d_silu));
    spw_dies(run, &m->rank.gates);
    spw_step(run, "chunk gradient");
    SPW_TRY(spw_single_rank_halves(run, &m->rank, &m->rank.d_gates, "d_w0_w1_out", &e->dw0, &e->dw1));
    memcpy(e->dw0.at[0], d_gate.at[0], half * sizeof(float));
    memcpy(e->dw1.at[0], d_up.at[0], half * sizeof(float));
    spw_dies(run, &d_gate), spw_dies(run, &d_up);
    spw_step(run, "mask gradient");
    SPW_TRY(turn(run, m, raw, "d_w0_w1_raw", 2 * ffn, &m->rank.d_gates));
    e->dw0.at[0] = raw->at[0];
    e->dw1.at[0] = raw->at[0] + half;
cleanup:
    return status;
}

static spw_status backward(spw_execution *run, void *layer) {
    copies *m = layer;
    const size_t hidden = run->shape.hidden;
    spw_experts *e = &m->rank.experts;
    spw_spread d_y, d_act, raw, dx, rows, sum;
    spw_status status = SPW_OK;
    SPW_TRY(output_gradient(run, m, &d_y));
    spw_step(run, "down gradient");
    SPW_TRY(spw_experts_weight_gradient(run, e, 2, &e->act, &d_y));
    SPW_TRY(spw_experts_born(run, e, &d_act, "d_act", run->shape.ffn));
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &d_y, &d_act));
    spw_dies(run, &d_y), spw_dies(run, &e->act);
    SPW_TRY(activation_gradient(run, m, &d_act, &raw));
    spw_step(run, "gate and up gradient");
    SPW_TRY(spw_experts_born(run, e, &dx, "dx_raw", hidden));
    SPW_TRY(spw_single_rank_up_gradient(run, &m->rank, &dx));
    spw_dies(run, &raw), spw_dies(run, &m->x);
    spw_step(run, "mask of gather gradient");
    SPW_TRY(turn(run, m, &rows, "dx_rows", hidden, &dx));
    spw_step(run, "gather gradient");
    SPW_TRY(spw_born(run, &sum, "dx", run->tokens, hidden));
    spw_single_rank_sum(run, &m->rank, rows.at[0], false, run->out.dx);
    spw_dies(run, &rows);
    spw_step(run, "layer end");
    spw_dies(run, &sum);
cleanup:
    return status;
}

spw_status spw_execute_transformers(spw_execution *run) {
    copies *m = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &m);
    if (status != SPW_OK) return status;
    SPW_TRY(spw_single_rank_create(run, run->shape.top_k, run->in.expert, run->in.weight, &m->rank));
    status = spw_single_rank_run(run, forward, backward, m);
cleanup:
    return status;
}
