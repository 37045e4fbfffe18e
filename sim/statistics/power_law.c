#include "sim/statistics/power_law.h"

#include <math.h>

spw_power_law spw_power_law_of(const double *x, const double *y, size_t count) {
    double mean_x = 0.0, mean_y = 0.0, xx = 0.0, xy = 0.0, squares = 0.0;
    const double n = (double)count;
    if (count < SPW_POWER_LAW_POINTS) return (spw_power_law){NAN, NAN};
    for (size_t i = 0; i < count; i++) mean_x += log(x[i]) / n, mean_y += log(y[i]) / n;
    for (size_t i = 0; i < count; i++) {
        const double from_mean = log(x[i]) - mean_x;
        xx += from_mean * from_mean;
        xy += from_mean * (log(y[i]) - mean_y);
    }
    if (!(xx > 0.0)) return (spw_power_law){NAN, NAN};
    const double exponent = xy / xx;
    for (size_t i = 0; i < count; i++) {
        const double residual = log(y[i]) - mean_y - exponent * (log(x[i]) - mean_x);
        squares += residual * residual;
    }
    return (spw_power_law){exponent, sqrt(squares / (n - 2.0) / xx)};
}

size_t spw_power_law_half(size_t count) {
    const size_t half = (count + 1) / 2;
    return half > SPW_POWER_LAW_POINTS ? half : SPW_POWER_LAW_POINTS;
}

bool spw_power_law_is_above_linear(spw_power_law law) { return law.exponent - 2.0 * law.error > 1.0; }
