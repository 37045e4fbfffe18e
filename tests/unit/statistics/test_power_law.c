/* Exponents of costs that are known: a power law without scatter, one whose line and error follow from sums of small numbers, and what
 * has too few points. */
#include "sim/statistics/power_law.h"

#include "tests/unit/check.h"

#include <math.h>

int main(void) {
    /* 7 x^1.5: on the line, so that its error is 0. */
    double x[6], y[6];
    for (int i = 0; i < 6; i++) x[i] = 64.0 * pow(4.0, i), y[i] = 7.0 * pow(x[i], 1.5);
    spw_power_law law = spw_power_law_of(x, y, 6);
    CHECK(fabs(law.exponent - 1.5) < 1e-12 && law.error < 1e-12);
    CHECK(spw_power_law_is_above_linear(law));
    for (int i = 0; i < 6; i++) y[i] = 3.0;
    law = spw_power_law_of(x, y, 6);
    CHECK(fabs(law.exponent) < 1e-12 && !spw_power_law_is_above_linear(law));

    /* Logarithms to the base e: x 0, 1, 2, 3 and y 0, 2, 1, 3. Means 1.5; sum of x squared about it 5, of x y 4: the exponent is 4 / 5.
     * Residuals -0.3, 0.9, -0.9, 0.3: their squares sum to 1.8, so the error is sqrt(1.8 / 2 / 5) = sqrt(0.18). */
    const double log_y[4] = {0.0, 2.0, 1.0, 3.0};
    for (int i = 0; i < 4; i++) x[i] = exp(i), y[i] = exp(log_y[i]);
    law = spw_power_law_of(x, y, 4);
    CHECK(fabs(law.exponent - 0.8) < 1e-12);
    CHECK(fabs(law.error - sqrt(0.18)) < 1e-12);

    /* Above 1, but not by twice its error. */
    CHECK(!spw_power_law_is_above_linear((spw_power_law){1.1, 0.05}));
    CHECK(spw_power_law_is_above_linear((spw_power_law){1.11, 0.05}));
    CHECK(!spw_power_law_is_above_linear((spw_power_law){NAN, NAN}));

    CHECK(isnan(spw_power_law_of(x, y, 2).exponent) && isnan(spw_power_law_of(x, y, 2).error));
    x[1] = x[2] = x[0];
    CHECK(isnan(spw_power_law_of(x, y, 3).exponent));

    CHECK(spw_power_law_half(3) == 3 && spw_power_law_half(5) == 3 && spw_power_law_half(6) == 3);
    CHECK(spw_power_law_half(7) == 4 && spw_power_law_half(8) == 4 && spw_power_law_half(9) == 5);
    return check_done();
}
