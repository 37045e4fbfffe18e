/* The operations on a GPU: the kernels, on the stream that the framework gives. Nothing waits. */
#include "kernels/experts/experts_call.h"
#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/gemm/grouped_gemm_gpu.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/local/local_launch.h"

#include <limits.h>
#include <stdint.h>

enum { ALIGNED = 16 };

_Static_assert((int)SPW_EXPERTS_PLAN_CHUNK == (int)SPW_PLAN_CHUNK, "the plan's scratch");
_Static_assert((int)SPW_EXPERTS_ROW_SUM_TILE == (int)SPW_GEMM_ROW_SUM_TILE, "parts of a row's sum");

static spw_status check(const spw_experts_call *c) {
    const size_t most = INT_MAX / 2;
    if (c->element == SPW_EXPERTS_FP32)
        return spw_fail(SPW_EARG, "fp32; bf16 or fp16 would be right on a GPU");
    for (int i = 0; i < SPW_EXPERTS_OPERANDS; i++)
        if ((uintptr_t)c->operand[i] % ALIGNED != 0)
            return spw_fail(SPW_EARG, "operand %d lies at %p; a multiple of %d bytes would be right", i,
                            c->operand[i], ALIGNED);
    for (int i = 0; i < SPW_EXPERTS_RESULTS; i++)
        if ((uintptr_t)c->result[i] % ALIGNED != 0)
            return spw_fail(SPW_EARG, "result %d lies at %p; a multiple of %d bytes would be right", i,
                            c->result[i], ALIGNED);
    if (c->experts > most || c->rows > most || c->tokens > most || c->in > most || c->out > most)
        return spw_fail(SPW_EARG, "%zu experts, %zu rows, %zu tokens: each below 2^30 would be right",
                        c->experts, c->rows, c->tokens);
    return SPW_OK;
}

static spw_gemm_shape shape_of(const spw_experts_call *c) {
    return (spw_gemm_shape){.experts = c->experts,
                            .rows = c->rows,
                            .in = c->in,
                            .out = c->out,
                            .transposed = c->transposed != 0,
                            .element = c->element == SPW_EXPERTS_FP16 ? SPW_GEMM_FP16 : SPW_GEMM_BF16,
                            .multiprocessors = (size_t)c->multiprocessors,
                            .stride = c->stride};
}

static spw_gemm_rows rows_of(const spw_experts_call *c) {
    return c->gathers != 0 ? (spw_gemm_rows){c->operand[3], c->top_k, c->tokens}
                           : (spw_gemm_rows){NULL, 0, 0};
}

static spw_status plan(const spw_experts_call *c) {
    if (c->experts > SPW_GPU_EXPERTS_MAX || c->top_k > SPW_GPU_TOP_K_MAX)
        return spw_fail(SPW_EARG, "top-%zu of %zu experts; at most %d of %d would be right", c->top_k,
                        c->experts, SPW_GPU_TOP_K_MAX, SPW_GPU_EXPERTS_MAX);
    int *scratch = c->result[3];
    const spw_plan_gpu p = {.assignments = (int)(c->tokens * c->top_k),
                            .experts = (int)c->experts,
                            .expert = c->operand[0],
                            .count = scratch,
                            .chunk_count = scratch + c->experts,
                            .row = c->result[0],
                            .assignment = c->result[1],
                            .offset = c->result[2]};
    return spw_device_check(spw_launch_plan(p, c->stream), "plan");
}

static spw_status product(const spw_experts_call *c, spw_gemm_operation operation) {
    const spw_gemm_variant *fastest = spw_gemm_variants;
    while (fastest[1].name != NULL) fastest++;
    return spw_gpu_grouped_gemm(fastest, operation, shape_of(c), c->operand[0], c->operand[1], c->operand[2],
                                c->result[0], c->stream);
}

static spw_status forward(const spw_experts_call *c) { return product(c, SPW_GEMM_FORWARD); }
static spw_status input_gradient(const spw_experts_call *c) { return product(c, SPW_GEMM_INPUT_GRADIENT); }

