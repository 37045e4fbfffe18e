/* Private to kernels/: launchers of grouped GEMM, implemented in *.hip. Each returns the runtime's error
 * code, 0 for none. */
#ifndef SPW_KERNELS_GROUPED_GEMM_LAUNCH_H
#define SPW_KERNELS_GROUPED_GEMM_LAUNCH_H

#include "kernels/grouped_gemm_problem.h"
#include "kernels/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* p.blocks: the number of multiprocessors. rows > 0, columns > 0, inner > 0, experts > 0. */
typedef int spw_gemm_launcher(spw_gemm_form form, spw_gemm_problem p, gpu_stream stream);
spw_gemm_launcher spw_launch_gemm_naive, spw_launch_gemm_tiled, spw_launch_gemm_mfma, spw_launch_gemm_wgmma;

#ifdef __cplusplus
}
#endif
#endif
