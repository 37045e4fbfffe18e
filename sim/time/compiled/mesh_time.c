#include "sim/time/compiled/mesh_time.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/traffic/step_traffic.h"

#include <math.h>

bool spw_mesh_time_covers(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return spw_grid_mesh_gpus(&g) > 1 && job->remat == SPW_REMAT_FULL && job->pipeline <= 1;
}

spw_status spw_mesh_time_traffic(const spw_point *point, spw_purpose purpose, spw_weight_traffic *out) {
    const spw_job *job = point->job;
    const spw_grid g = spw_grid_of(job);
    const bool tensor = purpose == SPW_PURPOSE_TENSOR;
    const size_t size = tensor ? g.tensor : g.context, stride = tensor ? g.expert : g.expert * g.tensor,
                 node = job->cluster.gpus_per_node;
    spw_step_traffic traffic;
    const spw_status status = spw_step_traffic_of(point, &spw_step_stacks[SPW_STEP_STACK_CUDA], &traffic);
    *out = (spw_weight_traffic){.hops = 0.0};
    for (size_t i = 0; i < traffic.items && status == SPW_OK; i++) {
        const spw_step_item *item = &traffic.item[i];
        const double bytes = spw_step_item_wire_bytes(&traffic, item);
        if (item->purpose != purpose) continue;
        if (size * stride > node) {
            out->nic_bytes += bytes * fmin(1.0, (double)stride / (double)node);
        } else {
            out->link_bytes += bytes;
        }
        out->hops += (double)(item->count * spw_step_item_times(&traffic, item)) * (double)(size - 1);
    }
    out->seen_hops = out->hops;
    return status;
}
