/* The experts of PyTorch frameworks, backward in autograd's order: the latest node first. Executed counterparts:
 * reference/schemes/torch/autograd_glu.h and fused_experts.h. */
#ifndef SPW_SIM_SCHEMES_TORCH_EXPERTS_TORCH_H
#define SPW_SIM_SCHEMES_TORCH_EXPERTS_TORCH_H

#include "sim/schemes/layer_builder.h"
#include "sim/schemes/scheme.h"

typedef struct spw_layer_builder spw_layer_builder;

/* Product by product: w0_out, w1_out, their SiLU ("silu") and its product with w1_out ("act"). */
void spw_experts_autograd_gates(spw_layer_builder *b, spw_rows rows);
/* From x to y with the second product after SiLU of the first, whose input nothing but autograd keeps. */
void spw_experts_up_last(spw_layer_builder *b, spw_rows rows);
/* Which node autograd made last, and so takes first, behind the product of gate and up. */
typedef enum spw_autograd_order {
    SPW_AUTOGRAD_SILU_LAST, /* both products, then SiLU */
    SPW_AUTOGRAD_UP_LAST    /* SiLU of the gate's product before that of up */
} spw_autograd_order;
/* From dy to dx_w1, the sum of both parts. A product's weight gradient (shape.weight_gradients) comes before the gradient of its
 * input, before either operand goes. */
void spw_experts_autograd_gradient(spw_layer_builder *b, const spw_layer_shape *shape, spw_rows rows,
                                   spw_autograd_order order);
/* At the end of the layer: those that wait for their reduction die. */
void spw_experts_weight_gradients_end(spw_layer_builder *b, const spw_layer_shape *shape);

/* Gate and up in one product: fc1_out [rows, 2 F], act, y. */
typedef struct spw_experts_fused {
    spw_rows rows;
    bool fp8;      /* x and dy have elements of one byte, and scales of their own (x_scales, dy_scales) */
    bool weighted; /* row_weight multiplies the activation */
} spw_experts_fused;
spw_tensor spw_experts_fused_x(spw_experts_fused experts, const char *name); /* x or dy */
void spw_experts_fused_gates(spw_layer_builder *b, spw_experts_fused experts);
/* From x to y, which alone is left. */
void spw_experts_fused_forward(spw_layer_builder *b, spw_experts_fused experts);
/* Recomputed: everything stays for the backward pass. */
void spw_experts_fused_again(spw_layer_builder *b, spw_experts_fused experts);
/* From dy to dx, and d_row_weight. */
void spw_experts_fused_gradient(spw_layer_builder *b, spw_experts_fused experts);

#endif
