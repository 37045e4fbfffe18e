/* Prints "struct field offset" of the reference's structs, and "struct sizeof bytes": ref_structs.py holds
 * its ctypes against it. A field left out of a list shows in the size. */
#include <stddef.h>
#include <stdio.h>

#include "reference/grouped_gemm.h"
#include "reference/moe_layer.h"

#define FIELD(type, name) printf(#type " " #name " %zu\n", offsetof(type, name))
#define SIZE(type) printf(#type " sizeof %zu\n", sizeof(type))

int main(void) {
    FIELD(spw_gemm_shape, experts);
    FIELD(spw_gemm_shape, rows);
    FIELD(spw_gemm_shape, in);
    FIELD(spw_gemm_shape, out);
    FIELD(spw_gemm_shape, transposed);
    FIELD(spw_gemm_shape, element);
    FIELD(spw_gemm_shape, multiprocessors);
    FIELD(spw_gemm_shape, stride);
    SIZE(spw_gemm_shape);
    FIELD(spw_gemm_strides, left);
    FIELD(spw_gemm_strides, right);
    FIELD(spw_gemm_strides, result);
    FIELD(spw_gemm_strides, expert);
    FIELD(spw_gemm_strides, h);
    FIELD(spw_gemm_strides, d_h);
    SIZE(spw_gemm_strides);
    FIELD(spw_router, tokens);
    FIELD(spw_router, experts);
    FIELD(spw_router, top_k);
    FIELD(spw_router, score);
    FIELD(spw_router, groups);
    FIELD(spw_router, groups_kept);
    FIELD(spw_router, group_terms);
    FIELD(spw_router, renormalize);
    FIELD(spw_router, scaling);
    SIZE(spw_router);
    FIELD(spw_swiglu, limit);
    FIELD(spw_swiglu, alpha);
    FIELD(spw_swiglu, plain);
    FIELD(spw_swiglu, gate);
    SIZE(spw_swiglu);
    FIELD(spw_moe_shape, router);
    FIELD(spw_moe_shape, hidden);
    FIELD(spw_moe_shape, ffn);
    FIELD(spw_moe_shape, shared_ffn);
    FIELD(spw_moe_shape, activation);
    FIELD(spw_moe_shape, auxiliary_coefficient);
    FIELD(spw_moe_shape, z_coefficient);
    SIZE(spw_moe_shape);
    FIELD(spw_moe_weights, router);
    FIELD(spw_moe_weights, bias);
    FIELD(spw_moe_weights, routed);
    FIELD(spw_moe_weights, shared);
    SIZE(spw_moe_weights);
    FIELD(spw_plan, tokens);
    FIELD(spw_plan, top_k);
    FIELD(spw_plan, experts);
    FIELD(spw_plan, rows);
    FIELD(spw_plan, count);
    FIELD(spw_plan, offset);
    FIELD(spw_plan, row);
    FIELD(spw_plan, assignment);
    SIZE(spw_plan);
    FIELD(spw_moe_state, logits);
    FIELD(spw_moe_state, score);
    FIELD(spw_moe_state, expert);
    FIELD(spw_moe_state, weight);
    FIELD(spw_moe_state, plan);
    FIELD(spw_moe_state, rows);
    FIELD(spw_moe_state, outputs);
    FIELD(spw_moe_state, routed);
    FIELD(spw_moe_state, shared);
    FIELD(spw_moe_state, auxiliary_loss);
    FIELD(spw_moe_state, z_loss);
    SIZE(spw_moe_state);
    FIELD(spw_moe_gradients, x);
    FIELD(spw_moe_gradients, router);
    FIELD(spw_moe_gradients, routed);
    FIELD(spw_moe_gradients, shared);
    SIZE(spw_moe_gradients);
    FIELD(spw_expert_weights, w0);
    FIELD(spw_expert_weights, w1);
    FIELD(spw_expert_weights, wo);
    SIZE(spw_expert_weights);
    FIELD(spw_expert_state, gate);
    FIELD(spw_expert_state, up);
    FIELD(spw_expert_state, act);
    SIZE(spw_expert_state);
    FIELD(spw_expert_gradients, w0);
    FIELD(spw_expert_gradients, w1);
    FIELD(spw_expert_gradients, wo);
    SIZE(spw_expert_gradients);
    return 0;
}
