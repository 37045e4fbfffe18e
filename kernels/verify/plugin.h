/* Kernels of one's own for `spillway verify --plugin`, host memory, and `spillway-verify --plugin`, device memory.
 * A plugin is a shared library with one function, spw_plugin(); installed as <spillway/plugin.h>. How to:
 * docs/check_your_kernel.md. */
#ifndef SPILLWAY_PLUGIN_H
#define SPILLWAY_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(kernel, name). e is the expert of row r: offset[e] <= r < offset[e + 1]. Rows from offset[experts] on are the unused
 * tail of a buffer: their inputs are NaN, and what is written there is not looked at.
 *
 *   kernel            input 0                 input 1                    input 2              output
 *   grouped_gemm      x [rows][in]            w [experts][in][out]                            y [rows][out]
 *   input_gradient    dy [rows][out]          w                                               dx [rows][in]
 *   weight_gradient   x [rows][in]            dy [rows][out]                                  dw, as w
 *   permute           x [tokens][in]          expert [tokens][top_k]                          rows [rows][in]
 *   unpermute         rows [rows][in]         row [tokens][top_k]        weight, float        y [tokens][in]
 *   swiglu            gate [rows][out]        up [rows][out]                                  act [rows][out]
 *   router            logits [tokens][experts]                                                weight, float [tokens][top_k]
 *   dispatch          x [ranks][tokens][in]   expert [ranks][tokens][top_k]                   rows [rows][in]
 *   combine           rows [rows][in]         expert [ranks][tokens][top_k]                   y [ranks][tokens][in]
 *
 * y = x w[e]; dx = dy w[e]^T; dw[e] = sum of x^T dy over the rows of e. w and dw are [experts][out][in] where `transposed`.
 * permute: the tokens' rows by expert, inside an expert in the order of t * top_k + k; -1 is no expert. unpermute:
 * y[t] = sum over k of weight[t][k] rows[row[t][k]], row -1: none. act = gate / (1 + exp(-gate)) up.
 * router: scores are softmax over the experts, or 1 / (1 + exp(-logit)) where `sigmoid`; the top_k best of a token by falling score,
 * of equal ones the lower expert first, go to `index`, and their scores, divided by their sum where `renormalize`, to the output.
 * dispatch: expert e is on rank e / (experts / ranks); a token goes once to every rank that has one of its experts, -1 is no choice.
 * Rank d receives the rows offset[d] <= r < offset[d + 1], by source rank, inside a source by token. combine, the way back: y of a
 * token is the sum of its rows, 0 where it went nowhere. Both get the buffers of all ranks in one call. */
#define SPW_KERNEL_LIST(X) \
    X(SPW_KERNEL_GROUPED_GEMM, "grouped_gemm") \
    X(SPW_KERNEL_INPUT_GRADIENT, "input_gradient") \
    X(SPW_KERNEL_WEIGHT_GRADIENT, "weight_gradient") \
    X(SPW_KERNEL_PERMUTE, "permute") \
    X(SPW_KERNEL_UNPERMUTE, "unpermute") \
    X(SPW_KERNEL_SWIGLU, "swiglu") \
    X(SPW_KERNEL_ROUTER, "router") \
    X(SPW_KERNEL_DISPATCH, "dispatch") \
    X(SPW_KERNEL_COMBINE, "combine")
#define SPW_KERNEL_ENUM(kernel, name) kernel,
typedef enum spw_kernel { SPW_KERNEL_LIST(SPW_KERNEL_ENUM) SPW_KERNELS } spw_kernel;
#undef SPW_KERNEL_ENUM

typedef enum spw_type {
    SPW_TYPE_BF16,
    SPW_TYPE_FLOAT,
    SPW_TYPE_FP16, /* sums of 65520 and more become infinity */
    SPW_TYPES
} spw_type; /* of inputs and outputs that say nothing else */
typedef enum spw_memory {
    SPW_MEMORY_HOST,
    SPW_MEMORY_DEVICE
} spw_memory; /* device: HIP or CUDA, as spillway-verify was built */

enum { SPW_KERNEL_INPUTS = 3 };

/* What a kernel gets. Indices are int32_t. offset is null for permute, unpermute, swiglu and router. */
typedef struct spw_kernel_call {
    spw_kernel kernel;
    spw_type type;
    int transposed;
    size_t experts, rows, in, out, tokens, top_k;
    const int32_t *offset; /* [experts + 1]; [ranks + 1] of dispatch and combine */
    const void *input[SPW_KERNEL_INPUTS];
    void *output; /* full of NaN, between guard bands */
    int32_t
        *index; /* [tokens][top_k], the router's second output, full of -1, between guard bands; else null */
    size_t ranks;             /* of dispatch and combine; tokens are those of one rank */
    int sigmoid, renormalize; /* of the router */
} spw_kernel_call;

/* 0: done, or launched on the default stream. Anything else: this call is not for this kernel, and is counted as left out. */
typedef int spw_kernel_function(const spw_kernel_call *call);

enum { SPW_PLUGIN_VERSION = 2 };
typedef struct spw_plugin_table {
    int version; /* SPW_PLUGIN_VERSION */
    const char *name;
    spw_memory memory;
    int types; /* bits: 1 << SPW_TYPE_BF16 | 1 << SPW_TYPE_FLOAT | 1 << SPW_TYPE_FP16 */
    spw_kernel_function *function[SPW_KERNELS]; /* NULL: not there */
} spw_plugin_table;

/* The plugin's one function; the table lives as long as the library. */
const spw_plugin_table *spw_plugin(void);

#ifdef __cplusplus
}
#endif
#endif
