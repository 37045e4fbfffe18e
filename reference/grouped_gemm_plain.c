#include "reference/grouped_gemm_plain.h"

#include <math.h>

spw_status spw_ref_check_offsets(spw_gemm_shape shape, const size_t *offset) {
    if (offset[0] != 0) return spw_fail(SPW_EARG, "offset[0] is %zu, not 0", offset[0]);
    for (size_t e = 0; e < shape.experts; e++) {
        if (offset[e] > offset[e + 1]) {
            return spw_fail(SPW_EARG, "offset[%zu] = %zu is less than offset[%zu] = %zu", e + 1,
                            offset[e + 1], e, offset[e]);
        }
    }
    if (offset[shape.experts] > shape.rows) {
        return spw_fail(SPW_EARG, "offset[%zu] = %zu exceeds the %zu rows", shape.experts,
                        offset[shape.experts], shape.rows);
    }
    return SPW_OK;
}

/* One sum and its yardstick: a[k * a_step] * b[k * b_step], k ascending. */
static void product(size_t terms, const float *a, size_t a_step, const float *b, size_t b_step,
                    float *sum_out, float *scale) {
    double sum = 0.0, magnitude = 0.0;
    for (size_t k = 0; k < terms; k++) {
        const double term = (double)a[k * a_step] * (double)b[k * b_step];
        sum += term;
        magnitude += fabs(term);
    }
    *sum_out = (float)sum;
    if (scale != NULL) *scale = (float)magnitude;
}

static float *at(float *array, size_t i) { return array == NULL ? NULL : array + i; }

spw_status spw_ref_grouped_gemm_plain(spw_gemm_shape s, const float *x, const float *w, const size_t *offset,
                                      float *y, float *scale) {
    const spw_status status = spw_ref_check_offsets(s, offset);
    if (status != SPW_OK) return status;
    const size_t in_step = s.transposed ? 1 : s.out, out_step = s.transposed ? s.in : 1;
    for (size_t e = 0; e <= s.experts; e++) { /* the last round is the tail */
        const bool tail = e == s.experts;
        const float *we = tail ? w : w + e * s.in * s.out;
        const size_t end = tail ? s.rows : offset[e + 1], terms = tail ? 0 : s.in;
#pragma omp parallel for schedule(static)
        for (size_t r = offset[e]; r < end; r++) {
            for (size_t o = 0; o < s.out; o++) {
                product(terms, x + r * s.in, 1, we + o * out_step, in_step, y + r * s.out + o,
                        at(scale, r * s.out + o));
            }
        }
    }
    return SPW_OK;
}

spw_status spw_ref_grouped_gemm_input_gradient_plain(spw_gemm_shape s, const float *dy, const float *w,
                                                     const size_t *offset, float *dx, float *scale) {
    const spw_gemm_shape mirrored = {
        .experts = s.experts, .rows = s.rows, .in = s.out, .out = s.in, .transposed = !s.transposed};
    return spw_ref_grouped_gemm_plain(mirrored, dy, w, offset, dx, scale);
}

spw_status spw_ref_grouped_gemm_weight_gradient_plain(spw_gemm_shape s, const float *x, const float *dy,
                                                      const size_t *offset, float *dw, float *scale) {
    const spw_status status = spw_ref_check_offsets(s, offset);
    if (status != SPW_OK) return status;
    const size_t in_step = s.transposed ? 1 : s.out, out_step = s.transposed ? s.in : 1;
    for (size_t e = 0; e < s.experts; e++) {
        const size_t first = offset[e], terms = offset[e + 1] - first;
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < s.in; i++) {
            for (size_t o = 0; o < s.out; o++) {
                const size_t element = e * s.in * s.out + i * in_step + o * out_step;
                product(terms, x + first * s.in + i, s.in, dy + first * s.out + o, s.out, dw + element,
                        at(scale, element));
            }
        }
    }
    return SPW_OK;
}
