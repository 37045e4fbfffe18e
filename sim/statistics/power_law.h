/* How fast a cost grows: the exponent of a power law through measured points. */
#ifndef SPW_SIM_STATISTICS_POWER_LAW_H
#define SPW_SIM_STATISTICS_POWER_LAW_H

#include <stdbool.h>
#include <stddef.h>

enum { SPW_POWER_LAW_POINTS = 3 }; /* the fewest that have a standard error */

typedef struct spw_power_law {
    double exponent, error; /* its standard error */
} spw_power_law;

/* y = c x^exponent by least squares of the logarithms; the error is sqrt(sum of squared residuals / (n - 2) / sum of squared distances
 * of log x from their mean). NAN both, where there are fewer points or x are all equal. x, y > 0. */
spw_power_law spw_power_law_of(const double *x, const double *y, size_t count);

/* Points of the upper half of `count` of them, by place: half, rounded up, but not fewer than SPW_POWER_LAW_POINTS. */
size_t spw_power_law_half(size_t count);

/* Whether the exponent is above 1 by more than twice its error. */
bool spw_power_law_is_above_linear(spw_power_law law);

#endif
