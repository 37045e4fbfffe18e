/* Every variant of grouped GEMM against the reference. */
#ifndef SPW_KERNELS_VERIFY_VERIFY_GEMM_H
#define SPW_KERNELS_VERIFY_VERIFY_GEMM_H

#include "kernels/gemm/grouped_gemm_gpu.h"
#include "kernels/record/routing.h"
#include "kernels/verify/judge.h"

typedef struct spw_gemm_case {
    const char *name;
    size_t experts, rows, in, out;
    spw_routing routing;
    bool fast_only; /* the last variant alone: a full size */
    spw_gemm_element element;
} spw_gemm_case;

/* Three operations x both weight layouts x bell and integer numbers x the variants of `variants`; of fp16, unless a full size, also
 * sums beyond its end, and subnormal numbers. Where a
 * result has more elements than the reference can form in a moment, rows and columns are sampled, edges of
 * groups and tiles first; that no element is left unwritten and that no guard was touched is checked on all
 * of it. */
SPW_MUST_CHECK spw_status spw_verify_gemm(const spw_gemm_variant *variants, const spw_gemm_case *c,
                                          spw_judge *judge);

/* The same of tiles that the fastest of these variants may choose; nothing of a full size. */
SPW_MUST_CHECK spw_status spw_verify_gemm_tiles(const spw_gemm_variant *variants, const spw_gemm_case *c,
                                                spw_judge *judge);

/* The forward pass with SwiGLU in the epilogue, in both weight layouts; c->out is 2 ffn. */
SPW_MUST_CHECK spw_status spw_verify_gemm_swiglu(const spw_gemm_case *c, spw_judge *judge);

/* The fused products of an expert layer, gathered and in order, both weight layouts, packed and with rows apart, every element; c->out is 2 ffn, the
 * second product has c->in for hidden. Nothing on a GPU without them. */
SPW_MUST_CHECK spw_status spw_verify_gemm_fused(const spw_gemm_case *c, spw_judge *judge);
/* The same given wrong assignments, an expert too few, no strides for rows that are apart, or not run: every comparison must fail. */
SPW_MUST_CHECK spw_status spw_verify_gemm_fused_wrong(const spw_gemm_case *c, spw_judge *judge);

/* Products whose rows, and whose experts, lie apart: three operations x both weight layouts x matrices of experts behind one another and with
 * their rows side by side x the variants. Every element; what lies between must stay as it was. */
SPW_MUST_CHECK spw_status spw_verify_gemm_strides(const spw_gemm_variant *variants, const spw_gemm_case *c,
                                                  spw_judge *judge);
/* The same by kernels that ignore one of the strides: every comparison must fail. */
SPW_MUST_CHECK spw_status spw_verify_gemm_strides_wrong(const spw_gemm_case *c, spw_judge *judge);

/* The same of fp8, forward and gradient of weights, x the variants: bit by bit what packed arrays give. Nothing of fp16, and where c->in is no multiple
 * of 16. And of kernels that are told that rows are packed: every comparison must fail. */
SPW_MUST_CHECK spw_status spw_verify_float8_strides(const spw_gemm_case *c, spw_judge *judge);
SPW_MUST_CHECK spw_status spw_verify_float8_strides_wrong(const spw_gemm_case *c, spw_judge *judge);

/* On 1, 7 and 100 multiprocessors the same bits as on all of them, of every kernel that stays there; c->out is a multiple of 16. */
SPW_MUST_CHECK spw_status spw_verify_gemm_blocks(const spw_gemm_case *c, spw_judge *judge);

/* fp8: integers and all codes x the variants; every element is compared. Nothing for a full size, and where c->in is no
 * multiple of 16. */
SPW_MUST_CHECK spw_status spw_verify_gemm_float8(const spw_gemm_float8_variant *variants,
                                                 const spw_gemm_case *c, spw_judge *judge);

/* The gradient of weights in fp8, rounded to bf16 and added to fp32: both layouts of weights x integers and all codes x the variants;
 * every element. Of a full size the last variant, all codes, [in][out] in bf16: 256 rows of each expert, of operands that repeat after 97
 * columns. */
SPW_MUST_CHECK spw_status spw_verify_gemm_float8_gradient(const spw_gemm_float8_variant *variants,
                                                          const spw_gemm_case *c, spw_judge *judge);

/* MXFP8: integers and all codes, every element. Nothing on a GPU without its products, for a full size, and where c->in is no
 * multiple of 32. */
SPW_MUST_CHECK spw_status spw_verify_gemm_mxfp8(const spw_gemm_case *c, spw_judge *judge);

#endif
