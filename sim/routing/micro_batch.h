/* The micro-batches of a step: consecutive parts of the sequences that a rank has. */
#ifndef SPW_SIM_ROUTING_MICRO_BATCH_H
#define SPW_SIM_ROUTING_MICRO_BATCH_H

#include "base/status.h"

#include <stddef.h>

typedef struct spw_layout spw_layout;

/* The part of a layout that is micro-batch `index` of `count`: sequences / count of every rank, numbered from 0.
 * Overwrites *out, which has the same ranks. */
SPW_MUST_CHECK spw_status spw_micro_batch_layout(const spw_layout *layout, size_t index, size_t count,
                                                 spw_layout *out);

#endif
