#include "sim/time/megatron_load.h"

#include "sim/schemes/megatron_layer.h"
#include "sim/schemes/traffic.h"
#include "sim/time/routing_load.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    spw_megatron_dispatcher dispatcher;
} schemes[] = {{"megatron-alltoall", SPW_MEGATRON_ALL_TO_ALL},
               {"megatron-flex", SPW_MEGATRON_TOKENS},
               {"megatron-allgather", SPW_MEGATRON_ALL_GATHER}};

static size_t scheme_row(const spw_scheme *scheme) {
    size_t i = 0;
    while (i < SPW_COUNT_OF(schemes) && strcmp(schemes[i].name, scheme->type->name) != 0) i++;
    return i;
}

bool spw_megatron_load_knows(const spw_scheme *scheme) { return scheme_row(scheme) < SPW_COUNT_OF(schemes); }

spw_megatron_dispatcher spw_megatron_dispatcher_of(const spw_scheme *scheme) {
    return spw_megatron_load_knows(scheme) ? schemes[scheme_row(scheme)].dispatcher : SPW_MEGATRON_ALL_TO_ALL;
}

const char *spw_megatron_unmeasured(spw_megatron_dispatcher dispatcher) {
    static const char *const texts[] = {[SPW_MEGATRON_ALL_TO_ALL] = NULL,
                                        [SPW_MEGATRON_TOKENS] = "DeepEP measured alone, not in a layer",
                                        [SPW_MEGATRON_ALL_GATHER] = "all-gather dispatcher not measured"};
    return texts[dispatcher];
}

/* Rows of a local expert: kept choices, or equal slots where those are computed full or empty. */
static uint64_t expert_rows(const spw_layer_shape *s, const spw_counts *c, size_t group, size_t expert) {
    uint64_t rows = 0;
    for (size_t source = 0; source < s->ranks; source++)
        rows += c->routed[(group * s->ranks + source) * s->experts + expert];
    return rows;
}

void spw_megatron_load_of(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c,
                          size_t group, const spw_flow *flow, spw_megatron_load *load) {
    const bool slots = spw_scheme_option_is(scheme, "pad", "true"),
               permutes = spw_megatron_dispatcher_of(scheme) == SPW_MEGATRON_ALL_TO_ALL;
    const double tile = SPW_MEGATRON_TILE_ROWS;
    spw_ports port[SPW_TRAFFIC_MAX_RANKS];
    spw_traffic_ports(scheme, s, c, group, flow, port);
    for (size_t d = 0; d < s->ranks; d++) {
        const uint64_t even = flow->rows[d] / s->experts_per_rank;
        load[d] = (spw_megatron_load){.received = (double)flow->rows[d],
                                      .link_in = (double)port[d].link_in,
                                      .link_out = (double)port[d].link_out,
                                      .nic_in = (double)port[d].nic_in,
                                      .nic_out = (double)port[d].nic_out};
        for (size_t i = 0; i < s->experts_per_rank; i++) {
            const uint64_t rows = slots ? even : expert_rows(s, c, group, d * s->experts_per_rank + i);
            load[d].tiled += ceil((double)rows / tile) * tile;
            load[d].empty_experts += rows == 0;
            load[d].uneven = load[d].uneven || rows != even;
        }
        for (size_t to = 0; to < s->ranks && permutes; to++)
            load[d].sent += (double)flow->wire[d * s->ranks + to];
    }
}

spw_status spw_megatron_load_stated(const spw_job *job, const spw_scheme *scheme, size_t sequences,
                                    double imbalance, size_t groups, spw_megatron_load *load) {
    spw_stated_routing r;
    const spw_status status = spw_stated_routing_create(job, scheme, sequences, imbalance, groups, &r);
    if (status != SPW_OK) return status;
    for (size_t g = 0; g < groups; g++) {
        spw_stated_routing_flow(&r, g);
        spw_megatron_load_of(scheme, &r.shape, r.counts, g, &r.flow, load + g * r.shape.ranks);
    }
    spw_stated_routing_destroy(&r);
    return SPW_OK;
}
