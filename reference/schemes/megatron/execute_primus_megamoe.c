/* Primus' MegaMoE (docs/schemes.md, section 3.7): every choice is a row that is pushed to its place in the receiver's pool,
 * and pushed back to its token. Pools and what returns are the heap's, which no pass allocates. Weights multiply what returns;
 * the gradient of a weight is taken over the expert's width, where the expert is. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/routed.h"
#include "reference/schemes/torch/autograd_glu.h"

#include <string.h>

enum { TILE = 256, TOKENS = 128, ORIGIN_BYTES = 4 };

typedef struct megamoe {
    spw_routed routed;
    spw_experts experts; /* w0, w1, dw0, dw1 are views of fc1_output and its gradient */
    size_t tokens[SPW_EXECUTION_RANKS], pool[SPW_EXECUTION_RANKS], handle[SPW_EXECUTION_RANKS];
    spw_spread rows, arrived, returned, weight, gate, d_act; /* of the heap, or within a kernel */
    spw_spread logits, chosen_probs, probs, map, top_probs, top_index, table, fc1, row_probs, output;
    spw_spread d_fc2_input, d_fc1, d_row_probs, weighted, dx, d_top_probs, d_probs, d_logits;
} megamoe;

static size_t up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

static spw_status scratch(spw_execution *run, spw_spread *tensor, const size_t *rows, size_t width) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks; r++) SPW_TRY(SPW_SCRATCH(run, rows[r] * width, &tensor->at[r]));
cleanup:
    return status;
}

static spw_status create(spw_execution *run, megamoe *m) {
    const size_t top_k = run->shape.top_k, local = run->local, hidden = run->shape.hidden,
                 most = run->shape.ranks * up(run->tokens, TOKENS) * (local < top_k ? local : top_k),
                 pool = up(most + local * (TILE - 1), TILE);
    spw_status status = SPW_OK;
    SPW_TRY(spw_routed_by_choice(run, TILE, &m->routed, &m->experts));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        m->tokens[r] = run->tokens;
        m->pool[r] = pool;
        /* token and place of a row; expert of a tile; four numbers of what an expert is sent, three of what it sends back;
         * counts, where experts begin, and tiles in use */
        m->handle[r] = pool * 4 * 2 + pool / TILE * 4 + run->shape.experts * 4 * (4 + 3) + local * 8 +
                       (local + 1) * 8 + 4;
    }
    SPW_TRY(scratch(run, &m->rows, m->pool, hidden));
    SPW_TRY(scratch(run, &m->arrived, m->routed.received, hidden));
    SPW_TRY(scratch(run, &m->returned, m->routed.sent, hidden));
    SPW_TRY(scratch(run, &m->weight, m->routed.received, 1));
    SPW_TRY(scratch(run, &m->gate, m->routed.received, 1));
    SPW_TRY(scratch(run, &m->d_act, m->pool, run->shape.ffn));
    m->experts.rows_at = m->pool;
cleanup:
    return status;
}

/* The halves of a tensor of gate and up, one behind the other. */
static void see_halves(const spw_execution *run, const megamoe *m, const spw_spread *whole, spw_spread *gate,
                       spw_spread *upper) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        gate->at[r] = whole->at[r];
        upper->at[r] = whole->at[r] + m->pool[r] * run->shape.ffn;
    }
}

/* --- Rows on their way --- */

