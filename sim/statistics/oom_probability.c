#include "sim/statistics/oom_probability.h"

#include <gsl/gsl_cdf.h>

static const double TAIL = 0.025;
enum { HALVINGS = 64 };

/* By halving: gsl_cdf_beta_Pinv does not converge for some of thousands of steps. */
double spw_beta_quantile(double below, double a, double b) {
    double low = 0.0, high = 1.0;
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = 0.5 * (low + high);
        if (gsl_cdf_beta_P(middle, a, b) < below) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return 0.5 * (low + high);
}

spw_probability spw_oom_probability(size_t failed, size_t steps) {
    const double k = (double)failed, n = (double)steps;
    return (spw_probability){.value = k / n,
                             .low = failed == 0 ? 0.0 : spw_beta_quantile(TAIL, k, n - k + 1.0),
                             .high = failed == steps ? 1.0 : spw_beta_quantile(1.0 - TAIL, k + 1.0, n - k)};
}
