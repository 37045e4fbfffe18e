/* The layer's local kernels: launchers, implemented in the *.hip file of the same name. Device pointers; nothing
 * waits; each returns the runtime's error code, 0 for none. Contracts: the headers of reference/ named at each;
 * indices are int32 here, rows of tokens bf16 and widths multiples of 8. */
#ifndef SPW_KERNELS_LOCAL_LOCAL_LAUNCH_H
#define SPW_KERNELS_LOCAL_LOCAL_LAUNCH_H

#include "kernels/gpu/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPW_GPU_EXPERTS_MAX = 512, SPW_GPU_TOP_K_MAX = 16, SPW_PLAN_CHUNK = 1024 };

/* reference/router.h, spw_ref_router: at most 512 experts, top_k 16, 32 groups, group_terms 1 or 2; bias may be
 * NULL. Scores in fp64, rounded once, so that the choice is the reference's. */
typedef struct spw_router_gpu {
    int tokens, experts, top_k, sigmoid, groups, groups_kept, group_terms, renormalize;
    float scaling;
    int pad;
    const float *logits, *bias;
    float *score;
    int *expert;
    float *weight;
} spw_router_gpu;
int spw_launch_router(spw_router_gpu router, gpu_stream stream);

/* reference/plan.h, spw_ref_plan_create. chunk_count [experts][ceil(assignments / SPW_PLAN_CHUNK)] is scratch;
 * assignment [assignments]: only offset[experts] of it are written. */
typedef struct spw_plan_gpu {
    int assignments, experts, chunks, pad;
    const int *expert;
    int *chunk_count, *count, *offset, *row, *assignment;
} spw_plan_gpu;
int spw_launch_plan(spw_plan_gpu plan, gpu_stream stream);

/* reference/capacity.h, spw_ref_keep_by_position, and the place of what is kept: in each group of consecutive
 * tokens an expert keeps its first `capacity` choices; choice a gets row (expert * groups + group) * capacity +
 * position, or -1.
 *   row         [tokens][top_k]
 *   assignment  [experts][groups][capacity]   the inverse; -1 in empty slots */
typedef struct spw_capacity_gpu {
    int groups, assignments_per_group, experts, capacity;
    const int *expert;
    int *row, *assignment;
} spw_capacity_gpu;
int spw_launch_capacity(spw_capacity_gpu capacity, gpu_stream stream);

/* reference/plan.h, spw_ref_permute: out[row[t][k]] = x[t] where row[t][k] >= 0; other rows are left alone. */
int spw_launch_fan_out(int tokens, int width, int top_k, const int *row, const spw_bf16 *x, spw_bf16 *out,
                       gpu_stream stream);
/* The empty slots of a buffer with a capacity: out[r] = 0 where assignment[r] < 0, r < rows. */
int spw_launch_fan_out_clear(int rows, int width, const int *assignment, spw_bf16 *out, gpu_stream stream);

/* reference/combine.h, spw_ref_combine; with weight NULL also spw_ref_permute_gradient. row[t][k] < 0 gives 0. */
typedef struct spw_combine_gpu {
    int tokens, width, top_k;
    const int *row;
    const float *weight;
    const spw_bf16 *rows;
    spw_bf16 *y;
    int fp16; /* of rows and y; 0: bf16 */
} spw_combine_gpu;
int spw_launch_combine(spw_combine_gpu c, gpu_stream stream);

/* reference/combine.h, spw_ref_combine_gradient; d_weight in fp32. */
int spw_launch_combine_gradient(int tokens, int width, int top_k, const int *row, const float *weight,
                                const spw_bf16 *dy, const spw_bf16 *rows, spw_bf16 *d_rows, float *d_weight,
                                gpu_stream stream);

/* d_weight[a] = sum over i < parts of part[i][row[a]], 0 where row[a] < 0; part [parts][rows]. */
int spw_launch_row_sums(int assignments, int rows, int parts, const int *row, const float *part,
                        float *d_weight, gpu_stream stream);

/* GELU by tanh as a product with a logistic function (reference/swiglu.h): 2 sqrt(2 / pi), and the cubic term's share. */
#define SPW_GELU_ALPHA 1.59576912f
#define SPW_GELU_CUBIC 0.044715f

/* Gate and up beside each other, as gate and up say, or in turn: then gate is a row's first element and up is not read. Squared ReLU has
 * one matrix, at gate. */
typedef enum spw_activation_form {
    SPW_FORM_SWIGLU,
    SPW_FORM_SWIGLU_PAIRS,
    SPW_FORM_GEGLU,
    SPW_FORM_GEGLU_PAIRS,
    SPW_FORM_RELU2
} spw_activation_form;

/* reference/swiglu.h. gate and up are [rows][ffn] inside rows of `stride` elements (ffn apart or 2 ffn in one array);
 * act and d_act are [rows][ffn]; d_gate, d_up as gate, up. */
typedef struct spw_swiglu_gpu {
    int rows, ffn, stride;
    float limit, alpha; /* of SwiGLU */
    int form;           /* spw_activation_form */
    const spw_bf16 *gate, *up;
} spw_swiglu_gpu;
/* Any form; the two below are SPW_FORM_SWIGLU alone. d_up is not written where up is not read. */
int spw_launch_activation(spw_swiglu_gpu s, spw_bf16 *act, gpu_stream stream);
int spw_launch_activation_gradient(spw_swiglu_gpu s, const spw_bf16 *d_act, spw_bf16 *d_gate, spw_bf16 *d_up,
                                   gpu_stream stream);
int spw_launch_swiglu(spw_swiglu_gpu s, spw_bf16 *act, gpu_stream stream);
int spw_launch_swiglu_gradient(spw_swiglu_gpu s, const spw_bf16 *d_act, spw_bf16 *d_gate, spw_bf16 *d_up,
                               gpu_stream stream);

/* reference/token_rounding.h, rounding 0 nearest, 1 up, 2 down; scores and weights >= 0. At most 512 experts.
 *   keys [experts][tokens], limits [experts][2]   scratch */
typedef struct spw_token_rounding_gpu {
    int tokens, top_k, experts, tile, rounding, pad;
    const float *score;
    const int *expert;
    const float *weight;
    unsigned *keys;
    int *limits;
    float *taken;
    unsigned char *member;
    int *count;
} spw_token_rounding_gpu;
int spw_launch_token_rounding(spw_token_rounding_gpu rounding, gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
