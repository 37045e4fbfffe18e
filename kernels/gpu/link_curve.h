/* Bandwidth and latency of the links of a node by message size, as a cluster file holds them (sim/machine/cluster.h,
 * spw_link_points). */
#ifndef SPW_KERNELS_GPU_LINK_CURVE_H
#define SPW_KERNELS_GPU_LINK_CURVE_H

#include "base/status.h"

#include <stddef.h>
#include <stdio.h>

enum { SPW_LINK_CURVE_POINTS = 16, SPW_LINK_CURVE_LISTS = 6 };

typedef struct spw_link_curve {
    size_t points, gpus;
    /* message_bytes, latency_ns, out, in, exchange, incast (10^6 bytes/s) */
    size_t value[SPW_LINK_CURVE_LISTS][SPW_LINK_CURVE_POINTS];
    char source[160];
} spw_link_curve;

extern const char *const spw_link_curve_keys[SPW_LINK_CURVE_LISTS];

/* As the YAML of a cluster file: the key `link` with its lists, evidence and source. SPW_EIO. */
SPW_MUST_CHECK spw_status spw_link_curve_write(const spw_link_curve *curve, FILE *out);

#endif
