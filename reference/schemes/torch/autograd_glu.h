/* The experts of a PyTorch layer that autograd differentiates product by product. Names and order are those of
 * sim/schemes/torch/experts_torch.h. SiLU and its product with w1_out are one rounding, as in the plain layer: the tensors between
 * are there, and hold what they would, but nothing is computed from them. */
#ifndef SPW_REFERENCE_SCHEMES_TORCH_AUTOGRAD_GLU_H
#define SPW_REFERENCE_SCHEMES_TORCH_AUTOGRAD_GLU_H

#include "reference/schemes/passes.h"

typedef struct spw_autograd_glu {
    spw_experts experts;
    spw_spread silu, d_act, d_silu;
    /* [rows][ffn] of spw_glu_up_last: the numbers of w0_out, which SwiGLU in one rounding needs once it is dead */
    float *gate[SPW_EXECUTION_RANKS];
} spw_autograd_glu;

/* "gemm w0" to "product": w0_out, w1_out, silu, act of experts.x. */
SPW_MUST_CHECK spw_status spw_glu_gates(spw_execution *run, spw_autograd_glu *glu);
/* "gemm wo": y. */
SPW_MUST_CHECK spw_status spw_glu_output(spw_execution *run, spw_autograd_glu *glu);
/* From experts.dy to experts.dx1, the sum of both parts; everything else dies. */
SPW_MUST_CHECK spw_status spw_glu_backward(spw_execution *run, spw_autograd_glu *glu);
/* For spw_run_passes(), a whole spw_autograd_glu: SiLU before the product of up, steps "gemm w0" to "gemm wo", what is not saved
 * dies in the forward pass; autograd comes to the product of up first. */
extern const spw_expert_passes spw_glu_up_last;

/* silu[i] = gate[i] sigmoid(gate[i]) on every rank. */
void spw_glu_silu(spw_execution *run, const spw_experts *experts, spw_spread *silu);
/* d_gate and d_up of every row, from d_act; may be in place. */
void spw_glu_swiglu_gradient(spw_execution *run, const spw_experts *experts, const spw_spread *d_act,
                             spw_spread *d_gate, spw_spread *d_up);
/* to += from, of the experts' rows. */
void spw_glu_add(spw_execution *run, const spw_experts *experts, size_t width, const spw_spread *from,
                 spw_spread *to);

#endif
