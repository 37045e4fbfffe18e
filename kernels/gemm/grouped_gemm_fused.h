/* Private to kernels/: one grouped GEMM with what stands before and behind it in an expert layer, as its kernels see
 * it: rows of an operand gathered by an index, and an epilogue. Device pointers; C and C++. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_FUSED_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_FUSED_H

#include "kernels/gemm/grouped_gemm_problem.h"

typedef enum spw_gemm_gather { SPW_GEMM_GATHER_NONE, SPW_GEMM_GATHER_A, SPW_GEMM_GATHER_B } spw_gemm_gather;

enum { SPW_GEMM_ROW_SUM_TILE = 128 }; /* columns of one row of row_sum */

/* What stands between the products, of both SwiGLU epilogues. */
typedef enum spw_gemm_between {
    SPW_GEMM_SILU,  /* SwiGLU as it is, gate and up side by side; no bias */
    SPW_GEMM_GATED, /* any gated one of swiglu_math.h, gate and up side by side */
    SPW_GEMM_PAIRS, /* the same, gate and up in turn: columns 2 f and 2 f + 1 */
    SPW_GEMM_RELU2, /* max(g, 0)^2 of one matrix */
} spw_gemm_between;

/* Between the products; gate and up meet in act = g s(alpha g (1 + cubic g^2)) (u + shift), s the logistic function, g cut at
 * limit, u at both ends. SwiGLU: limit infinite, alpha 1, cubic and shift 0. */
typedef struct spw_gemm_curve {
    float limit, alpha, cubic, shift;
    const spw_bf16 *bias;     /* [experts][columns of the up product], added to its sums; NULL: none */
    spw_gemm_between between; /* SPW_GEMM_SILU: nothing else here is read */
} spw_gemm_curve;

/* n / d = (2 n multiplier >> 32) >> shift, of n from 0 to 2^31 - 1 (Granlund, Montgomery 1994). */
typedef struct spw_gemm_divisor {
    unsigned multiplier;
    int shift;
} spw_gemm_divisor;
/* d: 1 to 2^31 - 1. */
static inline spw_gemm_divisor spw_gemm_divisor_of(unsigned d) {
    int bits = 0;
    while (d > 1u << bits) bits++;
    return (spw_gemm_divisor){(unsigned)(((1ull << (31 + bits)) + d - 1) / d), bits};
}

typedef struct spw_gemm_fused_problem {
    spw_gemm_problem p; /* `rows` are those of the product */
    /* [rows]: row r of the gathered operand is row assignment[r] / top_k of its array. Only rows in front of
     * offset[experts] are read. NULL: row r has weight[r]. top_k 0: nothing is gathered. */
    const int *assignment;
    int top_k, tokens;         /* tokens: rows of the gathered array */
    spw_gemm_divisor by_top_k; /* set by the launcher of a kernel that gathers */
    int add;                   /* SPW_GEMM_WEIGHTS: main += the product, and c is not written */
    const float *weight;       /* of an assignment; NULL: 1 */
    /* Gate and up side by side, [rows][2 columns]: of SwiGLU forward written where h is not NULL, of its gradient read. */
    spw_bf16 *h, *d_h;
    int h_row, d_h_row; /* elements from one row to the next */
    float *row_sum;     /* [ceil(columns / SPW_GEMM_ROW_SUM_TILE)][rows] */
    float *main;        /* laid out as c */
    spw_gemm_curve curve;
} spw_gemm_fused_problem;

#ifdef __cplusplus
extern "C" {
#endif
/* Each returns the runtime's error code, 0 for none. element: of a, b, c, h, d_h and a bias. On Hopper's tensor cores, and with
 * ..._mfma on AMD's matrix cores.
 *   up              SPW_GEMM_ROWS; c = act = swiglu(gate, up) of the sums; b has 2 columns gate and up side by side; a gathered or not
 *   down gradient   SPW_GEMM_ROWS; s = sum of a b; with the row's weight w and gate, up of h: d_h = the gradients of swiglu for w s,
 *                   c = w act, row_sum = the sums of s act over SPW_GEMM_ROW_SUM_TILE columns; a gathered or not
 *   activated up and down gradient: the same with another activation than SwiGLU, or a bias: f.curve
 *   weights         SPW_GEMM_WEIGHTS; a, b or none gathered
 *   added pingpong  as weights with `add` and nothing gathered, in tiles of 128 x 192 in turns
 *   wide, pingpong, pairs   either form, nothing gathered; c alone. Tiles of 128 x 256; of 128 x 192 in turns; these in pairs of
 *                   blocks, weight gradients alone and with two blocks or more, else without pairs
 * On AMD's matrix cores one launcher has all activations, up also without h. */
int spw_launch_gemm_up_wgmma(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream);
int spw_launch_gemm_down_gradient_wgmma(spw_gemm_element element, spw_gemm_fused_problem f,
                                        gpu_stream stream);
int spw_launch_gemm_activated_up_wgmma(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream);
int spw_launch_gemm_activated_down_gradient_wgmma(spw_gemm_element element, spw_gemm_fused_problem f,
                                                  gpu_stream stream);
int spw_launch_gemm_weights_wgmma(spw_gemm_gather gather, spw_gemm_element element, spw_gemm_fused_problem f,
                                  gpu_stream stream);
int spw_launch_gemm_wide(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p, gpu_stream stream);
int spw_launch_gemm_pairs(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                          gpu_stream stream);
int spw_launch_gemm_pingpong(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                             gpu_stream stream);
/* Whether Hopper takes tiles of 128 x 192 in turns. */
int spw_gemm_takes_turns(spw_gemm_form form, const spw_gemm_problem *p);
int spw_launch_gemm_added_pingpong(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream);
int spw_launch_gemm_up_mfma(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream);
int spw_launch_gemm_down_gradient_mfma(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream);
int spw_launch_gemm_weights_mfma(spw_gemm_gather gather, spw_gemm_element element, spw_gemm_fused_problem f,
                                 gpu_stream stream);
#ifdef __cplusplus
}
#endif
#endif
