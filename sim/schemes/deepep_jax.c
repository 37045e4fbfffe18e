#include "sim/schemes/deepep_jax.h"

#include "sim/schemes/deepep_buffers.h"

size_t spw_deepep_jax_buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    return s->worst_rows;
}

size_t spw_deepep_jax_exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                                spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const uint64_t dispatch = spw_deepep_row_bytes(s, (spw_deepep_row){.index_bytes = 4, .weights = true}),
                   row = spw_deepep_row_bytes(s, (spw_deepep_row){.weights = false}),
                   gradient = spw_deepep_row_bytes(s, (spw_deepep_row){.weights = true});
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, dispatch},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, dispatch},
        {"combine gradient", SPW_PHASE_BACKWARD, false, row},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, gradient},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

void spw_deepep_flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                     spw_flow *out) {
    (void)scheme;
    for (size_t d = 0; d < s->ranks; d++) out->rows[d] = out->dropped[d] = 0;
    for (size_t r = 0; r < s->ranks; r++) {
        const size_t rank = group * s->ranks + r;
        for (size_t d = 0; d < s->ranks; d++) out->wire[r * s->ranks + d] = c->distinct[rank * s->ranks + d];
        for (size_t x = 0; x < s->experts; x++) {
            const uint32_t n = c->routed[rank * s->experts + x];
            out->limit[r * s->experts + x] = n;
            out->rows[x / s->experts_per_rank] += n;
        }
    }
}

uint64_t spw_deepep_jax_communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    spw_deepep_buffers b = spw_deepep_buffer_hint(s->ranks, s->hidden, s->element_bytes, 32);
    return b.nvl_bytes + b.rdma_bytes;
}
