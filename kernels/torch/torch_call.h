/* The one entry of PyTorch's operators (spillway_torch.py, docs/torch.md): an operation by its number, its arrays by their places. On a CPU
 * the reference answers, on a GPU the kernels; shapes and meanings are those of kernels/gemm/grouped_gemm_gpu.h and
 * kernels/local/local_launch.h. */
#ifndef SPW_KERNELS_TORCH_TORCH_CALL_H
#define SPW_KERNELS_TORCH_TORCH_CALL_H

#include "base/status.h"
#include "reference/swiglu.h"

#include <stdbool.h>
#include <stddef.h>

/* Operands and results by place; `?` may be NULL. Rows are sorted by expert; offset [experts + 1] int32. Rows of the operands that `gathers`
 * names (1: the first, 2: the second) are gathered: row r is row assignment[r] / top_k of the array.
 *   PLAN             expert [tokens][top_k] int32, negative: none          row as expert, assignment [rows], offset, scratch int32
 *                                                                          [experts (ceil(rows / 1024) + 1)], rows = tokens top_k
 *   FORWARD          x, w, offset                                          y
 *   INPUT_GRADIENT   dy, w, offset                                         dx
 *   WEIGHT_GRADIENT  x, dy, offset, assignment?                            dw?, main? fp32, which grows where dw is NULL
 *   UP               x, w, offset, assignment?, bias?                      h, act
 *   DOWN_GRADIENT    dy, w, offset, assignment, h, weight fp32             d_h, act, row_sum fp32 [ceil(in / 256)][rows]
 *   COMBINE          rows, row, weight? fp32                               y [tokens][in]
 *   ROW_SUMS         row_sum [out][rows], row                              d_weight [tokens][top_k] fp32
 *   ABOUT            -                                                     int32: 1 where UP and DOWN_GRADIENT are there */
typedef enum spw_torch_operation {
    SPW_TORCH_PLAN,
    SPW_TORCH_FORWARD,
    SPW_TORCH_INPUT_GRADIENT,
    SPW_TORCH_WEIGHT_GRADIENT,
    SPW_TORCH_UP,
    SPW_TORCH_DOWN_GRADIENT,
    SPW_TORCH_COMBINE,
    SPW_TORCH_ROW_SUMS,
    SPW_TORCH_ABOUT,
    SPW_TORCH_OPERATIONS
} spw_torch_operation;

/* Of UP and DOWN_GRADIENT: reference/swiglu.h. All but RELU2 have a gate: w of UP and h have 2 ffn columns. bias [experts][out]. */
typedef enum spw_torch_activation {
    SPW_TORCH_SWIGLU,
    SPW_TORCH_GEGLU,
    SPW_TORCH_RELU2,
    SPW_TORCH_ACTIVATIONS
} spw_torch_activation;

enum { SPW_TORCH_OPERANDS = 6, SPW_TORCH_RESULTS = 4 };

typedef struct spw_torch_call {
    int operation, device;         /* device: of a GPU; negative: the CPU */
    int fp32, transposed, gathers; /* fp32: on a CPU alone, else bf16 */
    int activation, pairs, pad;    /* pairs: gate and up in turn, else side by side */
    float limit, alpha;            /* of SWIGLU; 0: none */
    size_t experts, rows, in, out, tokens, top_k;
    const void *operand[SPW_TORCH_OPERANDS];
    void *result[SPW_TORCH_RESULTS];
    void *stream; /* of a GPU, on which the call does not wait */
} spw_torch_call;

/* NULL, or what was wrong, until this thread's next call. */
const char *spw_torch_run(const spw_torch_call *call);

/* Private to kernels/torch. */
static inline spw_swiglu spw_torch_swiglu(const spw_torch_call *c) {
    return (spw_swiglu){.limit = c->limit,
                        .alpha = c->alpha,
                        .plain = c->activation == SPW_TORCH_RELU2 ? SPW_RELU2 : SPW_GATED,
                        .gate = c->activation == SPW_TORCH_GEGLU ? SPW_GATE_GELU : SPW_GATE_SILU};
}
spw_status spw_torch_cpu(const spw_torch_call *call);
spw_status spw_torch_gpu(const spw_torch_call *call);

#endif
