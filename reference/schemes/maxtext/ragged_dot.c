#include "reference/schemes/maxtext/ragged_dot.h"

#include "reference/grouped_gemm.h"

#include "base/memory.h"

#include <string.h>

static const char hidden_operand[] = "ragged_dot_hidden_operand", ffn_operand[] = "ragged_dot_ffn_operand";

typedef struct operand {
    float *at; /* [rows][width]: of [local][rows][width] what is not 0 */
    size_t rank;
} operand;

static spw_status operand_create(spw_execution *run, const spw_experts *e, size_t rank, const char *name,
                                 size_t width, const float *rows, operand *out) {
    size_t bytes = 0;
    if (!spw_mul_size(run->local * e->rows, width, &bytes) ||
        !spw_mul_size(bytes, run->shape.element_bytes, &bytes)) {
        return spw_fail(SPW_EARG, "%s of rank %zu overflows size_t", name, rank);
    }
    *out = (operand){.rank = rank};
    const spw_status status = spw_arena_take(run->arena, rank, name, e->rows * width, bytes, &out->at);
    if (status == SPW_OK) memcpy(out->at, rows, e->rows * width * sizeof *rows);
    return status;
}

static void operand_destroy(spw_execution *run, operand *o) { spw_arena_give(run->arena, o->rank, o->at); }

/* y of the rank = operand times weights; gradient: dx = operand times weights transposed. */
static spw_status multiply(spw_execution *run, const spw_experts *e, const operand *o, int weight,
                           bool gradient, float *y) {
    return (gradient ? spw_ref_grouped_gemm_input_gradient : spw_ref_grouped_gemm)(
        spw_experts_shape(run, e, o->rank, weight), o->at, spw_rank_weights(run, o->rank, weight),
        spw_experts_offset(run, e, o->rank), y, NULL);
}

static spw_status weight_gradient(spw_execution *run, const spw_experts *e, const operand *o, int weight,
                                  const float *dy) {
    return spw_ref_grouped_gemm_weight_gradient(spw_experts_shape(run, e, o->rank, weight), o->at, dy,
                                                spw_experts_offset(run, e, o->rank),
                                                spw_rank_weight_gradients(run, o->rank, weight), NULL);
}

/* y = ragged_dot(x, w); y is born here. */
static spw_status ragged_dot(spw_execution *run, const spw_experts *e, int weight, const spw_spread *x,
                             const char *name, spw_spread *y) {
    static const char *const steps[] = {"ragged_dot w0", "ragged_dot w1", "ragged_dot wo"};
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    spw_status status = SPW_OK;
    spw_step(run, steps[weight]);
    SPW_TRY(spw_born(run, y, name, e->rows, weight == 2 ? hidden : ffn));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        operand o = {.at = NULL};
        SPW_TRY(operand_create(run, e, r, weight == 2 ? ffn_operand : hidden_operand,
                               weight == 2 ? ffn : hidden, x->at[r], &o));
        SPW_TRY(multiply(run, e, &o, weight, false, y->at[r]));
        operand_destroy(run, &o);
    }
cleanup:
    return status;
}

spw_status spw_ragged_dot_forward(spw_execution *run, spw_experts *e, bool keep) {
    spw_status status = SPW_OK;
    SPW_TRY(ragged_dot(run, e, 0, &e->x, "w0_out", &e->w0));
    SPW_TRY(ragged_dot(run, e, 1, &e->x, "w1_out", &e->w1));
    if (!keep) spw_dies(run, &e->x);
    spw_step(run, "swiglu");
    SPW_TRY(spw_born(run, &e->act, "act", e->rows, run->shape.ffn));
    spw_experts_swiglu(run, e);
    if (!keep) spw_dies(run, &e->w0), spw_dies(run, &e->w1);
    SPW_TRY(ragged_dot(run, e, 2, &e->act, spw_experts_last(run), &e->y));
    if (!keep) spw_dies(run, &e->act);
    SPW_TRY(spw_experts_sum_y(run, e));
cleanup:
    return status;
}

/* Both gradients of wo: d_act, which d_w0_out holds until the next step, and the weights'. A rank's act and dy die with
 * its operands. */
static spw_status gradients_of_wo(spw_execution *run, spw_experts *e) {
    spw_status status = SPW_OK;
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    size_t bytes = e->rows * ffn * run->shape.element_bytes;
    spw_step(run, "gradients of wo");
    e->dw0 = (spw_spread){.rows = e->rows, .width = ffn};
    for (size_t r = 0; r < run->shape.ranks; r++) {
        operand of_dy = {.at = NULL}, of_act = {.at = NULL};
        SPW_TRY(operand_create(run, e, r, hidden_operand, hidden, e->dy.at[r], &of_dy));
        SPW_TRY(operand_create(run, e, r, ffn_operand, ffn, e->act.at[r], &of_act));
        spw_arena_give(run->arena, r, e->act.at[r]);
        SPW_TRY(spw_arena_take(run->arena, r, "d_w0_out", e->rows * ffn, bytes, &e->dw0.at[r]));
        SPW_TRY(weight_gradient(run, e, &of_act, 2, e->dy.at[r]));
        operand_destroy(run, &of_act);
        SPW_TRY(multiply(run, e, &of_dy, 2, true, e->dw0.at[r]));
        operand_destroy(run, &of_dy);
        spw_arena_give(run->arena, r, e->dy.at[r]);
    }
    e->act = e->dy = (spw_spread){.rows = 0};
cleanup:
    return status;
}

/* Both gradients of w0 or w1: dx (born here) and the weights'; the gradient of the product dies. */
static spw_status gradients_of_w(spw_execution *run, spw_experts *e, int weight, spw_spread *d,
                                 const char *name, spw_spread *dx) {
    static const char *const steps[] = {"gradients of w0", "gradients of w1"};
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    spw_status status = SPW_OK;
    spw_step(run, steps[weight]);
    SPW_TRY(spw_born(run, dx, name, e->rows, hidden));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        operand of_d = {.at = NULL}, of_x = {.at = NULL};
        SPW_TRY(operand_create(run, e, r, ffn_operand, ffn, d->at[r], &of_d));
        SPW_TRY(operand_create(run, e, r, hidden_operand, hidden, e->x.at[r], &of_x));
        SPW_TRY(weight_gradient(run, e, &of_x, weight, d->at[r]));
        operand_destroy(run, &of_x);
        SPW_TRY(multiply(run, e, &of_d, weight, true, dx->at[r]));
        operand_destroy(run, &of_d);
    }
    spw_dies(run, d);
cleanup:
    return status;
}

spw_status spw_ragged_dot_backward(spw_execution *run, spw_experts *e) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_experts_gather_dy(run, e));
    SPW_TRY(gradients_of_wo(run, e));
    spw_experts_swiglu_gradient(run, e);
    SPW_TRY(gradients_of_w(run, e, 0, &e->dw0, "dx_w0", &e->dx0));
    SPW_TRY(gradients_of_w(run, e, 1, &e->dw1, "dx_w1", &e->dx1));
    spw_dies(run, &e->x);
    spw_experts_sum_dx(run, e);
cleanup:
    return status;
}
