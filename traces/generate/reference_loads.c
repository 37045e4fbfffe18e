#include "traces/generate/reference_loads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int falling(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The share of all choices that the experts up to `u` have; sum [SPW_REFERENCE_EXPERTS + 1] of the first experts. */
static double share_until(const double *sum, double u) {
    const double at = u * SPW_REFERENCE_EXPERTS;
    const size_t whole = at < SPW_REFERENCE_EXPERTS ? (size_t)at : SPW_REFERENCE_EXPERTS - 1;
    const double reached = sum[whole] + (at - (double)whole) * (sum[whole + 1] - sum[whole]);
    return reached / sum[SPW_REFERENCE_EXPERTS];
}

void spw_reference_loads(size_t layer, size_t experts, double *load) {
    double count[SPW_REFERENCE_EXPERTS], sum[SPW_REFERENCE_EXPERTS + 1] = {0.0}, before = 0.0;
    memcpy(count, spw_reference_count[layer % SPW_REFERENCE_LAYERS], sizeof count);
    qsort(count, SPW_REFERENCE_EXPERTS, sizeof *count, falling);
    for (size_t i = 0; i < SPW_REFERENCE_EXPERTS; i++) sum[i + 1] = sum[i] + count[i];
    for (size_t i = 0; i < experts; i++) {
        const double until = share_until(sum, (double)(i + 1) / (double)experts);
        load[i] = (until - before) * (double)experts;
        before = until;
    }
}
