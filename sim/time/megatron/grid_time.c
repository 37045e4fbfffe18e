#include "sim/time/megatron/grid_time.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/schemes/network.h"
#include "sim/traffic/step_traffic.h"
#include "sim/weights/pipeline.h"

/* What one collective of a group takes: seconds a byte out of one GPU, and seconds whatever its bytes. */
typedef struct group_pace {
    double byte_s, call_s;
} group_pace;

/* Members of a group are `stride` GPUs apart. */
typedef struct grid_group {
    size_t size, stride;
} grid_group;

static grid_group group_of(const spw_job *job, spw_purpose purpose) {
    const spw_grid g = spw_grid_of(job);
    return purpose == SPW_PURPOSE_TENSOR ? (grid_group){g.tensor, 1} : (grid_group){g.context, g.tensor};
}

/* All groups at once, each a ring in the order of its members: a byte from every GPU to the next, over the network alone. */
static void carry_rings(const spw_job *job, grid_group group, spw_network *network) {
    const size_t gpus = job->cluster.nodes * job->cluster.gpus_per_node, node = job->cluster.gpus_per_node,
                 span = group.size * group.stride;
    spw_network_clear(network);
    for (size_t from = 0; from < gpus; from++) {
        const bool last = from % span / group.stride + 1 == group.size;
        const size_t to = last ? from + group.stride - span : from + group.stride;
        if (from / node != to / node) spw_network_carry(network, from, to, 1);
    }
}

/* A group on one node takes the rate of exchanges, any other the NIC's; above the NICs, the level that takes longest. */
static group_pace pace_of(const spw_megatron_coefficients *c, const spw_job *job, spw_purpose purpose,
                          spw_network *network) {
    const grid_group group = group_of(job, purpose);
    group_pace pace = {1.0 / c->exchange_bytes_per_s.value, c->exchange_latency_s.value};
    if (job->cluster.gpus_per_node % (group.size * group.stride) == 0) return pace;
    pace.byte_s = 1.0 / c->network_bytes_per_s.value;
    if (network == NULL) return pace;
    carry_rings(job, group, network);
    const spw_network_worst worst = spw_network_worst_of(network);
    if (worst.nic_bytes > 1.0) pace.byte_s *= worst.nic_bytes;
    pace.call_s += worst.latency_s;
    return pace;
}

static spw_grid_seconds *place_of(spw_grid_time *t, const spw_step_item *item) {
    if (item->purpose == SPW_PURPOSE_CONTEXT) return &t->context;
    return item->place == SPW_PLACE_ENDS ? &t->ends : &t->tensor;
}

spw_status spw_grid_time_of(const spw_megatron_coefficients *c, const spw_point *point, spw_grid_time *out) {
    const spw_pipeline pipeline = spw_pipeline_of(point->job);
    const double stages = (double)pipeline.stages, micro_batches = (double)pipeline.micro_batches;
    spw_step_traffic traffic;
    spw_network *network = NULL;
    spw_status status = SPW_OK;
    *out = (spw_grid_time){.gradients = 0.0};
    if (spw_grid_is_plain(point->job)) return SPW_OK;
    SPW_TRY(spw_step_traffic_of(point, &spw_step_stacks[SPW_STEP_STACK_CUDA], &traffic));
    SPW_TRY(spw_network_create(&point->job->cluster, &network));
    const group_pace tensor = pace_of(c, point->job, SPW_PURPOSE_TENSOR, network),
                     context = pace_of(c, point->job, SPW_PURPOSE_CONTEXT, network);
    for (size_t i = 0; i < traffic.items; i++) {
        const spw_step_item *item = &traffic.item[i];
        const group_pace *pace = item->purpose == SPW_PURPOSE_TENSOR ? &tensor : &context;
        if (item->purpose != SPW_PURPOSE_TENSOR && item->purpose != SPW_PURPOSE_CONTEXT) continue;
        const double bytes = spw_step_item_wire_bytes(&traffic, item),
                     calls = (double)(item->count * spw_step_item_times(&traffic, item)) / stages,
                     seconds = bytes * pace->byte_s + calls * pace->call_s;
        if (item->place == SPW_PLACE_STEP) {
            out->gradients += seconds;
            continue;
        }
        spw_grid_seconds *of = place_of(out, item); /* the list is of a step and the mean stage */
        of->all += seconds * stages / micro_batches;
        if (!item->backward) of->forward += seconds * stages / micro_batches;
    }

cleanup:
    spw_network_destroy(network);
    return status;
}
