/* fp8 on a GPU: the kernels, on the stream that the framework gives. */
#include "kernels/experts/experts_call.h"
#include "kernels/gemm/grouped_gemm_gpu.h"
#include "kernels/gpu/device.h"
#include "kernels/local/float8_launch.h"

static const spw_gemm_float8_variant *fastest(void) {
    const spw_gemm_float8_variant *variant = spw_gemm_float8_variants;
    while (variant[1].name != NULL) variant++;
    return variant;
}

/* Where codes of rows of `width` numbers go. */
static spw_status codes_of(const spw_experts_call *c, size_t width, spw_float8_gpu *q) {
    *q = (spw_float8_gpu){.experts = (int)c->experts,
                          .rows = (int)c->rows,
                          .width = (int)width,
                          .offset = c->operand[2],
                          .code = c->result[0],
                          .scale = c->result[1],
                          .column_code = c->result[2],
                          .column_scale = c->result[3]};
    if (width % 16 == 0 && width != 0 && c->experts != 0) return SPW_OK;
    return spw_fail(SPW_EARG,
                    "codes of rows: width %zu, %zu experts; a positive multiple of 16, and an expert, "
                    "would be right",
                    width, c->experts);
}

static spw_status code_rows(const spw_experts_call *c) {
    spw_float8_gpu q;
    const spw_status status = codes_of(c, c->in, &q);
    if (status != SPW_OK) return status;
    return spw_device_check(c->gathers != 0 ? spw_launch_float8_gathered(q, c->operand[0], c->operand[3],
                                                                         (int)c->top_k, c->stream)
                                            : spw_launch_float8_rows(q, c->operand[0], c->stream),
                            "codes of rows");
}

static spw_swiglu_gpu activation_of(const spw_experts_call *c) {
    static const spw_activation_form forms[SPW_EXPERTS_ACTIVATIONS][2] = {
        [SPW_EXPERTS_SWIGLU] = {SPW_FORM_SWIGLU, SPW_FORM_SWIGLU_PAIRS},
        [SPW_EXPERTS_GEGLU] = {SPW_FORM_GEGLU, SPW_FORM_GEGLU_PAIRS},
        [SPW_EXPERTS_RELU2] = {SPW_FORM_RELU2, SPW_FORM_RELU2}};
    const spw_bf16 *h = c->operand[0];
    return (spw_swiglu_gpu){.rows = (int)c->rows,
                            .ffn = (int)c->in,
                            .stride = (int)spw_experts_gate_of(c, c->in).wide,
                            .limit = c->limit,
                            .alpha = c->alpha,
                            .form = (int)forms[c->activation][c->pairs != 0],
                            .gate = h,
                            .up = h + c->in};
}

static spw_status code_activation(const spw_experts_call *c) {
    const spw_float8_backward_gpu b = {activation_of(c), c->operand[1], c->operand[3], c->operand[4],
                                       c->result[4]};
    const bool slopes = c->operation == SPW_EXPERTS_FLOAT8_SLOPES;
    spw_float8_gpu q;
    spw_status status = codes_of(c, c->in, &q);
    if (status == SPW_OK && slopes) status = codes_of(c, (size_t)b.s.stride, &q);
    if (status != SPW_OK) return status;
    return spw_device_check(slopes            ? spw_launch_float8_slopes(q, b, c->stream)
                            : b.d_act == NULL ? spw_launch_float8_activation(q, b.s, c->stream)
                                              : spw_launch_float8_weighted(q, b, c->stream),
                            "codes of an activation");
}

static spw_status code_weights(const spw_experts_call *c) {
    const int down = c->transposed != 0 ? 0 : 2; /* which results lie as w does */
    const spw_float8_weights_gpu q = {.experts = (int)c->experts,
                                      .rows = (int)(c->transposed != 0 ? c->out : c->in),
                                      .columns = (int)(c->transposed != 0 ? c->in : c->out),
                                      .code = c->result[down],
                                      .scale = c->result[down + 1],
                                      .turned_code = c->result[2 - down],
                                      .turned_scale = c->result[3 - down]};
    if (c->in % 8 != 0 || c->out % 8 != 0)
        return spw_fail(SPW_EARG, "codes of weights: %zu x %zu; multiples of 8 would be right", c->in,
                        c->out);
    return spw_device_check(spw_launch_float8_weights(q, c->operand[0], c->stream), "codes of weights");
}

static spw_status product(const spw_experts_call *c) {
    const spw_gemm_shape shape = {c->experts, c->rows, c->in, c->out, true};
    return spw_gpu_grouped_gemm_float8(fastest(), shape, c->operand[0], c->operand[3], c->operand[1],
                                       c->operand[4], c->operand[2], c->result[0], c->stream);
}

static spw_status weight_gradient(const spw_experts_call *c) {
    const spw_gemm_shape shape = {c->experts, c->rows, c->in, c->out, c->transposed != 0};
    const spw_gemm_float8_gradient g = {.x = c->operand[0],
                                        .dy = c->operand[1],
                                        .x_scale = c->operand[3],
                                        .dy_scale = c->operand[4],
                                        .offset = c->operand[2],
                                        .dw = c->result[0],
                                        .main = c->result[1]};
    return spw_gpu_grouped_gemm_float8_weight_gradient(fastest(), shape, &g, c->stream);
}

spw_status spw_experts_float8_gpu(const spw_experts_call *c) {
    if (c->element != SPW_EXPERTS_BF16)
        return spw_fail(SPW_EARG, "fp8 of element %d; bf16 would be right on a GPU", c->element);
    static spw_status (*const works[SPW_EXPERTS_OPERATIONS])(const spw_experts_call *) = {
        [SPW_EXPERTS_FLOAT8_ROWS] = code_rows,
        [SPW_EXPERTS_FLOAT8_WEIGHTS] = code_weights,
        [SPW_EXPERTS_FLOAT8_PRODUCT] = product,
        [SPW_EXPERTS_FLOAT8_WEIGHT_GRADIENT] = weight_gradient,
        [SPW_EXPERTS_FLOAT8_ACTIVATION] = code_activation,
        [SPW_EXPERTS_FLOAT8_SLOPES] = code_activation,
    };
    return works[c->operation](c);
}
