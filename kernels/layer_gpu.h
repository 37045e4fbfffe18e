/* A whole expert layer between ranks, forward and backward: exchange, grouped GEMM, SwiGLU, grouped GEMM, exchange,
 * and the same back. bf16 between the kernels, fp32 inside them. The executed schemes are those of
 * reference/schemes/: gmm-deepep, gmm, dense. */
#ifndef SPW_KERNELS_LAYER_GPU_H
#define SPW_KERNELS_LAYER_GPU_H

#include "kernels/dispatch_gpu.h"
#include "kernels/grouped_gemm_gpu.h"
#include "kernels/plain_exchange.h"

typedef struct spw_layer_form {
    bool dispatch; /* gmm-deepep: by dispatch and combine; else by the plain exchange, RAGGED or CAPACITY */
    spw_plain_shape plain; /* its sizes hold for both */
    size_t ffn;
} spw_layer_form;

/* Of one rank, on its GPU. */
typedef struct spw_layer_rank {
    spw_bf16 *gate_up_weight,
        *down_weight; /* [local][hidden][2 ffn], [local][ffn][hidden]: the caller fills them */
    spw_bf16 *gate_up_gradient, *down_gradient;
    spw_bf16 *x, *y, *dy, *dx;     /* [rows][hidden], by expert */
    spw_bf16 *gate_up, *d_gate_up; /* [rows][2 ffn] */
    spw_bf16 *act, *d_act;         /* [rows][ffn] */
    spw_bf16 *d_local;             /* plain: [items][hidden] */
    int *offset;                   /* [local + 1] */
    spw_plan_gpu plan;             /* dispatch: of the received choices */
} spw_layer_rank;

typedef struct spw_layer_gpu {
    spw_world *world;
    spw_layer_form form;
    const spw_gemm_variant *gemm;
    spw_dispatch *dispatch;
    spw_plain_exchange *plain;
    size_t tokens, local, rows; /* rows: of x, in the worst case or as the buffer says */
    spw_layer_rank rank[SPW_WORLD_RANKS];
} spw_layer_gpu;

SPW_MUST_CHECK spw_status spw_layer_create(spw_world *world, spw_layer_form form,
                                           const spw_exchange_variant *variant, spw_layer_gpu **out);
void spw_layer_destroy(spw_layer_gpu *layer); /* NULL is fine */

/* Arrays of the ranks of this process, on their GPUs. No wait on the host.
 *   x, y [tokens][hidden], expert, weight [tokens][top_k] */
SPW_MUST_CHECK spw_status spw_layer_forward(spw_layer_gpu *layer, const spw_bf16 *const *x,
                                            const int *const *expert, const float *const *weight,
                                            spw_bf16 *const *y);
/* After a forward pass, once. dy, dx [tokens][hidden], d_weight [tokens][top_k]; the weights' gradients stay in `rank`. */
SPW_MUST_CHECK spw_status spw_layer_backward(spw_layer_gpu *layer, const spw_bf16 *const *dy,
                                             const float *const *weight, spw_bf16 *const *dx,
                                             float *const *d_weight);

#endif
