/* The grouped GEMMs between the exchanges, step by step on every rank. */
#include "reference/grouped_gemm.h"
#include "reference/schemes/tensor_group.h"

#include "base/memory.h"

spw_status spw_experts_create(spw_execution *run, size_t rows, spw_experts *out) {
    *out = (spw_experts){.rows = rows};
    return SPW_SCRATCH(run, run->shape.ranks * (run->local + 1), &out->offset);
}

spw_status spw_experts_create_at(spw_execution *run, const size_t *rows, spw_experts *out) {
    size_t most = 0;
    for (size_t r = 0; r < run->shape.ranks; r++) most = rows[r] > most ? rows[r] : most;
    const spw_status status = spw_experts_create(run, most, out);
    out->rows_at = rows;
    return status;
}

static size_t rows_of(const spw_experts *e, size_t rank) {
    return e->rows_at != NULL ? e->rows_at[rank] : e->rows;
}

spw_status spw_experts_born(spw_execution *run, const spw_experts *e, spw_spread *tensor, const char *name,
                            size_t width) {
    return e->rows_at != NULL ? spw_born_at(run, tensor, name, e->rows_at, width, 0)
                              : spw_born(run, tensor, name, e->rows, width);
}

spw_gemm_shape spw_experts_shape(const spw_execution *run, const spw_experts *e, size_t rank, int weight) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    return (spw_gemm_shape){.experts = run->local,
                            .rows = rows_of(e, rank),
                            .in = weight == 2 ? ffn : hidden,
                            .out = weight == 2 ? hidden : ffn};
}

const size_t *spw_experts_offset(const spw_execution *run, const spw_experts *e, size_t rank) {
    return e->offset + rank * (run->local + 1);
}

spw_status spw_experts_product(spw_execution *run, const spw_experts *e, int weight, const spw_spread *x,
                               spw_spread *y) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks && status == SPW_OK; r++) {
        status = spw_ref_grouped_gemm(spw_experts_shape(run, e, r, weight), x->at[r],
                                      spw_rank_weights(run, r, weight), spw_experts_offset(run, e, r),
                                      y->at[r], NULL);
    }
    return status;
}

spw_status spw_experts_input_gradient(spw_execution *run, const spw_experts *e, int weight,
                                      const spw_spread *dy, spw_spread *dx) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks && status == SPW_OK; r++) {
        status = spw_ref_grouped_gemm_input_gradient(spw_experts_shape(run, e, r, weight), dy->at[r],
                                                     spw_rank_weights(run, r, weight),
                                                     spw_experts_offset(run, e, r), dx->at[r], NULL);
    }
    return status;
}

spw_status spw_experts_weight_gradient(spw_execution *run, const spw_experts *e, int weight,
                                       const spw_spread *x, const spw_spread *dy) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks && status == SPW_OK; r++) {
        status = spw_ref_grouped_gemm_weight_gradient(spw_experts_shape(run, e, r, weight), x->at[r],
                                                      dy->at[r], spw_experts_offset(run, e, r),
                                                      spw_rank_weight_gradients(run, r, weight), NULL);
    }
    return status;
}

void spw_experts_swiglu(spw_execution *run, spw_experts *e) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_ref_swiglu(run->shape.activation, spw_experts_offset(run, e, r)[run->local] * run->shape.ffn,
                       e->w0.at[r], e->w1.at[r], e->act.at[r], NULL);
    }
}

void spw_experts_swiglu_gradient(spw_execution *run, spw_experts *e) {
    spw_step(run, "swiglu gradient");
    for (size_t r = 0; r < run->shape.ranks; r++) { /* both in place */
        spw_ref_swiglu_gradient(
            run->shape.activation, spw_experts_offset(run, e, r)[run->local] * run->shape.ffn, e->w0.at[r],
            e->w1.at[r], e->dw0.at[r], (spw_swiglu_gradients){e->dw0.at[r], e->w1.at[r], NULL});
    }
    spw_becomes(run, &e->w1, &e->dw1, "d_w1_out");
    spw_dies(run, &e->w0);
}

void spw_experts_sum_dx(spw_execution *run, spw_experts *e) {
    spw_step(run, "sum of dx");
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < rows_of(e, r) * run->shape.hidden; i++) e->dx0.at[r][i] += e->dx1.at[r][i];
    }
    spw_dies(run, &e->dx1);
}

