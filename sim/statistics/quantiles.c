#include "sim/statistics/quantiles.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The smallest rank, from 0, that covers `percent` of `count`; (count x percent) / 100 without overflow. */
static size_t nearest_rank(size_t count, size_t percent) {
    const size_t whole = count / 100 * percent, rest = (count % 100 * percent + 99) / 100;
    return whole + rest - 1;
}

spw_byte_quantiles spw_byte_quantiles_of(uint64_t *bytes, size_t count) {
    if (count == 0) return (spw_byte_quantiles){0};
    qsort(bytes, count, sizeof *bytes, by_size);
    return (spw_byte_quantiles){bytes[nearest_rank(count, 50)], bytes[nearest_rank(count, 99)],
                                bytes[count - 1]};
}

double spw_quantile(double *values, size_t count, double share) {
    if (count == 0) return NAN;
    gsl_sort(values, 1, count);
    return gsl_stats_quantile_from_sorted_data(values, 1, count, share);
}
