/* Collectives of a step of a job. */
#ifndef SPW_TESTS_TRAFFIC_OF_H
#define SPW_TESTS_TRAFFIC_OF_H

#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/traffic/step_traffic.h"

static inline spw_status traffic_of(const spw_job *job, const spw_scheme *scheme, size_t sequences,
                                    const spw_step_stack *stack, spw_step_traffic *out) {
    const spw_point point = spw_point_of(job, scheme, sequences);
    return spw_step_traffic_of(&point, stack, out);
}

#endif
