#include "sim/memory/allocator/allocator_share.h"

#include "sim/machine/stack_defaults.h"

#include <math.h>

double spw_allocator_share(const spw_job_allocator *a) {
    if (a->max_split_size_mb > 0 || a->roundup_power2_divisions > 0) return INFINITY;
    return a->expandable_segments ? spw_default_allocator_share_expandable.value
                                  : spw_default_allocator_share.value;
}
