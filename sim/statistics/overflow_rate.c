#include "sim/statistics/overflow_rate.h"

#include "sim/statistics/oom_probability.h"

#include <math.h>

static const double UNSURE = 0.05;

double spw_overflow_upper_limit(size_t overflowing, size_t steps) {
    if (overflowing >= steps) return 1.0;
    return spw_beta_quantile(1.0 - UNSURE, (double)overflowing + 1.0, (double)(steps - overflowing));
}

size_t spw_overflows_allowed(double share, size_t steps) {
    size_t low = 0, high = steps; /* the limit of `high` is above the share, that of `low` is not */
    if (spw_overflow_upper_limit(0, steps) > share) return SPW_OVERFLOWS_NONE;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (spw_overflow_upper_limit(middle, steps) > share) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return low;
}

size_t spw_overflow_steps_needed(double share) {
    return share > 0.0 ? (size_t)ceil(log(UNSURE) / log1p(-share)) : 0;
}
