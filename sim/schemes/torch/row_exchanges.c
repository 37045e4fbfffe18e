#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/list.h"

size_t spw_row_exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                         spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const uint64_t row = s->hidden * s->element_bytes, part = spw_returned_width(s) * s->element_bytes;
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, row},
        {"combine", SPW_PHASE_FORWARD, true, part},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, row},
        {"combine again", SPW_PHASE_RECOMPUTE, true, part},
        {"combine gradient", SPW_PHASE_BACKWARD, false, part},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

void spw_every_choice(const spw_routed_group *routed, size_t tile, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    for (size_t d = 0; d < s->ranks; d++) out->rows[d] = out->dropped[d] = 0;
    uint32_t *wire = spw_flow_own_lines(out, s->ranks);
    for (size_t r = 0; r < s->ranks; r++, wire += s->ranks) {
        const uint32_t *n = spw_routed_of(routed, r);
        for (size_t d = 0; d < s->ranks; d++) {
            uint64_t sent = 0;
            for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++) sent += n[x];
            wire[d] = spw_wire_rows(out, sent);
        }
    }
    for (size_t d = 0; d < s->ranks; d++) {
        for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++) {
            const uint64_t rows = spw_chosen_rows(routed, x);
            out->rows[d] += (rows + tile - 1) / tile * tile;
        }
    }
}
