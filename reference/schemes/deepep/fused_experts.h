/* The experts as PyTorch frameworks run them, executed: one product with gate and up side by side, SwiGLU, one product
 * down; the backward pass in autograd's order. An expert's rows stand anywhere in the tensors: padding between experts
 * and unused slots are rows of zeros. */
#ifndef SPW_REFERENCE_SCHEMES_DEEPEP_FUSED_EXPERTS_H
#define SPW_REFERENCE_SCHEMES_DEEPEP_FUSED_EXPERTS_H

#include "reference/schemes/passes.h"

/* Rows of several sets of experts, one after the other: what weight gradients are taken of once all sets are through. */
typedef struct spw_fused_operands {
    float *x[SPW_EXECUTION_RANKS], *act[SPW_EXECUTION_RANKS], *dy[SPW_EXECUTION_RANKS];
    float *d_gate[SPW_EXECUTION_RANKS], *d_up[SPW_EXECUTION_RANKS];
} spw_fused_operands;

typedef struct spw_fused_experts {
    const size_t *rows;    /* [ranks] of every tensor; borrowed */
    size_t *begin, *count; /* [ranks][local] rows of each expert */
    spw_spread *weight;    /* [rows], multiplied into act; dies with fc1_out. NULL: act is not weighted */
    spw_spread x, fc1, act, y, dy, d_act, d_fc1, dx; /* fc1, d_fc1: gate [rows][ffn], then up */
    spw_spread d_weight;                             /* born with d_fc1 where act is weighted */
    spw_spread x_scales, dy_scales; /* die with x and dy where the scheme has them; else empty */
    bool overflow;                  /* a second set: "overflow " stands before its names and steps */
    spw_fused_operands
        *operands; /* NULL: weight gradients are taken; else their operands are copied there, */
    size_t first;  /* from this row on */
} spw_fused_experts;

SPW_MUST_CHECK spw_status spw_fused_create(spw_execution *run, const size_t *rows, spw_fused_experts *out);
/* A tensor of the experts' rows. */
SPW_MUST_CHECK spw_status spw_fused_born(spw_execution *run, const spw_fused_experts *experts,
                                         spw_spread *tensor, const char *name, size_t width,
                                         size_t element_bytes);

/* Steps "fc1", "swiglu", "fc2": x -> fc1_out, act, y. Without `keep` everything but y dies as soon as it has been used. */
SPW_MUST_CHECK spw_status spw_fused_forward(spw_execution *run, spw_fused_experts *experts, bool keep);
/* Its parts: "fc1" and "swiglu"; "fc2". */
SPW_MUST_CHECK spw_status spw_fused_up(spw_execution *run, spw_fused_experts *experts, bool keep);
SPW_MUST_CHECK spw_status spw_fused_down(spw_execution *run, spw_fused_experts *experts, bool keep);
/* Steps "fc2 gradient", "swiglu gradient", "fc1 gradient": dy -> dx and the weight gradients; all else dies. */
SPW_MUST_CHECK spw_status spw_fused_backward(spw_execution *run, spw_fused_experts *experts);

/* Them in every pass, for spw_run_passes(); only the forward pass keeps nothing. */
extern const spw_expert_passes spw_fused_passes;

#endif