static spw_status weight_gradient(const spw_experts_call *c) {
    if (c->gathers == 0 && c->result[0] != NULL) return product(c, SPW_GEMM_WEIGHT_GRADIENT);
    const spw_gemm_rows rows = rows_of(c);
    const spw_gemm_weight_gradient g = {.x = c->operand[0],
                                        .dy = c->operand[1],
                                        .gathers_x = c->gathers == 1,
                                        .offset = c->operand[2],
                                        .dw = c->result[0],
                                        .main = c->result[1]};
    return spw_gpu_grouped_gemm_weight_gradient(shape_of(c), rows, &g, c->stream);
}

static spw_gemm_activation activation_of(const spw_experts_call *c, const void *bias) {
    return (spw_gemm_activation){spw_experts_swiglu(c), c->pairs != 0, bias};
}

static spw_status up(const spw_experts_call *c) {
    const spw_gemm_rows rows = rows_of(c);
    const spw_gemm_up g = {c->operand[0], c->operand[1], c->operand[2],
                           c->result[0],  c->result[1],  activation_of(c, c->operand[4])};
    return spw_gpu_grouped_gemm_up(shape_of(c), rows, &g, c->stream);
}

static spw_status down_gradient(const spw_experts_call *c) {
    const spw_gemm_rows rows = {c->operand[3], c->gathers != 0 ? c->top_k : 0, c->tokens};
    const spw_gemm_down_gradient g = {.dy = c->operand[0],
                                      .weight = c->operand[5],
                                      .w = c->operand[1],
                                      .h = c->operand[4],
                                      .offset = c->operand[2],
                                      .d_h = c->result[0],
                                      .act = c->result[1],
                                      .row_sum = c->result[2],
                                      .activation = activation_of(c, NULL)};
    return spw_gpu_grouped_gemm_down_gradient(shape_of(c), rows, &g, c->stream);
}

static spw_status combine(const spw_experts_call *c) {
    if (c->in % 8 != 0 || c->top_k > SPW_GPU_TOP_K_MAX)
        return spw_fail(SPW_EARG, "width %zu, top-%zu; a multiple of 8 and at most %d would be right", c->in,
                        c->top_k, SPW_GPU_TOP_K_MAX);
    const spw_combine_gpu of = {.tokens = (int)c->tokens,
                                .width = (int)c->in,
                                .top_k = (int)c->top_k,
                                .row = c->operand[1],
                                .weight = c->operand[2],
                                .rows = c->operand[0],
                                .y = c->result[0],
                                .fp16 = c->element == SPW_EXPERTS_FP16};
    return spw_device_check(spw_launch_combine(of, c->stream), "combine");
}

static spw_status row_sums(const spw_experts_call *c) {
    return spw_device_check(spw_launch_row_sums((int)(c->tokens * c->top_k), (int)c->rows, (int)c->out,
                                                c->operand[1], c->operand[0], c->result[0], c->stream),
                            "row sums");
}

spw_status spw_experts_gpu(const spw_experts_call *c) {
    static spw_status (*const works[SPW_EXPERTS_OPERATIONS])(const spw_experts_call *) = {
        [SPW_EXPERTS_PLAN] = plan,
        [SPW_EXPERTS_FORWARD] = forward,
        [SPW_EXPERTS_INPUT_GRADIENT] = input_gradient,
        [SPW_EXPERTS_WEIGHT_GRADIENT] = weight_gradient,
        [SPW_EXPERTS_UP] = up,
        [SPW_EXPERTS_DOWN_GRADIENT] = down_gradient,
        [SPW_EXPERTS_COMBINE] = combine,
        [SPW_EXPERTS_ROW_SUMS] = row_sums,
        [SPW_EXPERTS_FLOAT8_ROWS] = spw_experts_float8_gpu,
        [SPW_EXPERTS_FLOAT8_WEIGHTS] = spw_experts_float8_gpu,
        [SPW_EXPERTS_FLOAT8_PRODUCT] = spw_experts_float8_gpu,
        [SPW_EXPERTS_FLOAT8_WEIGHT_GRADIENT] = spw_experts_float8_gpu,
        [SPW_EXPERTS_FLOAT8_ACTIVATION] = spw_experts_float8_gpu,
        [SPW_EXPERTS_FLOAT8_SLOPES] = spw_experts_float8_gpu,
    };
    spw_status status = SPW_OK;
    SPW_TRY(check(c));
    SPW_TRY_GPU(cudaSetDevice(c->device), "choose a GPU");
    SPW_TRY(works[c->operation](c));
cleanup:
    return status;
}
