/* The layers of MaxText's schemes as XLA runs them: event lists for the flavours SPW_FLAVOUR_XLA... of a scheme's `xla_layer`. Beside what the mathematics needs they hold what the compiler adds: gathered weights and whole weight
 * gradients, transposed copies beside an exchange, receive buffers, pads, the scatter of the whole job's batch. An
 * elementwise product that takes the place of its operand (SwiGLU's gradients) is written so. Read from the values that are
 * live at the fullest moment of compiled programs: docs/validation_memory.md, "The lists". */
#ifndef SPW_SIM_SCHEMES_MAXTEXT_XLA_LAYERS_H
#define SPW_SIM_SCHEMES_MAXTEXT_XLA_LAYERS_H

#include "sim/schemes/layer_builder.h"
#include "sim/schemes/scheme.h"

/* dense, in its three layouts. */
void spw_xla_dense(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b);
/* Grouped GEMM behind ragged all-to-alls; the second by ragged_dot, which masks an operand for every expert. */
void spw_xla_gmm(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b);
void spw_xla_ragged(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b);
/* Grouped GEMM where a rank receives tokens, not assignments: the ring, and DeepEP in JAX; the last by ragged_dot. */
void spw_xla_ring(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b);
void spw_xla_deepep(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b);
void spw_xla_ragged_deepep(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b);

/* Both of them by XLA of JAX 0.11 on: SPW_FLAVOUR_XLA_APART. masked: ragged_dot. */
void spw_xla_gmm_apart(const spw_layer_shape *s, spw_layer_builder *b, bool ragged_dot);

/* Parts that they share. */
spw_tensor spw_xla_rows(const char *name, spw_rows rows, spw_width width);
/* [e, H, F] of one matrix, gathered over fsdp, or its gradient before it is scattered. */
spw_tensor spw_xla_weight(const spw_layer_shape *shape, const char *name);
/* Those of the other layers of a scan's turn, gathered, which wait too (JAX 0.11 on). */
spw_tensor spw_xla_waiting_weights(const spw_layer_shape *shape);
/* wi_0, wi_1, wo; of no size where a rank holds its experts' weights whole. */
void spw_xla_gather_weights(const spw_layer_shape *shape, spw_layer_builder *b);
/* Of gate and up, from x and the gradients of w0_out and w1_out, which die. */
void spw_xla_up_weight_gradients(const spw_layer_shape *s, spw_layer_builder *b);
void spw_xla_scatter_gradients(spw_layer_builder *b); /* d_wi_0, d_wi_1, d_wo die */
/* w0_out, w1_out; then act, which leaves them alive. */
void spw_xla_up(spw_layer_builder *b);
void spw_xla_swiglu(spw_layer_builder *b);
/* The experts of the forward pass, from x to `y`: nothing else of them is left. masked: ragged_dot's masked operands. */
void spw_xla_experts_forward(spw_layer_builder *b, bool masked, spw_tensor y);
/* d_act is born; then d_w0_out and d_w1_out take the place of w0_out and w1_out. Where act was not kept it is made again in
 * the place of d_act, which dies in any case. */
void spw_xla_swiglu_gradient(spw_layer_builder *b, bool act_kept);
/* dx0 and dx1 are born, wi_0 and wi_1 die. d_w0_out and d_w1_out die with them unless `kept` for weight gradients to come. */
void spw_xla_input_gradients(spw_layer_builder *b, bool masked, bool kept);
/* What the other layers of a scan's turn keep until their own backward pass is born, or dies. */
void spw_xla_wait(spw_layer_builder *b, const spw_tensor *tensor, size_t count, bool born);
/* ragged_dot's masked operands and results by expert, while one GEMM runs. */
void spw_xla_mask(spw_layer_builder *b, const char *step);

#endif