/* Tokens to the pools of their experts, with where they come from and their weights where `origins`. */
static spw_status push(spw_execution *run, megamoe *m, const char *exchange, const float *tokens,
                       bool origins) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, all = run->shape.experts;
    float origin[3] = {0.0f};
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    for (size_t r = 0; r < ranks; r++) {
        for (size_t row = 0, x = 0, last = m->routed.count[r * all]; row < m->routed.sent[r]; row++) {
            while (row == last) last += m->routed.count[r * all + ++x];
            const size_t token = (size_t)m->routed.token[r][row];
            SPW_TRY(spw_send_rows(run, r, x / run->local, tokens + (r * run->tokens + token) * hidden, 1,
                                  hidden));
            origin[0] = (float)r, origin[1] = (float)m->routed.assignment[r][row];
            origin[2] = spw_rank_weight(run, r)[m->routed.assignment[r][row]];
            if (origins)
                SPW_TRY(
                    spw_fabric_send(run->fabric, r, x / run->local, origin, 3, sizeof *origin, ORIGIN_BYTES));
        }
    }
    for (size_t d = 0; d < ranks; d++) {
        size_t row = 0;
        for (size_t i = 0; i < ranks * run->local; i++) {
            const size_t source = i / run->local,
                         n = m->routed.count[source * all + d * run->local + i % run->local];
            for (size_t j = 0; j < n; j++, row++) {
                SPW_TRY(spw_receive_rows(run, d, source, m->arrived.at[d] + row * hidden, 1, hidden));
                if (!origins) continue;
                SPW_TRY(spw_fabric_receive(run->fabric, d, source, origin, 3, sizeof *origin));
                m->weight.at[d][row] = origin[2];
            }
        }
    }
    spw_routed_to_experts(run, &m->routed, &m->arrived, &m->rows);
cleanup:
    return status;
}

/* The pools' rows back to the places of their tokens, with the gradient of their weights where `gates`. */
static spw_status pull(spw_execution *run, megamoe *m, const char *exchange, bool gates) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, all = run->shape.experts;
    spw_status status = SPW_OK;
    spw_routed_from_experts(run, &m->routed, &m->rows, &m->arrived);
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    for (size_t d = 0; d < ranks; d++) {
        size_t row = 0;
        for (size_t i = 0; i < ranks * run->local; i++) {
            const size_t source = i / run->local,
                         n = m->routed.count[source * all + d * run->local + i % run->local];
            for (size_t j = 0; j < n; j++, row++) {
                SPW_TRY(spw_send_rows(run, d, source, m->arrived.at[d] + row * hidden, 1, hidden));
                if (gates)
                    SPW_TRY(
                        spw_fabric_send(run->fabric, d, source, m->gate.at[d] + row, 1, sizeof(float), 4));
            }
        }
    }
    for (size_t r = 0; r < ranks; r++) {
        for (size_t row = 0, x = 0, last = m->routed.count[r * all]; row < m->routed.sent[r]; row++) {
            while (row == last) last += m->routed.count[r * all + ++x];
            float *gradient = run->out.d_weight + r * run->assignments + (size_t)m->routed.assignment[r][row];
            SPW_TRY(spw_receive_rows(run, r, x / run->local, m->returned.at[r] + row * hidden, 1, hidden));
            if (gates)
                SPW_TRY(spw_fabric_receive(run->fabric, r, x / run->local, gradient, 1, sizeof *gradient));
        }
    }
cleanup:
    return status;
}

/* --- Passes --- */

static spw_status route(spw_execution *run, megamoe *m) {
    const size_t experts = run->shape.experts, top_k = run->shape.top_k;
    spw_status status = SPW_OK;
    spw_step(run, "router");
    SPW_TRY(spw_born_at(run, &m->logits, "logits", m->tokens, experts, 4));
    SPW_TRY(spw_born_at(run, &m->chosen_probs, "chosen_probs", m->tokens, top_k, 4));
    SPW_TRY(spw_born_at(run, &m->probs, "probs", m->tokens, experts, 4));
    SPW_TRY(spw_born_at(run, &m->map, "routing_map", m->tokens, experts, 1));
    spw_step(run, "top-k");
    SPW_TRY(spw_born_at(run, &m->top_probs, "top_probs", m->tokens, top_k, 4));
    SPW_TRY(spw_born_at(run, &m->top_index, "top_index", m->tokens, top_k, 8));
cleanup:
    return status;
}