const char *spw_experts_last(const spw_execution *run) { return spw_group_size(run) > 1 ? "y_term" : "y"; }

spw_status spw_experts_sum_y(spw_execution *run, spw_experts *e) {
    spw_spread term = e->y;
    spw_status status = SPW_OK;
    if (spw_group_size(run) == 1) return SPW_OK;
    spw_step(run, "sum of y");
    SPW_TRY(spw_experts_born(run, e, &e->y, "y", spw_group_width(run)));
    SPW_TRY(spw_group_scatter(run, "sum of y", &term, &e->y));
    spw_dies(run, &term);
cleanup:
    return status;
}

spw_status spw_experts_forward(spw_execution *run, spw_experts *e, bool keep) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    spw_status status = SPW_OK;
    spw_step(run, "gemm w0");
    SPW_TRY(spw_experts_born(run, e, &e->w0, "w0_out", ffn));
    SPW_TRY(spw_experts_product(run, e, 0, &e->x, &e->w0));
    spw_step(run, "gemm w1");
    SPW_TRY(spw_experts_born(run, e, &e->w1, "w1_out", ffn));
    SPW_TRY(spw_experts_product(run, e, 1, &e->x, &e->w1));
    if (!keep) spw_dies(run, &e->x);
    spw_step(run, "swiglu");
    SPW_TRY(spw_experts_born(run, e, &e->act, "act", ffn));
    spw_experts_swiglu(run, e);
    if (!keep) spw_dies(run, &e->w0), spw_dies(run, &e->w1);
    spw_step(run, "gemm wo");
    SPW_TRY(spw_experts_born(run, e, &e->y, spw_experts_last(run), hidden));
    SPW_TRY(spw_experts_product(run, e, 2, &e->act, &e->y));
    if (!keep) spw_dies(run, &e->act);
    SPW_TRY(spw_experts_sum_y(run, e));
cleanup:
    return status;
}

spw_status spw_experts_gather_dy(spw_execution *run, spw_experts *e) {
    spw_spread whole = {.rows = 0};
    spw_status status = SPW_OK;
    if (spw_group_size(run) == 1) return SPW_OK;
    spw_step(run, "gather of dy");
    SPW_TRY(spw_experts_born(run, e, &whole, "dy_whole", run->shape.hidden));
    SPW_TRY(spw_group_gather(run, "gather of dy", &e->dy, &whole));
    spw_dies(run, &e->dy);
    e->dy = whole;
cleanup:
    return status;
}

spw_status spw_experts_backward(spw_execution *run, spw_experts *e) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    spw_status status = SPW_OK;
    SPW_TRY(spw_experts_gather_dy(run, e));
    spw_step(run, "wo weight gradient");
    SPW_TRY(spw_experts_weight_gradient(run, e, 2, &e->act, &e->dy));
    spw_dies(run, &e->act);
    spw_step(run, "gemm wo input gradient");
    SPW_TRY(spw_experts_born(run, e, &e->dw0, "d_w0_out", ffn)); /* d_act until the next step */
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &e->dy, &e->dw0));
    spw_dies(run, &e->dy);
    spw_experts_swiglu_gradient(run, e);
    spw_step(run, "gemm w0 input gradient");
    SPW_TRY(spw_experts_born(run, e, &e->dx0, "dx_w0", hidden));
    SPW_TRY(spw_experts_input_gradient(run, e, 0, &e->dw0, &e->dx0));
    spw_step(run, "gemm w1 input gradient");
    SPW_TRY(spw_experts_born(run, e, &e->dx1, "dx_w1", hidden));
    SPW_TRY(spw_experts_input_gradient(run, e, 1, &e->dw1, &e->dx1));
    spw_step(run, "w0 w1 weight gradients");
    SPW_TRY(spw_experts_weight_gradient(run, e, 0, &e->x, &e->dw0));
    SPW_TRY(spw_experts_weight_gradient(run, e, 1, &e->x, &e->dw1));
    spw_dies(run, &e->x), spw_dies(run, &e->dw0), spw_dies(run, &e->dw1);
    spw_experts_sum_dx(run, e);
cleanup:
    return status;
}
