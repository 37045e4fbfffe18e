/* How far the step times of Megatron-Core may be off: half widths of the interval, as logarithms. What was measured has the
 * interval of routings that were left out of the fit; every step away from it adds its own, weighted by the part of the step
 * that it concerns. Sums, not squares: the errors of one machine or one network go the same way.
 * Behind collectives of tensor and context parallelism no run stands: the interval has them hidden whole behind products, and
 * at twice their time. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_DOUBT_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_DOUBT_H

#include "sim/time/megatron/megatron_time.h"
#include "sim/time/timeline.h"

#include <stdbool.h>

typedef struct spw_megatron_coefficients spw_megatron_coefficients; /* sim/machine/megatron_coefficients.h */

/* Of the expert layers alone, on so many ranks with so many tokens each. */
double spw_megatron_layers_half_width(const spw_megatron_coefficients *c, size_t ranks, size_t tokens);

typedef struct spw_megatron_far {
    double layers;   /* spw_megatron_layers_half_width */
    bool counted;    /* there is more than expert layers */
    bool dispatcher; /* not measured in a layer */
    bool network;    /* exchanges between nodes */
    bool levels;     /* a network of several levels */
    bool scaled;     /* rates of another cluster */
    bool foreign;    /* whose GPU is of another generation or vendor */
    double recipe;   /* half width of fp8 products; 0: none */
    bool untuned;    /* the release: slower alone, no run is faster for it */
} spw_megatron_far;

/* Sets low_s and high_s of a finished timeline. */
void spw_megatron_doubt(const spw_megatron_coefficients *c, const spw_megatron_far *far, spw_timeline *out);

#endif