static spw_status forward(spw_execution *run, megamoe *m, const char *there, const char *back) {
    const size_t ffn = run->shape.ffn, hidden = run->shape.hidden;
    const bool first = run->pass == SPW_PASS_FORWARD;
    spw_experts *e = &m->experts;
    spw_status status = SPW_OK;
    SPW_TRY(route(run, m));
    spw_step(run, "dispatch and fc1");
    SPW_TRY(spw_born_at(run, &m->table, "handle", m->handle, 1, 1));
    SPW_TRY(spw_born_at(run, &m->fc1, "fc1_output", m->pool, 2 * ffn, 0));
    SPW_TRY(spw_born_at(run, &m->row_probs, "row_probs", m->pool, 1, 4));
    SPW_TRY(push(run, m, there, run->in.x, true));
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_gather_rows(m->weight.at[r], m->routed.from_x[r], m->routed.held[r], 1, m->row_probs.at[r]);
    see_halves(run, m, &m->fc1, &e->w0, &e->w1);
    SPW_TRY(spw_experts_product(run, e, 0, &m->rows, &e->w0));
    SPW_TRY(spw_experts_product(run, e, 1, &m->rows, &e->w1));
    spw_step(run, "swiglu");
    SPW_TRY(spw_born_at(run, &e->act, "fc2_input", m->pool, ffn, 0));
    spw_experts_swiglu(run, e);
    spw_step(run, "fc2 and combine");
    SPW_TRY(spw_experts_product(run, e, 2, &e->act, &m->rows));
    SPW_TRY(spw_born_at(run, &m->output, "output", m->tokens, hidden, 0));
    SPW_TRY(pull(run, m, back, false));
    spw_routed_sum(run, &m->routed, &m->returned, true, run->out.y);
    spw_dies(run, &e->act);
    if (first) spw_dies(run, &m->fc1), spw_dies(run, &m->row_probs), spw_dies(run, &m->table);
    spw_step(run, "layer end");
    if (first) spw_dies(run, &m->logits), spw_dies(run, &m->chosen_probs), spw_dies(run, &m->top_index);
    spw_dies(run, &m->probs), spw_dies(run, &m->map), spw_dies(run, &m->top_probs);
    spw_dies(run, &m->output);
cleanup:
    return status;
}

/* d_act of the weighted activation becomes that of the activation, and gives the weights' gradients. */
static void weigh(spw_execution *run, megamoe *m) {
    const size_t ffn = run->shape.ffn;
    spw_routed *routed = &m->routed;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t row = 0; row < routed->held[r]; row++) {
            const int32_t from = routed->from_x[r][row];
            const double weight = (double)m->row_probs.at[r][row];
            float *act = m->weighted.at[r] + row * ffn, *d_act = m->d_act.at[r] + row * ffn;
            double sum = 0.0;
            for (size_t f = 0; f < ffn; f++) {
                sum += (double)m->d_fc2_input.at[r][row * ffn + f] * (double)act[f];
                d_act[f] = (float)(weight * (double)m->d_fc2_input.at[r][row * ffn + f]);
                act[f] = (float)(weight * (double)act[f]);
            }
            m->d_row_probs.at[r][row] = (float)sum;
            if (from >= 0) m->gate.at[r][from] = (float)sum;
        }
    }
}

