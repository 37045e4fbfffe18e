#include "sim/oom_probability.h"

#include <gsl/gsl_cdf.h>

static const double TAIL = 0.025;

spw_probability spw_oom_probability(size_t failed, size_t steps) {
    const double k = (double)failed, n = (double)steps;
    return (spw_probability){.value = k / n,
                             .low = failed == 0 ? 0.0 : gsl_cdf_beta_Pinv(TAIL, k, n - k + 1.0),
                             .high = failed == steps ? 1.0 : gsl_cdf_beta_Pinv(1.0 - TAIL, k + 1.0, n - k)};
}
