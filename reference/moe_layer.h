/* A whole Mixture-of-Experts layer in one process, forward and backward, made of the operations beside this
 * file. Source: DeepSeek-V3 (2024), eq. 12 to 16. */
#ifndef SPW_REFERENCE_MOE_LAYER_H
#define SPW_REFERENCE_MOE_LAYER_H

#include "base/status.h"
#include "reference/expert_ffn.h"
#include "reference/plan.h"
#include "reference/router.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spw_moe_shape {
    spw_router router; /* tokens, experts, top_k and the scoring */
    size_t hidden, ffn;
    size_t shared_ffn; /* 0: no shared expert */
    spw_swiglu activation;
    double auxiliary_coefficient, z_coefficient; /* of the two losses; 0: none */
} spw_moe_shape;

/* All borrowed. */
typedef struct spw_moe_weights {
    const float *router; /* [hidden][experts] */
    const float *bias;   /* [experts] for the selection, or NULL */
    spw_expert_weights routed, shared;
} spw_moe_weights;

/* What the forward pass leaves for the backward pass; owns its arrays. */
typedef struct spw_moe_state {
    float *logits, *score; /* [tokens][experts] */
    int32_t *expert;       /* [tokens][top_k] */
    float *weight;         /* [tokens][top_k] */
    spw_plan plan;
    float *rows, *outputs;   /* [tokens * top_k][hidden] dispatched tokens, expert outputs; by expert */
    spw_expert_state routed; /* [tokens * top_k][ffn] */
    spw_expert_state shared; /* [tokens][shared_ffn] */
    double auxiliary_loss, z_loss;
} spw_moe_state;

/* All the caller's, all overwritten. */
typedef struct spw_moe_gradients {
    float *x;      /* [tokens][hidden] */
    float *router; /* [hidden][experts] */
    spw_expert_gradients routed, shared;
} spw_moe_gradients;

/* logits = x router; (expert, weight) = router of logits;
 * y[t] = sum over k of weight[t][k] * ffn_expert(t,k)(x[t]) + shared ffn(x[t]). Each stage is rounded to fp32.
 *   x      [tokens][hidden]
 *   y      [tokens][hidden]   overwritten
 *   state  filled; the caller calls spw_ref_moe_destroy(), also after a failure */
SPW_MUST_CHECK spw_status spw_ref_moe(const spw_moe_shape *shape, const float *x,
                                      const spw_moe_weights *weights, spw_moe_state *state, float *y);

/* The gradients of sum over t, h of dy[t][h] * y[t][h] + auxiliary_loss + z_loss. The parts of dx (through
 * the experts, the router, the shared expert) are each rounded to fp32 and then added, in that order.
 *   dy     [tokens][hidden]
 *   state  of the forward pass; routed and shared are used up */
SPW_MUST_CHECK spw_status spw_ref_moe_gradient(const spw_moe_shape *shape, const float *x, const float *dy,
                                               const spw_moe_weights *weights, spw_moe_state *state,
                                               spw_moe_gradients *out);

void spw_ref_moe_destroy(spw_moe_state *state); /* a zeroed state is fine */

#ifdef __cplusplus
}
#endif
#endif
