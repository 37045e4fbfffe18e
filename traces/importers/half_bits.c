#include "traces/importers/half_bits.h"

#include <math.h>

enum { MANTISSA_BITS = 10, BIAS = 15, LEAST_EXPONENT = -14, INFINITE = 31 << MANTISSA_BITS };

bool spw_half_bits(double value, uint16_t *out) {
    if (!(value >= 0.0 && value < 65536.0)) return false;
    const int found = value > 0.0 ? ilogb(value) : LEAST_EXPONENT,
              exponent = found < LEAST_EXPONENT ? LEAST_EXPONENT : found;
    /* a mantissa that rounds up to 2^11 carries into the exponent, as it must */
    const double mantissa = nearbyint(ldexp(value, MANTISSA_BITS - exponent));
    const bool normal = found >= LEAST_EXPONENT && value > 0.0;
    const int bits =
        normal ? ((exponent + BIAS) << MANTISSA_BITS) + (int)mantissa - (1 << MANTISSA_BITS) : (int)mantissa;
    if (bits >= INFINITE) return false;
    *out = (uint16_t)bits;
    return true;
}
