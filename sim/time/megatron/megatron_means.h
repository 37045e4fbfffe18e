/* Loads of the ranks of a group in the mean of all groups and micro-batches, of which a step's least time follows
 * (spw_megatron_job_mean_s).
 *
 * Between two exchanges a rank's clock is a sum that is linear in its load; an exchange begins at a convex function of all clocks that grows with
 * each (sim/time/megatron/megatron_time.h) and takes a convex function of what the ports carry. So the seconds of a block are convex in the
 * loads: those of the mean are at most the mean of the seconds (Jensen 1906), and the slowest group has at least the mean of
 * all groups. Where seconds jump, between no rows and some, the mean is taken for none. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_MEANS_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_MEANS_H

#include "base/status.h"
#include "sim/time/megatron/megatron_time.h"

#include <stdbool.h>
#include <stddef.h>

/* Of which micro-batches: the first begins the pipeline, the last ends it. */
typedef enum spw_megatron_mean {
    SPW_MEGATRON_MEAN_OF_ALL,
    SPW_MEGATRON_MEAN_OF_FIRST,
    SPW_MEGATRON_MEAN_OF_LAST,
    SPW_MEGATRON_MEANS
} spw_megatron_mean;

typedef struct spw_megatron_means {
    size_t layers, ranks;    /* ranks: of a group */
    spw_megatron_load *load; /* [SPW_MEGATRON_MEANS][layers][ranks] */
    bool *empty;             /* [SPW_MEGATRON_MEANS][layers][ranks] had no rows once */
    bool *near;              /* [SPW_MEGATRON_MEANS][layers] no rank sent to another node once */
    bool unlike;             /* ranks sent unlike many rows: then a backward pass alone may not be convex */
} spw_megatron_means;

SPW_MUST_CHECK spw_status spw_megatron_means_create(size_t layers, size_t ranks, spw_megatron_means *out);
void spw_megatron_means_destroy(spw_megatron_means *means); /* a zeroed one is fine */

/* Adds the loads of one group, micro-batch and layer, load [ranks], with a share of the mean. Of rows that are no padding. */
void spw_megatron_means_add(spw_megatron_means *means, spw_megatron_mean of, size_t layer, double share,
                            const spw_megatron_load *load);
/* When all are added, the shares of each sum to 1. */
void spw_megatron_means_close(spw_megatron_means *means);

#endif
