#include "sim/time/time_bound.h"

#include "sim/job/grid.h"
#include "sim/machine/compiled_layer.h"
#include "sim/time/compiled/compiled_time.h"
#include "sim/time/megatron/megatron_job_time.h"
#include "sim/time/routing_load.h"

#include <math.h>

static double compiled_most(const spw_point *p, const spw_time_stack *stack, bool whole) {
    const double rows = whole ? (double)p->shape.assignments : 0.0;
    spw_routing_layer least = {.rows = rows, .tiled_rows = rows};
    const spw_time_request request = {.stack = stack,
                                      .job = p->job,
                                      .scheme = p->scheme,
                                      .sequences = p->sequences,
                                      .layer = &least,
                                      .layers = 1};
    spw_timeline time;
    if (spw_scheme_program(p->scheme)->capacity_slots) {
        if (spw_routing_load_stated(p, 1.0, 1, &least) != SPW_OK) return INFINITY;
        least.link_rows = least.nic_rows = 0.0;
    }
    return spw_compiled_time_predict(&request, &time) == SPW_OK ? time.tokens_per_s_per_gpu : INFINITY;
}

static double megatron_most(const spw_point *p, const spw_megatron_coefficients *megatron, bool whole) {
    const double rows = (double)(p->shape.assignments * spw_grid_of(p->job).expert_tensor);
    double least = 0.0;
    if (spw_megatron_job_least_s(megatron, p, whole ? rows : 0.0, &least) != SPW_OK) return INFINITY;
    return spw_megatron_job_tokens(p) / least;
}

double spw_tokens_per_s_most(const spw_point *point, const spw_time_stack *stack,
                             const spw_megatron_coefficients *megatron, bool whole) {
    if (stack != NULL && spw_compiled_time_covers(point->job, point->scheme))
        return compiled_most(point, stack, whole);
    if (megatron != NULL && spw_megatron_job_covers(point->job, point->scheme))
        return megatron_most(point, megatron, whole);
    return INFINITY;
}
