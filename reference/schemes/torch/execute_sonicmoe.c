/* SonicMoE (docs/schemes.md, section 6.4) on one rank, with or without token rounding. The second product's output is not
 * kept: the gradient of a score is the sum over ffn of (dy wo^T) act, in the epilogue of the product. The score is applied
 * where dy is loaded, which is the same as in the epilogue but for the rounding. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/single_rank.h"
#include "reference/schemes/torch/autograd_glu.h"
#include "reference/token_rounding.h"

#include <string.h>

enum { FP32 = 4, FFN_TILE = 128 };

typedef struct sonicmoe {
    bool rounded;
    spw_single_rank rank;
    spw_spread input, scores, scatter_index, reverse_index, gather_index, y;
} sonicmoe;

/* The routing after rounding: expert [tokens][experts] = the id of the column, or -1, and the weights that go with it. */
static spw_status round_tokens(spw_execution *run, sonicmoe *m) {
    const spw_rounding way = spw_execution_is(&run->shape, "rounding", "up")     ? SPW_ROUND_UP
                             : spw_execution_is(&run->shape, "rounding", "down") ? SPW_ROUND_DOWN
                                                                                 : SPW_ROUND_NEAREST;
    const size_t tile = (size_t)spw_execution_number(&run->shape, "tile", 128.0);
    const size_t experts = run->shape.experts, cells = run->tokens * experts;
    float *taken = NULL;
    uint8_t *member = NULL;
    size_t *count = NULL;
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    if (run->in.score == NULL) return spw_fail(SPW_EARG, "token rounding needs the scores of all experts");
    SPW_TRY(SPW_SCRATCH(run, cells, &taken));
    SPW_TRY(SPW_SCRATCH(run, cells, &member));
    SPW_TRY(SPW_SCRATCH(run, cells, &expert));
    SPW_TRY(SPW_SCRATCH(run, experts, &count));
    SPW_TRY(spw_ref_token_rounding(&(spw_rounded_choices){run->tokens, run->shape.top_k, experts, tile, way,
                                                          run->in.score, run->in.expert, run->in.weight},
                                   taken, member, count));
    for (size_t i = 0; i < cells; i++) expert[i] = member[i] ? (int32_t)(i % experts) : -1;
    for (size_t i = 0; i < run->assignments; i++) {
        const int32_t x = run->in.expert[i];
        run->out.dropped[0] += x >= 0 && !member[i / run->shape.top_k * experts + (size_t)x];
    }
    SPW_TRY(spw_single_rank_create(run, experts, expert, taken, &m->rank));
cleanup:
    return status;
}

static spw_status born_rows(spw_execution *run, sonicmoe *m, spw_spread *out, const char *name) {
    return spw_born_at(run, out, name, m->rank.held, 1, FP32);
}

static spw_status forward(spw_execution *run, void *layer) {
    sonicmoe *m = layer;
    const size_t hidden = run->shape.hidden;
    spw_experts *e = &m->rank.experts;
    spw_status status = SPW_OK;
    spw_step(run, "router");
    SPW_TRY(spw_born(run, &m->input, "input", run->tokens, hidden));
    memcpy(m->input.at[0], run->in.x, run->tokens * hidden * sizeof *run->in.x);
    SPW_TRY(born_rows(run, m, &m->scores, "scores"));
    for (size_t i = 0; i < m->rank.held[0]; i++) m->scores.at[0][i] = m->rank.weight[m->rank.slot[i]];
    spw_step(run, "indices"); /* kept in m->rank */
    SPW_TRY(born_rows(run, m, &m->scatter_index, "scatter_index"));
    SPW_TRY(born_rows(run, m, &m->reverse_index, "reverse_index"));
    SPW_TRY(born_rows(run, m, &m->gather_index, "gather_index"));
    spw_step(run, "up projection");
    SPW_TRY(spw_single_rank_up(run, &m->rank));
    SPW_TRY(spw_experts_born(run, e, &e->act, "act", run->shape.ffn));
    spw_experts_swiglu(run, e);
    spw_step(run, "down projection");
    SPW_TRY(spw_experts_born(run, e, &m->y, "y", hidden));
    SPW_TRY(spw_experts_product(run, e, 2, &e->act, &m->y));
    spw_step(run, "sum over experts");
    spw_single_rank_sum(run, &m->rank, m->y.at[0], true, run->out.y);
    spw_dies(run, &m->y);
    spw_step(run, "return");
    spw_dies(run, &e->act);
    if (run->pass != SPW_PASS_FORWARD) return SPW_OK;
    spw_dies(run, &m->rank.gates), spw_dies(run, &m->gather_index), spw_dies(run, &m->reverse_index);
    spw_dies(run, &m->scatter_index), spw_dies(run, &m->scores), spw_dies(run, &m->input);
cleanup:
    return status;
}

