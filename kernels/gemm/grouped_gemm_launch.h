/* Private to kernels/: launchers of grouped GEMM, implemented in *.hip. Each returns the runtime's error
 * code, 0 for none. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_LAUNCH_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_LAUNCH_H

#include "kernels/gemm/grouped_gemm_problem.h"
#include "kernels/gpu/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* element: of a, b and c. p.blocks: the number of multiprocessors. rows > 0, columns > 0, inner > 0, experts > 0. */
typedef int spw_gemm_launcher(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                              gpu_stream stream);
spw_gemm_launcher spw_launch_gemm_naive, spw_launch_gemm_tiled, spw_launch_gemm_mfma, spw_launch_gemm_wgmma;

/* c[r][n] = swiglu(gate, up) with gate = sum over k of a[r][k] b[e](k, n) and up the same of b's column columns +
 * n; b has 2 * p.columns columns. SPW_GEMM_ROWS only. */
typedef int spw_gemm_swiglu_launcher(spw_gemm_element element, spw_gemm_problem p, gpu_stream stream);
spw_gemm_swiglu_launcher spw_launch_gemm_swiglu_mfma, spw_launch_gemm_swiglu_wgmma;

/* All of a weight gradient's result becomes 0, for a product without rows; p.offset has nothing but 0. */
int spw_gemm_clear_weights(spw_gemm_element element, const spw_gemm_problem *p, gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
