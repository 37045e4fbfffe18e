#include "reference/schemes/single_rank.h"

spw_status spw_single_rank_create(spw_execution *run, size_t slots, const int32_t *expert,
                                  const float *weight, spw_single_rank *s) {
    const size_t all = run->tokens * slots, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    *s = (spw_single_rank){.slots = slots, .weight = weight};
    if (run->shape.ranks != 1)
        return spw_fail(SPW_EARG, "%zu ranks; a scheme without expert parallelism runs on one",
                        run->shape.ranks);
    SPW_TRY(SPW_SCRATCH(run, all, &s->row));
    for (size_t i = 0; i < all; i++) s->held[0] += expert[i] >= 0;
    SPW_TRY(SPW_SCRATCH(run, s->held[0], &s->token));
    SPW_TRY(SPW_SCRATCH(run, s->held[0], &s->slot));
    SPW_TRY(SPW_SCRATCH(run, s->held[0] * hidden, &s->x));
    SPW_TRY(spw_experts_create_at(run, s->held, &s->experts));
    size_t row = 0;
    for (size_t x = 0; x < run->shape.experts; x++) {
        s->experts.offset[x] = row;
        for (size_t i = 0; i < all; i++) {
            if (expert[i] != (int32_t)x) continue;
            s->row[i] = (int32_t)row;
            s->token[row] = (int32_t)(i / slots);
            s->slot[row++] = (int32_t)i;
        }
    }
    for (size_t i = 0; i < all; i++) {
        if (expert[i] < 0) s->row[i] = -1;
    }
    s->experts.offset[run->shape.experts] = run->out.rows[0] = row;
    spw_gather_rows(run->in.x, s->token, row, hidden, s->x);
    s->experts.x.at[0] = s->x;
cleanup:
    return status;
}

spw_status spw_single_rank_halves(spw_execution *run, spw_single_rank *s, spw_spread *tensor,
                                  const char *name, spw_spread *gate, spw_spread *up) {
    const spw_status status = spw_born_at(run, tensor, name, s->held, 2 * run->shape.ffn, 0);
    if (status != SPW_OK) return status;
    gate->at[0] = tensor->at[0];
    up->at[0] = tensor->at[0] + s->held[0] * run->shape.ffn;
    return SPW_OK;
}

spw_status spw_single_rank_up(spw_execution *run, spw_single_rank *s) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_single_rank_halves(run, s, &s->gates, "w0_w1_out", &s->experts.w0, &s->experts.w1));
    SPW_TRY(spw_experts_product(run, &s->experts, 0, &s->experts.x, &s->experts.w0));
    SPW_TRY(spw_experts_product(run, &s->experts, 1, &s->experts.x, &s->experts.w1));
cleanup:
    return status;
}

spw_status spw_single_rank_up_gradient(spw_execution *run, spw_single_rank *s, spw_spread *dx) {
    const size_t elements = s->held[0] * run->shape.hidden;
    spw_spread other = {.rows = 0}; /* of w1: one product over both halves in the real kernel */
    spw_experts *e = &s->experts;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, elements, &other.at[0]));
    SPW_TRY(spw_experts_weight_gradient(run, e, 0, &e->x, &e->dw0));
    SPW_TRY(spw_experts_weight_gradient(run, e, 1, &e->x, &e->dw1));
    SPW_TRY(spw_experts_input_gradient(run, e, 0, &e->dw0, dx));
    SPW_TRY(spw_experts_input_gradient(run, e, 1, &e->dw1, &other));
    for (size_t i = 0; i < elements; i++) dx->at[0][i] += other.at[0][i];
cleanup:
    return status;
}

void spw_single_rank_load_dy(spw_execution *run, const spw_single_rank *s, float *rows) {
    const size_t hidden = run->shape.hidden;
    spw_gather_rows(run->in.dy, s->token, s->held[0], hidden, rows);
    for (size_t i = 0; i < s->held[0] * hidden; i++)
        rows[i] = (float)((double)s->weight[s->slot[i / hidden]] * (double)rows[i]);
}

void spw_single_rank_sum(spw_execution *run, const spw_single_rank *s, const float *rows, bool weighted,
                         float *y) {
    spw_sum_rows(run->tokens, s->slots, run->shape.hidden, s->row, weighted ? s->weight : NULL, rows, y);
}

spw_status spw_single_rank_run(spw_execution *run, spw_single_rank_pass *forward,
                               spw_single_rank_pass *backward, void *layer) {
    spw_status status = SPW_OK;
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(forward(run, layer));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(forward(run, layer));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(backward(run, layer));
cleanup:
    return status;
}