/* d_scores [held] of dy wo^T and act. */
static void score_gradient(spw_execution *run, const sonicmoe *m, const float *d_act, const float *act,
                           spw_spread *d_scores) {
    const size_t ffn = run->shape.ffn;
    float *out = m->rounded ? run->out.d_score : run->out.d_weight;
    for (size_t i = 0; i < m->rank.held[0]; i++) {
        double sum = 0.0;
        for (size_t f = 0; f < ffn; f++) sum += (double)d_act[i * ffn + f] * (double)act[i * ffn + f];
        d_scores->at[0][i] = out[m->rank.slot[i]] = (float)sum;
    }
}

static spw_status down_gradient(spw_execution *run, sonicmoe *m, spw_spread *d_scores) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn, rows = m->rank.held[0];
    spw_experts *e = &m->rank.experts;
    spw_spread partial, d_act = {.rows = 0}, dy = {.rows = 0};
    spw_status status = SPW_OK;
    spw_step(run, "down projection gradient");
    SPW_TRY(spw_single_rank_halves(run, &m->rank, &m->rank.d_gates, "d_w0_w1_out", &e->dw0, &e->dw1));
    SPW_TRY(born_rows(run, m, d_scores, "d_scores"));
    SPW_TRY(spw_experts_born(run, e, &e->act, "act_scored", ffn)); /* rebuilt from the pre-activation */
    SPW_TRY(
        spw_born_at(run, &partial, "d_scores_partial", m->rank.held, (ffn + FFN_TILE - 1) / FFN_TILE, FP32));
    spw_experts_swiglu(run, e);
    SPW_TRY(SPW_SCRATCH(run, rows * hidden, &dy.at[0])); /* what the products load, and their accumulators */
    SPW_TRY(SPW_SCRATCH(run, rows * ffn, &d_act.at[0]));
    spw_gather_rows(run->in.dy, m->rank.token, rows, hidden, dy.at[0]);
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &dy, &d_act));
    score_gradient(run, m, d_act.at[0], e->act.at[0], d_scores);
    spw_single_rank_load_dy(run, &m->rank, dy.at[0]);
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &dy, &d_act));
    spw_glu_swiglu_gradient(run, e, &d_act, &e->dw0, &e->dw1);
    SPW_TRY(spw_experts_weight_gradient(run, e, 2, &e->act, &dy));
    spw_dies(run, &partial), spw_dies(run, &e->act), spw_dies(run, &m->rank.gates);
cleanup:
    return status;
}

static spw_status backward(spw_execution *run, void *layer) {
    sonicmoe *m = layer;
    spw_spread d_scores, dx;
    spw_status status = SPW_OK;
    SPW_TRY(down_gradient(run, m, &d_scores));
    spw_step(run, "up projection gradient");
    SPW_TRY(spw_experts_born(run, &m->rank.experts, &dx, "dx_expanded", run->shape.hidden));
    SPW_TRY(spw_single_rank_up_gradient(run, &m->rank, &dx));
    spw_single_rank_sum(run, &m->rank, dx.at[0], false, run->out.dx);
    spw_dies(run, &dx), spw_dies(run, &m->rank.d_gates);
    spw_dies(run, &m->gather_index), spw_dies(run, &m->reverse_index), spw_dies(run, &m->scatter_index);
    spw_step(run, "router gradient");
    spw_dies(run, &d_scores), spw_dies(run, &m->scores), spw_dies(run, &m->input);
cleanup:
    return status;
}

spw_status spw_execute_sonicmoe(spw_execution *run) {
    sonicmoe *m = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &m);
    if (status != SPW_OK) return status;
    m->rounded = strcmp(spw_execution_word(&run->shape, "rounding", "none"), "none") != 0;
    if (m->rounded) {
        SPW_TRY(round_tokens(run, m));
    } else {
        SPW_TRY(spw_single_rank_create(run, run->shape.top_k, run->in.expert, run->in.weight, &m->rank));
    }
    status = spw_single_rank_run(run, forward, backward, m);
cleanup:
    return status;
}
