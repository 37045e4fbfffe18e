#include "sim/schemes/ragged_exchange.h"

size_t spw_ragged_buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    double factor = spw_scheme_option_value(scheme, "buffer_factor");
    return factor > 0.0 ? (size_t)((double)s->assignments * factor) : s->worst_rows;
}

spw_status spw_ragged_check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (spw_scheme_option_value(scheme, "buffer_factor") > 0.0 && s->ranks == 1) {
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': buffer_factor needs expert parallelism over 2 ranks or more, "
                        "the job has 1; leave buffer_factor out",
                        scheme->text);
    }
    return SPW_OK;
}

void spw_ragged_flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                     spw_flow *out) {
    const size_t buffer = spw_ragged_buffer_rows(scheme, s);
    const uint32_t *n = c->routed + group * s->ranks * s->experts;
    for (size_t r = 0; r < s->ranks; r++) out->dropped[r] = 0;
    for (size_t d = 0; d < s->ranks; d++) {
        size_t room = buffer;
        for (size_t source = 0; source < s->ranks; source++) {
            uint64_t sent = 0;
            for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++) {
                const uint32_t want = n[source * s->experts + x];
                const uint32_t take = want < room ? want : (uint32_t)room;
                out->limit[source * s->experts + x] = take;
                out->dropped[source] += want - take;
                room -= take;
                sent += take;
            }
            out->wire[source * s->ranks + d] = sent;
        }
        out->rows[d] = buffer - room;
    }
}
