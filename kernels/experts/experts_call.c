#include "kernels/experts/experts_call.h"

#include "base/memory.h"

#include <stdint.h>

/* What each operation may leave out, as bits: operands, then results; and how many of each it has. */
typedef struct places {
    const char *name;
    unsigned operands, operands_free, results, results_free;
} places;
static const places places_of[SPW_EXPERTS_OPERATIONS] = {
    [SPW_EXPERTS_PLAN] = {"plan", 1, 0, 4, 0},
    [SPW_EXPERTS_FORWARD] = {"forward", 3, 0, 1, 0},
    [SPW_EXPERTS_INPUT_GRADIENT] = {"input gradient", 3, 0, 1, 0},
    [SPW_EXPERTS_WEIGHT_GRADIENT] = {"weight gradient", 4, 1u << 3, 2, 3},
    [SPW_EXPERTS_UP] = {"up", 5, 3u << 3, 2, 0},
    [SPW_EXPERTS_DOWN_GRADIENT] = {"down gradient", 6, 0, 3, 0},
    [SPW_EXPERTS_COMBINE] = {"combine", 3, 1u << 2, 1, 0},
    [SPW_EXPERTS_ROW_SUMS] = {"row sums", 2, 0, 1, 0},
    [SPW_EXPERTS_FLOAT8_ROWS] = {"fp8 of rows", 4, 5u << 1, 4, 15},
    [SPW_EXPERTS_FLOAT8_WEIGHTS] = {"fp8 of weights", 1, 0, 4, 15},
    [SPW_EXPERTS_FLOAT8_PRODUCT] = {"fp8 product", 5, 0, 1, 0},
    [SPW_EXPERTS_FLOAT8_WEIGHT_GRADIENT] = {"fp8 weight gradient", 5, 0, 2, 3},
    [SPW_EXPERTS_FLOAT8_ACTIVATION] = {"fp8 of an activation", 5, 13u << 1, 5, 31},
    [SPW_EXPERTS_FLOAT8_SLOPES] = {"fp8 of an activation's gradient", 5, 0, 4, 15},
};

/* Rows and choices are counted in int32, and no product of sizes wraps. */
static spw_status check_sizes(const spw_experts_call *c) {
    const size_t most = INT32_MAX, all[] = {c->experts, c->rows, c->in, c->out, c->tokens, c->top_k};
    size_t choices = 0, weights = 0;
    bool good = spw_mul_size(c->tokens, c->top_k, &choices) && choices <= most;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) good = good && all[i] <= most;
    if (!good || !spw_mul_size(c->experts, c->in * c->out, &weights) || weights > SIZE_MAX / sizeof(double))
        return spw_fail(
            SPW_EARG,
            "%s: %zu experts of %zu x %zu, %zu rows, %zu tokens, top-%zu: each below 2^31, and so "
            "many choices, would be right",
            places_of[c->operation].name, c->experts, c->in, c->out, c->rows, c->tokens, c->top_k);
    if (c->operation == SPW_EXPERTS_PLAN && c->rows != choices)
        return spw_fail(SPW_EARG, "plan: %zu rows of %zu tokens, top-%zu; %zu would be right", c->rows,
                        c->tokens, c->top_k, choices);
    return SPW_OK;
}

static spw_status check_activation(const spw_experts_call *c) {
    if (c->activation < 0 || c->activation >= SPW_EXPERTS_ACTIVATIONS)
        return spw_fail(SPW_EARG, "activation %d; one of 0 to %d would be right", c->activation,
                        SPW_EXPERTS_ACTIVATIONS - 1);
    if (!(c->limit >= 0) || (c->limit > 0 && c->activation != SPW_EXPERTS_SWIGLU))
        return spw_fail(SPW_EARG,
                        "activation %d with a limit of %g; 0, or a positive one of SwiGLU, would be right",
                        c->activation, (double)c->limit);
    if (c->pairs != 0 && c->activation == SPW_EXPERTS_RELU2)
        return spw_fail(SPW_EARG, "ReLU squared with gate and up in turn; one matrix would be right");
    if (c->operation == SPW_EXPERTS_UP && c->activation != SPW_EXPERTS_RELU2 && c->out % 2 != 0)
        return spw_fail(SPW_EARG, "up: %zu columns of gate and up; an even number would be right", c->out);
    return SPW_OK;
}

