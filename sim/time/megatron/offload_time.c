#include "sim/time/megatron/offload_time.h"

#include "sim/job/job.h"
#include "sim/job/recipe/megatron_keys.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/stack.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/memory/kept/attention_offload.h"
#include "sim/schemes/layer.h"

#include <math.h>

static const char NAME[] = "host_copies";

bool spw_offload_is_timed(const spw_job *job) {
    return job->offload.modules == 0 || job->cluster.gpu_generation == SPW_GPU_HOPPER ||
           job->cluster.gpu_generation == SPW_GPU_BLACKWELL;
}

/* Seconds of `bytes` of a layer, one way, on average over layers of which some stay. */
static double mean_s(const spw_megatron_coefficients *c, double bytes, spw_offload_groups at) {
    return at.layers > 0
               ? bytes / c->host_link_bytes_per_s.value * (double)(at.layers - at.staying) / (double)at.layers
               : 0.0;
}

spw_status spw_offload_layer_s(const spw_megatron_coefficients *c, const spw_point *point, size_t stage,
                               double *out) {
    spw_layer layer;
    *out = 0.0;
    if ((point->job->offload.modules & SPW_OFFLOAD_EXPERTS) == 0) return SPW_OK;
    const spw_status status = spw_layer_build(point->scheme, &point->shape, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    const spw_rank_rows rows = spw_balanced_rows(point->scheme, &point->shape);
    double bytes = (double)spw_layer_live_set(&layer, &rows).to_host_bytes;
    /* a copy by column and its scales, copied though their memory stays */
    if (spw_offload_stays(point->job))
        bytes += (double)rows.held * (double)point->shape.hidden * (1.0 + 1.0 / 32.0);
    spw_layer_destroy(&layer);
    *out = mean_s(c, bytes, spw_offload_stage_of(point->job, stage).experts);
    return SPW_OK;
}

double spw_offload_attention_s(const spw_megatron_coefficients *c, const spw_point *point, size_t stage) {
    if ((point->job->offload.modules & SPW_OFFLOAD_ATTENTION) == 0) return 0.0;
    return mean_s(c, spw_attention_offload_of(point->job, &point->shape, true).copied,
                  spw_offload_stage_of(point->job, stage).attention);
}

spw_status spw_offload_add(spw_timeline *timeline, double seconds, double exposed_s) {
    return spw_timeline_add(timeline, NAME, "activations to the host's memory and back", SPW_STREAM_HOST,
                            seconds, exposed_s);
}

void spw_offload_doubt(spw_timeline *t) {
    const spw_time_component *copies = spw_timeline_find(t, NAME);
    if (copies == NULL || !(t->step_s > 0.0)) return;
    const double without = (t->step_s - copies->exposed_s) / t->step_s;
    t->low_s = fmax(t->low_s * without, copies->seconds / 2.0);
    t->high_s = t->high_s * without + copies->seconds;
    spw_outside_add(
        t->outside,
        "copies to the host of balanced routing's rows, not measured in a whole model: the interval has "
        "them hidden as far as they can be, and not at all");
}
