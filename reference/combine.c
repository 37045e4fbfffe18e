#include "reference/combine.h"

#include <math.h>

static double weight_of(const float *weight, size_t assignment) {
    return weight == NULL ? 1.0 : (double)weight[assignment];
}

void spw_ref_combine(const spw_plan *plan, size_t width, const float *rows, const float *weight, float *y,
                     float *scale) {
    const size_t top_k = plan->top_k;
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < plan->tokens; t++) {
        for (size_t h = 0; h < width; h++) {
            double sum = 0.0, magnitude = 0.0;
            for (size_t k = 0; k < top_k; k++) {
                const int32_t row = plan->row[t * top_k + k];
                if (row < 0) continue;
                const double term = weight_of(weight, t * top_k + k) * (double)rows[(size_t)row * width + h];
                sum += term;
                magnitude += fabs(term);
            }
            y[t * width + h] = (float)sum;
            if (scale != NULL) scale[t * width + h] = (float)magnitude;
        }
    }
}

static double weight_gradient(size_t width, const float *dy, const float *row, double *magnitude) {
    double sum = 0.0;
    *magnitude = 0.0;
    for (size_t h = 0; h < width; h++) {
        const double term = (double)dy[h] * (double)row[h];
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

void spw_ref_combine_gradient(const spw_plan *plan, size_t width, const float *dy, const float *rows,
                              const float *weight, spw_combine_gradients out) {
    float *const d_rows = out.d_rows, *const d_weight = out.d_weight, *const weight_scale = out.weight_scale;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < plan->tokens * plan->top_k; i++) {
        const float *d = dy + i / plan->top_k * width;
        double sum = 0.0, magnitude = 0.0;
        if (plan->row[i] >= 0) {
            const size_t at = (size_t)plan->row[i] * width;
            for (size_t h = 0; h < width && d_rows != NULL; h++) {
                d_rows[at + h] = (float)(weight_of(weight, i) * (double)d[h]);
            }
            if (d_weight != NULL || weight_scale != NULL)
                sum = weight_gradient(width, d, rows + at, &magnitude);
        }
        if (d_weight != NULL) d_weight[i] = (float)sum;
        if (weight_scale != NULL) weight_scale[i] = (float)magnitude;
    }
}
