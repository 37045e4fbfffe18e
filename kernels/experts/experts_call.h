/* The one entry of expert layers for PyTorch (docs/torch.md) and JAX (docs/jax.md): an operation by its number, its arrays by
 * their places. On a CPU the reference answers, on a GPU the kernels; shapes and meanings are those of
 * kernels/gemm/grouped_gemm_gpu.h and kernels/local/local_launch.h. */
#ifndef SPW_KERNELS_EXPERTS_EXPERTS_CALL_H
#define SPW_KERNELS_EXPERTS_EXPERTS_CALL_H

#include "base/status.h"
#include "reference/grouped_gemm.h"
#include "reference/swiglu.h"

#include <stdbool.h>
#include <stddef.h>

/* Operands and results by place; `?` may be NULL. Rows are sorted by expert; offset [experts + 1] int32. Rows of the operands
 * that `gathers` names (1: the first, 2: the second) are gathered: row r is row assignment[r] / top_k of the array.
 *   PLAN             expert [tokens][top_k] int32, negative: none          row as expert, assignment [rows], offset, scratch int32
 *                                                                          [experts (ceil(rows / 1024) + 1)], rows = tokens top_k
 *   FORWARD          x, w, offset                                          y
 *   INPUT_GRADIENT   dy, w, offset                                         dx
 *   WEIGHT_GRADIENT  x, dy, offset, assignment?                            dw?, main? fp32, which grows where dw is NULL
 *   UP               x, w, offset, assignment?, bias?                      h, act
 *   DOWN_GRADIENT    dy, w, offset, assignment, h, weight fp32             d_h, act, row_sum fp32 [ceil(in / 128)][rows]
 *   COMBINE          rows, row, weight? fp32                               y [tokens][in]
 *   ROW_SUMS         row_sum [out][rows], row                              d_weight [tokens][top_k] fp32
 * fp8: codes of e4m3 with fp32 scales of blocks of 128 (reference/float8.h), by rows, by columns and of weights in both layouts. Codes and
 * scales of a kind are both there, or neither.
 *   FLOAT8_ROWS      x, -, offset, assignment?                             by rows: code, scale?; by columns: code, scale?
 *   FLOAT8_ACTIVATION  h, d_act?, offset, assignment?, weight? fp32        as FLOAT8_ROWS, of act, in columns; row_sum as DOWN_GRADIENT
 *                    The last two operands and d_act are there for a backward pass alone: then it is act times the rows' weights
 *   FLOAT8_SLOPES    h, d_act, offset, assignment, weight fp32             as FLOAT8_ROWS, of d_h; in: columns of act
 *                    d_act [rows][in]: the gradient of act before the rows' weights
 *   FLOAT8_WEIGHTS   w                                                     [out][in]: code, scale?; [in][out]: code, scale?
 *   FLOAT8_PRODUCT   x, w [experts][out][in], offset, scales of x, of w    y
 *   FLOAT8_WEIGHT_GRADIENT   x, dy by columns, offset, scales of x, of dy  dw?, main? fp32, which grows where dw is NULL */
typedef enum spw_experts_operation {
    SPW_EXPERTS_PLAN,
    SPW_EXPERTS_FORWARD,
    SPW_EXPERTS_INPUT_GRADIENT,
    SPW_EXPERTS_WEIGHT_GRADIENT,
    SPW_EXPERTS_UP,
    SPW_EXPERTS_DOWN_GRADIENT,
    SPW_EXPERTS_COMBINE,
    SPW_EXPERTS_ROW_SUMS,
    SPW_EXPERTS_FLOAT8_ROWS,
    SPW_EXPERTS_FLOAT8_WEIGHTS,
    SPW_EXPERTS_FLOAT8_PRODUCT,
    SPW_EXPERTS_FLOAT8_WEIGHT_GRADIENT,
    SPW_EXPERTS_FLOAT8_ACTIVATION,
    SPW_EXPERTS_FLOAT8_SLOPES,
    SPW_EXPERTS_OPERATIONS
} spw_experts_operation;

/* Of UP, DOWN_GRADIENT and the two of fp8: reference/swiglu.h. All but RELU2 have a gate: w of UP and h have 2 ffn columns. bias [experts][out]. */
typedef enum spw_experts_activation {
    SPW_EXPERTS_SWIGLU,
    SPW_EXPERTS_GEGLU,
    SPW_EXPERTS_RELU2,
    SPW_EXPERTS_ACTIVATIONS
} spw_experts_activation;

/* Of arrays for which nothing else is said. */
typedef enum spw_experts_element {
    SPW_EXPERTS_BF16,
    SPW_EXPERTS_FP32, /* on a CPU alone */
    SPW_EXPERTS_FP16, /* sums in fp32: 65520 and more become infinity */
    SPW_EXPERTS_ELEMENTS
} spw_experts_element;

enum { SPW_EXPERTS_OPERANDS = 6, SPW_EXPERTS_RESULTS = 5 };
enum { SPW_EXPERTS_PLAN_CHUNK = 1024, SPW_EXPERTS_ROW_SUM_TILE = 128 }; /* of scratch and of row_sum, above */

typedef struct spw_experts_call {
    int operation, device; /* device: of a GPU; negative: the CPU */
    int element, transposed, gathers;
    int activation, pairs; /* pairs: gate and up in turn, else side by side */
    int multiprocessors;   /* of a GPU that products may take; 0: all of them */
    float limit, alpha;    /* of SWIGLU; 0: none */
    size_t experts, rows, in, out, tokens, top_k;
    spw_gemm_strides
        stride; /* of FORWARD to DOWN_GRADIENT: left and right are the first two operands, result y, dx, dw, main or act */
    const void *operand[SPW_EXPERTS_OPERANDS];
    void *result[SPW_EXPERTS_RESULTS];
    void *stream; /* of a GPU, on which the call does not wait */
} spw_experts_call;

/* Sizes are below 2^31, tokens times top_k among them, strides below 2^40. SPW_EARG says what was wrong; SPW_EDEVICE: no such GPU,
 * or it has no such kernel. */
SPW_MUST_CHECK spw_status spw_experts_run(const spw_experts_call *call);

/* Private to kernels/experts. */
static inline spw_swiglu spw_experts_swiglu(const spw_experts_call *c) {
    return (spw_swiglu){.limit = c->limit,
                        .alpha = c->alpha,
                        .plain = c->activation == SPW_EXPERTS_RELU2 ? SPW_RELU2 : SPW_GATED,
                        .gate = c->activation == SPW_EXPERTS_GEGLU ? SPW_GATE_GELU : SPW_GATE_SILU};
}
/* Where number i of a row's gate is, i times `step`, and how far its up; h has `wide` columns. */
typedef struct spw_experts_gate {
    size_t ffn, wide, step, up;
} spw_experts_gate;
static inline spw_experts_gate spw_experts_gate_of(const spw_experts_call *c, size_t ffn) {
    const bool gated = c->activation != SPW_EXPERTS_RELU2;
    return (spw_experts_gate){ffn, gated ? 2 * ffn : ffn, c->pairs ? 2 : 1, !gated ? 0 : c->pairs ? 1 : ffn};
}
/* Element i of an array of the call's type, on a CPU. */
float spw_experts_number(const spw_experts_call *c, const void *from, size_t i);
void spw_experts_put(const spw_experts_call *c, void *to, size_t i, float value);
spw_status spw_experts_cpu(const spw_experts_call *call);
spw_status spw_experts_gpu(const spw_experts_call *call);
spw_status spw_experts_float8_cpu(const spw_experts_call *call);
spw_status spw_experts_float8_gpu(const spw_experts_call *call);

#endif
