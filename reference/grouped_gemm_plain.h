/* Grouped GEMM as three plain loops: the oracle of grouped_gemm.h, whose contracts hold here word for word. */
#ifndef SPW_REFERENCE_GROUPED_GEMM_PLAIN_H
#define SPW_REFERENCE_GROUPED_GEMM_PLAIN_H

#include "reference/grouped_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* SPW_EARG unless 0 = offset[0] <= ... <= offset[experts] <= rows; shared with the blocked version. */
SPW_MUST_CHECK spw_status spw_ref_check_offsets(spw_gemm_shape shape, const size_t *offset);

SPW_MUST_CHECK spw_status spw_ref_grouped_gemm_plain(spw_gemm_shape shape, const float *x, const float *w,
                                                     const size_t *offset, float *y, float *scale);
SPW_MUST_CHECK spw_status spw_ref_grouped_gemm_input_gradient_plain(spw_gemm_shape shape, const float *dy,
                                                                    const float *w, const size_t *offset,
                                                                    float *dx, float *scale);
SPW_MUST_CHECK spw_status spw_ref_grouped_gemm_weight_gradient_plain(spw_gemm_shape shape, const float *x,
                                                                     const float *dy, const size_t *offset,
                                                                     float *dw, float *scale);

#ifdef __cplusplus
}
#endif
#endif
