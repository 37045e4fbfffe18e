/* Private to the layer: what an arrangement of it provides, and the steps that all share. */
#ifndef SPW_KERNELS_LAYER_LAYER_STEPS_H
#define SPW_KERNELS_LAYER_LAYER_STEPS_H

#include "kernels/layer/layer_gpu.h"

/* The arguments of a pass; contracts in layer_gpu.h. */
typedef struct spw_layer_pass {
    const spw_bf16 *const *x; /* dy of a backward pass */
    const int *const *expert;
    const float *const *weight;
    spw_bf16 *const *y; /* dx of a backward pass */
    float *const *d_weight;
} spw_layer_pass;

typedef struct spw_layer_arrangement {
    /* Rows of a rank's tensors in the worst case. */
    size_t (*rows)(const spw_layer_gpu *layer);
    size_t (*exchange_bytes)(
        const spw_layer_gpu *layer); /* of a rank, beside the tensors of spw_layer_rank */
    spw_status (*create)(spw_layer_gpu *layer, const spw_exchange_variant *variant); /* the exchange */
    spw_status (*create_rank)(spw_layer_gpu *layer, size_t rank);                    /* its GPU is current */
    spw_status (*forward)(spw_layer_gpu *layer, const spw_layer_pass *pass);
    spw_status (*backward)(spw_layer_gpu *layer, const spw_layer_pass *pass);
    bool own_rows; /* x, y, dy and dx are the layer's */
    bool gathers;  /* it can be fused: rows are gathered from the tokens that came */
    bool later;    /* the rows are known, and their tensors allocated, in the forward pass */
} spw_layer_arrangement;

extern const spw_layer_arrangement spw_layer_by_dispatch, spw_layer_by_exact_dispatch, spw_layer_by_plain,
    spw_layer_by_ring;

/* Tensors of `rows` rows from now on. Those that are large enough stay; new ones are poisoned. */
SPW_MUST_CHECK spw_status spw_gpu_layer_make_room(spw_layer_gpu *layer, size_t rank, size_t rows);
/* The arrays of a plan of `choices` choices by local expert, and own offsets; plan.expert is left to the caller. */
SPW_MUST_CHECK spw_status spw_gpu_layer_create_plan(spw_layer_gpu *layer, size_t rank, size_t choices);

/* A phase of one rank, whose GPU is current, or of all has been launched. */
SPW_MUST_CHECK spw_status spw_gpu_layer_mark(const spw_layer_gpu *layer, size_t rank, spw_layer_phase phase);
SPW_MUST_CHECK spw_status spw_gpu_layer_mark_all(const spw_layer_gpu *layer, spw_layer_phase phase);

/* What the experts compute on. Fused: rows of x and dy are gathered, dy is that of the weighted sums of rows, weight their
 * factors by assignment, and row_sum becomes parts of their gradients. Else rows and weight are not looked at. */
typedef struct spw_layer_operands {
    const spw_bf16 *x, *dy;
    spw_gemm_rows rows;
    const float *weight;
} spw_layer_operands;

/* y of x; and dx of dy with the gradients of the weights. y, dx [rows][hidden]. The rank's GPU is current. */
SPW_MUST_CHECK spw_status spw_gpu_layer_experts_forward(const spw_layer_gpu *layer, size_t rank,
                                                        spw_layer_operands operands, spw_bf16 *y);
SPW_MUST_CHECK spw_status spw_gpu_layer_experts_backward(const spw_layer_gpu *layer, size_t rank,
                                                         spw_layer_operands operands, spw_bf16 *dx);

#endif
