/* Of which type the operands and results of a grouped GEMM are on a GPU, both of 16 bits; its sums are fp32. */
#ifndef SPW_REFERENCE_GEMM_ELEMENT_H
#define SPW_REFERENCE_GEMM_ELEMENT_H

typedef enum spw_gemm_element {
    SPW_GEMM_BF16, /* reference/bf16.h */
    SPW_GEMM_FP16, /* reference/fp16.h: a sum of 65520 or more becomes infinity */
} spw_gemm_element;

#endif
