/* A matrix product cut into blocks that fit a core's cache. The sums are those of grouped_gemm.h: fp64, terms
 * in ascending order, rounded once; the cutting does not show in the result. Source of the cutting: Goto and
 * van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication". */
#ifndef SPW_REFERENCE_MATRIX_PRODUCT_H
#define SPW_REFERENCE_MATRIX_PRODUCT_H

#include <stddef.h>

/* Element (i, j) is at[i * row + j * column]; a transposed view swaps the steps. */
typedef struct spw_matrix {
    const float *at;
    size_t row, column;
} spw_matrix;

/* c[i][j] = sum over k of a[i][k] * b[k][j]; c and scale have element (i, j) at i * c_row + j * c_column. */
typedef struct spw_product {
    size_t rows, columns, terms;
    spw_matrix a, b;
    float *c, *scale; /* scale: sum of |a||b|, or NULL */
    size_t c_row, c_column;
} spw_product;

/* Blocks of the result; they can be computed in any order, by any threads. */
size_t spw_ref_product_blocks(const spw_product *product);

/* fp64 numbers that a thread needs as `workspace` for spw_ref_product_block(). */
size_t spw_ref_product_workspace(const spw_product *product);

/* Computes block number `block`, less than spw_ref_product_blocks(). */
void spw_ref_product_block(const spw_product *product, size_t block, double *workspace);

/* Name of the instruction set that the tiles run on: "x86-64-v4", "x86-64-v3" or "baseline". */
const char *spw_ref_product_isa(void);

#endif
