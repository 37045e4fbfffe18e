/* Quantiles of values that a replay or a score has gathered. */
#ifndef SPW_SIM_STATISTICS_QUANTILES_H
#define SPW_SIM_STATISTICS_QUANTILES_H

#include <stddef.h>
#include <stdint.h>

/* Nearest rank: pNN is the smallest value that at least NN % of all values do not exceed, so every quantile is a
 * value that occurred. */
typedef struct spw_byte_quantiles {
    uint64_t p50_bytes, p99_bytes, max_bytes;
} spw_byte_quantiles;

/* Sorts `bytes`; all 0 when count is 0. */
spw_byte_quantiles spw_byte_quantiles_of(uint64_t *bytes, size_t count);

/* Sorts `values` and interpolates between neighbours (Hyndman and Fan 1996, type 7); share in [0, 1]. NAN when count
 * is 0. */
double spw_quantile(double *values, size_t count, double share);

#endif
