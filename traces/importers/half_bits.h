/* Numbers as IEEE 754 binary16, as a trace keeps weights. */
#ifndef SPW_TRACES_IMPORTERS_HALF_BITS_H
#define SPW_TRACES_IMPORTERS_HALF_BITS_H

#include <stdbool.h>
#include <stdint.h>

/* The nearest, ties to even. False where `value` is no weight: not a number, below 0, or above 65504 once rounded. */
bool spw_half_bits(double value, uint16_t *out);

#endif
