#include "sim/time/grid_time.h"

#include "sim/input/grid.h"
#include "sim/memory/pipeline.h"
#include "sim/time/step_traffic.h"

/* Bytes a second out of one GPU: of a tensor group, which is consecutive GPUs, or of a context group, with `tensor` of them
 * between its members. */
static double rate_of(const spw_megatron_coefficients *c, const spw_job *job, spw_purpose purpose) {
    const spw_grid g = spw_grid_of(job);
    const size_t span = purpose == SPW_PURPOSE_TENSOR ? g.tensor : g.tensor * g.context;
    return job->cluster.gpus_per_node % span == 0 ? c->exchange_bytes_per_s.value
                                                  : c->network_bytes_per_s.value;
}

static spw_grid_seconds *place_of(spw_grid_time *t, const spw_step_item *item) {
    if (item->purpose == SPW_PURPOSE_CONTEXT) return &t->context;
    return item->place == SPW_PLACE_ENDS ? &t->ends : &t->tensor;
}

spw_status spw_grid_time_of(const spw_megatron_coefficients *c, const spw_point *point, spw_grid_time *out) {
    const spw_pipeline pipeline = spw_pipeline_of(point->job);
    const double stages = (double)pipeline.stages, micro_batches = (double)pipeline.micro_batches;
    spw_step_traffic traffic;
    *out = (spw_grid_time){.gradients = 0.0};
    if (spw_grid_is_plain(point->job)) return SPW_OK;
    const spw_status status = spw_step_traffic_of(point, &spw_step_stacks[SPW_STEP_STACK_CUDA], &traffic);
    for (size_t i = 0; i < traffic.items && status == SPW_OK; i++) {
        const spw_step_item *item = &traffic.item[i];
        if (item->purpose != SPW_PURPOSE_TENSOR && item->purpose != SPW_PURPOSE_CONTEXT) continue;
        const double bytes = spw_step_item_wire_bytes(&traffic, item),
                     calls = (double)(item->count * traffic.times[item->place]) / stages,
                     seconds =
                         bytes / rate_of(c, point->job, item->purpose) + calls * c->exchange_latency_s.value;
        if (item->place == SPW_PLACE_STEP) {
            out->gradients += seconds;
            continue;
        }
        spw_grid_seconds *of = place_of(out, item); /* the list is of a step and the mean stage */
        of->all += seconds * stages / micro_batches;
        if (!item->backward) of->forward += seconds * stages / micro_batches;
    }
    return status;
}
