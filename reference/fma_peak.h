/* What this machine's cores can do at most: the yardstick of the grouped GEMM's speed. */
#ifndef SPW_REFERENCE_FMA_PEAK_H
#define SPW_REFERENCE_FMA_PEAK_H

/* fp32 operations per second (a fused multiply-add is two) of `threads` threads that do nothing but multiply
 * and add in registers, for about `seconds`: the best of several rounds. Vectors are those of
 * spw_ref_product_isa(). */
double spw_ref_fma_peak(int threads, double seconds);

#endif
