#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/layer/layer_steps.h"

spw_status spw_gpu_layer_mark(const spw_layer_gpu *l, size_t rank, spw_layer_phase phase) {
    return l->watch.mark != NULL ? l->watch.mark(l->watch.data, rank, phase) : SPW_OK;
}

spw_status spw_gpu_layer_mark_all(const spw_layer_gpu *l, spw_layer_phase phase) {
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind && l->watch.mark != NULL; r++) {
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY(spw_gpu_layer_mark(l, r, phase));
    }
cleanup:
    return status;
}

/* A phase that one launch makes, unless it failed. */
static spw_status marked(spw_status launched, const spw_layer_gpu *l, size_t rank, spw_layer_phase phase) {
    return launched == SPW_OK ? spw_gpu_layer_mark(l, rank, phase) : launched;
}

static spw_status gemm(const spw_layer_gpu *l, size_t rank, spw_gemm_operation operation, size_t in,
                       size_t out, const spw_bf16 *left, const spw_bf16 *right, spw_bf16 *result,
                       spw_layer_phase phase) {
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_shape shape = {l->local, k->rows, in, out, false};
    return marked(spw_gpu_grouped_gemm(l->gemm, operation, shape, left, right, k->offset, result,
                                       l->world->stream[rank]),
                  l, rank, phase);
}

static spw_swiglu_gpu swiglu_of(const spw_layer_gpu *l, const spw_layer_rank *k) {
    const int ffn = (int)l->form.ffn;
    const spw_swiglu kind = l->form.activation;
    return (spw_swiglu_gpu){.rows = (int)k->rows,
                            .ffn = ffn,
                            .stride = 2 * ffn,
                            .limit = kind.limit,
                            .alpha = kind.alpha,
                            .form = kind.gate == SPW_GATE_GELU ? SPW_FORM_GEGLU : SPW_FORM_SWIGLU,
                            .gate = k->gate_up,
                            .up = k->gate_up + ffn};
}

/* gate_up, act and y of x. */
static spw_status forward_fused(const spw_layer_gpu *l, size_t rank, spw_layer_operands o) {
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_shape shape = {l->local, k->rows, l->form.plain.hidden, 2 * l->form.ffn, false};
    const spw_gemm_up g = {.x = o.x,
                           .w = k->gate_up_weight,
                           .offset = k->offset,
                           .h = k->gate_up,
                           .act = k->act,
                           .activation = {l->form.activation, false, NULL}};
    return marked(spw_gpu_grouped_gemm_up(shape, o.rows, &g, l->world->stream[rank]), l, rank,
                  SPW_LAYER_GEMM1);
}

spw_status spw_gpu_layer_experts_forward(const spw_layer_gpu *l, size_t rank, spw_layer_operands o,
                                         spw_bf16 *y) {
    const size_t h = l->form.plain.hidden, f = l->form.ffn;
    const spw_layer_rank *k = &l->rank[rank];
    spw_status status = SPW_OK;
    if (l->fused) {
        SPW_TRY(forward_fused(l, rank, o));
    } else {
        SPW_TRY(
            gemm(l, rank, SPW_GEMM_FORWARD, h, 2 * f, o.x, k->gate_up_weight, k->gate_up, SPW_LAYER_GEMM1));
        SPW_TRY_GPU(spw_launch_activation(swiglu_of(l, k), k->act, l->world->stream[rank]), "activation");
        SPW_TRY(spw_gpu_layer_mark(l, rank, SPW_LAYER_SWIGLU));
    }
    SPW_TRY(gemm(l, rank, SPW_GEMM_FORWARD, f, h, k->act, k->down_weight, y, SPW_LAYER_GEMM2));
cleanup:
    return status;
}

/* A gradient of weights, of which rows of x or of dy are gathered where any are. */
static spw_status weights(const spw_layer_gpu *l, size_t rank, size_t in, size_t out, spw_gemm_rows rows,
                          spw_gemm_weight_gradient g, spw_layer_phase phase) {
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_shape shape = {l->local, k->rows, in, out, false};
    if (!l->fused) return gemm(l, rank, SPW_GEMM_WEIGHT_GRADIENT, in, out, g.x, g.dy, g.dw, phase);
    g.offset = k->offset;
    return marked(spw_gpu_grouped_gemm_weight_gradient(shape, rows, &g, l->world->stream[rank]), l, rank,
                  phase);
}

/* d_gate_up of dy, and act times the rows' weights. */
static spw_status backward_fused(const spw_layer_gpu *l, size_t rank, spw_layer_operands o) {
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_shape shape = {l->local, k->rows, l->form.ffn, l->form.plain.hidden, false};
    const spw_gemm_down_gradient g = {.dy = o.dy,
                                      .weight = o.weight,
                                      .w = k->down_weight,
                                      .h = k->gate_up,
                                      .offset = k->offset,
                                      .d_h = k->d_gate_up,
                                      .act = k->act,
                                      .row_sum = (float *)(void *)k->row_sum,
                                      .activation = {l->form.activation, false, NULL}};
    return marked(spw_gpu_grouped_gemm_down_gradient(shape, o.rows, &g, l->world->stream[rank]), l, rank,
                  SPW_LAYER_GEMM2_INPUT_GRADIENT);
}

spw_status spw_gpu_layer_experts_backward(const spw_layer_gpu *l, size_t rank, spw_layer_operands o,
                                          spw_bf16 *dx) {
    const size_t h = l->form.plain.hidden, f = l->form.ffn;
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_weight_gradient down = {.x = k->act, .dy = o.dy, .dw = k->down_gradient};
    const spw_gemm_weight_gradient up = {
        .x = o.x, .dy = k->d_gate_up, .gathers_x = true, .dw = k->gate_up_gradient};
    spw_status status = SPW_OK;
    if (l->fused)
        SPW_TRY(backward_fused(l, rank, o));
    else
        SPW_TRY(gemm(l, rank, SPW_GEMM_INPUT_GRADIENT, f, h, o.dy, k->down_weight, k->d_act,
                     SPW_LAYER_GEMM2_INPUT_GRADIENT));
    SPW_TRY(weights(l, rank, f, h, o.rows, down, SPW_LAYER_GEMM2_WEIGHT_GRADIENT));
    if (!l->fused) {
        SPW_TRY_GPU(spw_launch_activation_gradient(swiglu_of(l, k), k->d_act, k->d_gate_up, k->d_gate_up + f,
                                                   l->world->stream[rank]),
                    "activation gradient");
        SPW_TRY(spw_gpu_layer_mark(l, rank, SPW_LAYER_SWIGLU_GRADIENT));
    }
    SPW_TRY(gemm(l, rank, SPW_GEMM_INPUT_GRADIENT, h, 2 * f, k->d_gate_up, k->gate_up_weight, dx,
                 SPW_LAYER_GEMM1_INPUT_GRADIENT));
    SPW_TRY(weights(l, rank, h, 2 * f, o.rows, up, SPW_LAYER_GEMM1_WEIGHT_GRADIENT));
cleanup:
    return status;
}
