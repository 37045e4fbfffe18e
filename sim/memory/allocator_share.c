#include "sim/memory/allocator_share.h"

#include <math.h>

static const double MEASURED_DEFAULT = 3.16, MEASURED_EXPANDABLE = 1.04;

double spw_allocator_share(const spw_job_allocator *a) {
    if (a->max_split_size_mb > 0 || a->roundup_power2_divisions > 0) return INFINITY;
    return a->expandable_segments ? MEASURED_EXPANDABLE : MEASURED_DEFAULT;
}
