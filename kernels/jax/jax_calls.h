/* The custom calls as CPU and GPU see them in common: shapes, types and attributes, checked. Sizes: E experts, R rows,
 * I and O the widths in and out, T tokens of a rank, K choices of a token, H hidden, C rows of a receive buffer, N ranks.
 * bf16 or fp32 where nothing is said, of grouped GEMM also fp16. */
#ifndef SPW_KERNELS_JAX_JAX_CALLS_H
#define SPW_KERNELS_JAX_JAX_CALLS_H

#include "kernels/jax/jax_frame.h"
#include "reference/grouped_gemm.h"

/* reference/grouped_gemm.h. Attribute transposed: 0 or 1.
 *   forward           x  [R][I], w [E][I][O]   size [E] int32   ->  y  [R][O]      offset [E + 1] int32
 *   input gradient    dy [R][O], w [E][I][O]   size             ->  dx [R][I]      offset
 *   weight gradient   x  [R][I], dy [R][O]     size             ->  dw [E][I][O]   offset
 * w and dw are [E][O][I] when transposed. size: rows of each expert; their sum is at most R. */
typedef enum spw_jax_gemm_kind { SPW_JAX_FORWARD, SPW_JAX_INPUT, SPW_JAX_WEIGHT } spw_jax_gemm_kind;

typedef struct spw_jax_gemm {
    spw_gemm_shape shape;
    spw_jax_type type;
    const void *left, *right;
    const int32_t *size;
    void *result;
    int32_t *offset;
} spw_jax_gemm;

SPW_MUST_CHECK spw_status spw_jax_read_gemm(const XLA_FFI_CallFrame *frame, spw_jax_gemm_kind kind,
                                            spw_jax_gemm *out);

/* reference/dispatch.h between the ranks of one group of devices.
 *   dispatch            x [T][H], expert [T][K] int32, weight [T][K] fp32
 *                       ->  rows [C][H], row_expert [C][K] int32, row_weight [C][K] fp32, source [C] int32,
 *                           first [N + 1] int32, place [T][N] int32, base [N] int32
 *   combine             rows [C][H], place, base, first             ->  y [T][H]
 *   dispatch gradient   rows [C][H], row_weight, place, base, first ->  y [T][H], weight [T][K]
 *   combine gradient    y [T][H], place, base, first                ->  rows [C][H]
 * row_expert counts from 0 in the receiving rank, -1: a choice of another rank's expert; row_weight is 0 there. source
 * is the token's number on its rank. first: where the rows of each rank begin, and how many were sent; those beyond C are
 * lost. base: where the tokens of this rank begin on each. place: spw_dispatch_plan. Rows behind the last are 0, their
 * experts and sources -1.
 *
 * Attributes: devices, a list of int64, a group of `ranks` after the other, rank by rank; channel: the same number on all
 * ranks of a call, another one for another call; experts, of dispatch alone. */
typedef enum spw_jax_exchange_kind {
    SPW_JAX_DISPATCH,
    SPW_JAX_COMBINE,
    SPW_JAX_DISPATCH_GRADIENT,
    SPW_JAX_COMBINE_GRADIENT
} spw_jax_exchange_kind;

enum { SPW_JAX_RANKS_MAX = 64 };

/* Where a call runs: `device` is devices[rank], of this group alone. */
typedef struct spw_jax_group {
    int64_t run;
    size_t channel, ranks, rank;
    int device;
    const int64_t *devices;
} spw_jax_group;

/* Names as above: what is an argument of one kind is a result of another. */
typedef struct spw_jax_exchange {
    spw_jax_exchange_kind kind;
    spw_jax_group group;
    size_t tokens, top_k, experts, hidden, rows_max;
    spw_jax_type type;
    const void *token_rows; /* x or y */
    const void *rows;
    const void *expert, *weight, *row_expert, *row_weight, *source, *first, *place, *base;
} spw_jax_exchange;

SPW_MUST_CHECK spw_status spw_jax_read_exchange(const XLA_FFI_CallFrame *frame, spw_jax_exchange_kind kind,
                                                spw_jax_exchange *out);

/* The handlers of a platform, by the names that spillway_jax.py looks for. gemm takes a spw_jax_gemm_kind, exchange a
 * spw_jax_exchange_kind. */
#define SPW_JAX_HANDLERS(platform, gemm, exchange) \
    SPW_JAX_HANDLER(spw_jax_##platform##_grouped_gemm, "spillway.grouped_gemm", gemm, SPW_JAX_FORWARD) \
    SPW_JAX_HANDLER(spw_jax_##platform##_grouped_gemm_dx, "spillway.grouped_gemm_dx", gemm, SPW_JAX_INPUT) \
    SPW_JAX_HANDLER(spw_jax_##platform##_grouped_gemm_dw, "spillway.grouped_gemm_dw", gemm, SPW_JAX_WEIGHT) \
    SPW_JAX_HANDLER(spw_jax_##platform##_dispatch, "spillway.dispatch", exchange, SPW_JAX_DISPATCH) \
    SPW_JAX_HANDLER(spw_jax_##platform##_combine, "spillway.combine", exchange, SPW_JAX_COMBINE) \
    SPW_JAX_HANDLER(spw_jax_##platform##_dispatch_gradient, "spillway.dispatch_gradient", exchange, \
                    SPW_JAX_DISPATCH_GRADIENT) \
    SPW_JAX_HANDLER(spw_jax_##platform##_combine_gradient, "spillway.combine_gradient", exchange, \
                    SPW_JAX_COMBINE_GRADIENT)

#endif