static spw_status fc2_gradient(spw_execution *run, megamoe *m) {
    const size_t ffn = run->shape.ffn;
    spw_experts *e = &m->experts;
    spw_status status = SPW_OK;
    spw_step(run, "combine and fc2 gradient");
    SPW_TRY(push(run, m, "combine gradient", run->in.dy, false));
    SPW_TRY(spw_born_at(run, &m->d_fc2_input, "d_fc2_input", m->pool, ffn, 0));
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &m->rows, &m->d_fc2_input));
    spw_step(run, "swiglu gradient");
    SPW_TRY(spw_born_at(run, &m->d_fc1, "d_fc1_output", m->pool, 2 * ffn, 0));
    SPW_TRY(spw_born_at(run, &m->d_row_probs, "d_row_probs", m->pool, 1, 4));
    SPW_TRY(spw_born_at(run, &m->weighted, "weighted_input", m->pool, ffn, 0));
    e->act = m->weighted;
    spw_experts_swiglu(run, e);
    weigh(run, m);
    see_halves(run, m, &m->d_fc1, &e->dw0, &e->dw1);
    spw_glu_swiglu_gradient(run, e, &m->d_act, &e->dw0, &e->dw1);
    spw_step(run, "fc2 weight gradient");
    SPW_TRY(spw_experts_weight_gradient(run, e, 2, &m->weighted, &m->rows));
    spw_dies(run, &m->d_fc2_input), spw_dies(run, &m->weighted);
    spw_dies(run, &m->fc1), spw_dies(run, &m->row_probs);
cleanup:
    return status;
}

static spw_status fc1_gradient(spw_execution *run, megamoe *m) {
    const size_t hidden = run->shape.hidden;
    spw_experts *e = &m->experts;
    spw_spread upper = {.rows = 0};
    spw_status status = SPW_OK;
    spw_step(run, "fc1 and dispatch gradient");
    SPW_TRY(scratch(run, &upper, m->pool, hidden));
    SPW_TRY(spw_experts_input_gradient(run, e, 0, &e->dw0, &m->rows));
    SPW_TRY(spw_experts_input_gradient(run, e, 1, &e->dw1, &upper));
    spw_glu_add(run, e, hidden, &upper, &m->rows);
    SPW_TRY(spw_born_at(run, &m->dx, "dx", m->tokens, hidden, 0));
    SPW_TRY(spw_born_at(run, &m->d_top_probs, "d_top_probs", m->tokens, run->shape.top_k, 4));
    SPW_TRY(pull(run, m, "dispatch gradient", true));
    spw_routed_sum(run, &m->routed, &m->returned, false, run->out.dx);
    spw_step(run, "fc1 weight gradient");
    SPW_TRY(push(run, m, "dispatch for fc1's weights", run->in.x, false));
    SPW_TRY(spw_experts_weight_gradient(run, e, 0, &m->rows, &e->dw0));
    SPW_TRY(spw_experts_weight_gradient(run, e, 1, &m->rows, &e->dw1));
    spw_dies(run, &m->d_fc1), spw_dies(run, &m->d_row_probs), spw_dies(run, &m->table);
cleanup:
    return status;
}

static spw_status backward(spw_execution *run, megamoe *m) {
    const size_t experts = run->shape.experts;
    spw_status status = SPW_OK;
    SPW_TRY(fc2_gradient(run, m));
    SPW_TRY(fc1_gradient(run, m));
    spw_step(run, "router gradient");
    SPW_TRY(spw_born_at(run, &m->d_probs, "d_probs", m->tokens, experts, 4));
    spw_dies(run, &m->d_top_probs), spw_dies(run, &m->top_index);
    SPW_TRY(spw_born_at(run, &m->d_logits, "d_logits", m->tokens, experts, 4));
    spw_dies(run, &m->d_probs), spw_dies(run, &m->logits), spw_dies(run, &m->chosen_probs);
    spw_dies(run, &m->d_logits);
    spw_step(run, "layer end");
    spw_dies(run, &m->dx);
cleanup:
    return status;
}

spw_status spw_execute_primus_megamoe(spw_execution *run) {
    megamoe *m = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &m);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, m));
    memset(run->out.d_weight, 0, run->shape.ranks * run->assignments * sizeof *run->out.d_weight);
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(forward(run, m, "dispatch", "combine"));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(forward(run, m, "dispatch again", "combine again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(backward(run, m));
cleanup:
    return status;
}
