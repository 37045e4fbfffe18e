#include "sim/time/megatron/megatron_means.h"

#include "base/memory.h"

spw_status spw_megatron_means_create(size_t layers, size_t ranks, spw_megatron_means *out) {
    spw_status status = SPW_OK;
    *out = (spw_megatron_means){.layers = layers, .ranks = ranks};
    SPW_TRY(SPW_ALLOC(SPW_MEGATRON_MEANS * layers * ranks, &out->load));
    SPW_TRY(SPW_ALLOC(SPW_MEGATRON_MEANS * layers * ranks, &out->empty));
    SPW_TRY(SPW_ALLOC(SPW_MEGATRON_MEANS * layers, &out->near));

cleanup:
    return status;
}

void spw_megatron_means_destroy(spw_megatron_means *m) {
    spw_free(m->load), spw_free(m->empty), spw_free(m->near);
    *m = (spw_megatron_means){.layers = 0};
}

/* Of rows that spill, the product with what is computed is what takes time. */
static void add(spw_megatron_load *sum, double share, const spw_megatron_load *load) {
    sum->received += share * load->received;
    sum->sent += share * load->sent;
    sum->link_in += share * load->link_in;
    sum->link_out += share * load->link_out;
    sum->nic_in += share * load->nic_in;
    sum->nic_out += share * load->nic_out;
    sum->arrived += share * load->arrived;
    sum->shared += share * load->shared;
    sum->tiled += share * load->tiled;
    sum->idle_rows += share * load->idle_rows;
    for (int d = 0; d < SPW_MEGATRON_DEPTH_COUNT; d++)
        sum->spilled[d] += share * load->tiled * load->spilled[d];
}

void spw_megatron_means_add(spw_megatron_means *m, spw_megatron_mean of, size_t layer, double share,
                            const spw_megatron_load *load) {
    const size_t at = (size_t)of * m->layers + layer;
    for (size_t r = 0; r < m->ranks; r++) {
        add(&m->load[at * m->ranks + r], share, &load[r]);
        if (!(load[r].received > 0.0)) m->empty[at * m->ranks + r] = true;
        if (load[r].sent < load[0].sent || load[r].sent > load[0].sent) m->unlike = true;
    }
    if (!(spw_megatron_nic_rows(load, m->ranks) > 0.0)) m->near[at] = true;
}

void spw_megatron_means_close(spw_megatron_means *m) {
    for (size_t i = 0; i < SPW_MEGATRON_MEANS * m->layers * m->ranks; i++) {
        spw_megatron_load *load = &m->load[i];
        for (int d = 0; d < SPW_MEGATRON_DEPTH_COUNT && load->tiled > 0.0; d++)
            load->spilled[d] /= load->tiled;
        if (m->empty[i]) load->received = load->tiled = load->idle_rows = 0.0;
        if (m->near[i / m->ranks]) load->nic_in = load->nic_out = 0.0;
    }
}