static spw_status check_float8(const spw_experts_call *c) {
    const bool codes = c->operation != SPW_EXPERTS_FLOAT8_PRODUCT &&
                       c->operation != SPW_EXPERTS_FLOAT8_WEIGHT_GRADIENT,
               backward = c->operand[1] != NULL;
    if (codes && ((c->result[0] == NULL) != (c->result[1] == NULL) ||
                  (c->result[2] == NULL) != (c->result[3] == NULL)))
        return spw_fail(SPW_EARG, "%s: codes without scales or scales without codes; both would be right",
                        places_of[c->operation].name);
    if (c->operation == SPW_EXPERTS_FLOAT8_ACTIVATION &&
        ((c->operand[3] != NULL) != backward || (c->operand[4] != NULL) != backward ||
         (c->result[4] != NULL) != backward))
        return spw_fail(SPW_EARG,
                        "%s: of d_act, assignment, weight and row_sum some; all or none would be right",
                        places_of[c->operation].name);
    if (c->gathers != 0 && c->operation != SPW_EXPERTS_FLOAT8_ROWS)
        return spw_fail(SPW_EARG, "%s: rows that are gathered; rows in order would be right",
                        places_of[c->operation].name);
    return SPW_OK;
}

static const size_t STRIDE_MAX = ((size_t)1 << 40) - 1;

/* Of which operations arrays may have strides; what is right is checked where they are read. */
static spw_status check_strides(const spw_experts_call *c) {
    const spw_gemm_strides s = c->stride;
    const bool product = c->operation >= SPW_EXPERTS_FORWARD && c->operation <= SPW_EXPERTS_DOWN_GRADIENT;
    if ((s.left | s.right | s.result | s.expert | s.h | s.d_h) > STRIDE_MAX)
        return spw_fail(SPW_EARG, "%s: strides of %zu, %zu, %zu, %zu, %zu, %zu; below 2^40 would be right",
                        places_of[c->operation].name, s.left, s.right, s.result, s.expert, s.h, s.d_h);
    if (product || (s.left | s.right | s.result | s.expert | s.h | s.d_h) == 0) return SPW_OK;
    return spw_fail(SPW_EARG, "%s of an array with a stride; packed ones would be right",
                    places_of[c->operation].name);
}

static bool is_float8(int operation) { return operation >= SPW_EXPERTS_FLOAT8_ROWS; }

static spw_status check_places(const spw_experts_call *c) {
    if (c->operation < 0 || c->operation >= SPW_EXPERTS_OPERATIONS)
        return spw_fail(SPW_EARG, "operation %d; one of 0 to %d would be right", c->operation,
                        SPW_EXPERTS_OPERATIONS - 1);
    if (c->element < 0 || c->element >= SPW_EXPERTS_ELEMENTS)
        return spw_fail(SPW_EARG, "element %d; one of 0 to %d would be right", c->element,
                        SPW_EXPERTS_ELEMENTS - 1);
    if (c->multiprocessors < 0)
        return spw_fail(SPW_EARG, "%d multiprocessors; 0 for all, or more, would be right",
                        c->multiprocessors);
    const places *p = &places_of[c->operation];
    for (unsigned i = 0; i < p->operands; i++)
        if (c->operand[i] == NULL && !(p->operands_free >> i & 1))
            return spw_fail(SPW_EARG, "%s: operand %u is missing", p->name, i);
    for (unsigned i = 0; i < p->results; i++)
        if (c->result[i] == NULL && !(p->results_free >> i & 1))
            return spw_fail(SPW_EARG, "%s: result %u is missing", p->name, i);
    if (c->gathers != 0 && (c->operand[3] == NULL || c->top_k == 0))
        return spw_fail(SPW_EARG, "%s: rows are gathered by assignments and top_k, of which one is missing",
                        p->name);
    if ((c->operation == SPW_EXPERTS_WEIGHT_GRADIENT || c->operation == SPW_EXPERTS_FLOAT8_WEIGHT_GRADIENT) &&
        (c->result[0] == NULL) == (c->result[1] == NULL))
        return spw_fail(SPW_EARG, "weight gradient: either dw or main would be right");
    spw_status status = check_sizes(c);
    if (status == SPW_OK) status = check_strides(c);
    if (status == SPW_OK) status = check_activation(c);
    if (status == SPW_OK && is_float8(c->operation)) status = check_float8(c);
    return status;
}

#if !defined(SPW_EXPERTS_GPU)
spw_status spw_experts_gpu(const spw_experts_call *c) {
    return spw_fail(SPW_EDEVICE,
                    "GPU %d: this library is for CPUs; what kernels/build.sh torch-cuda or jax-cuda builds "
                    "would be right",
                    c->device);
}
#endif

spw_status spw_experts_run(const spw_experts_call *call) {
    const spw_status status = check_places(call);
    if (status != SPW_OK) return status;
    if (call->device < 0)
        return is_float8(call->operation) ? spw_experts_float8_cpu(call) : spw_experts_cpu(call);
    return spw_experts_gpu(call);
}
