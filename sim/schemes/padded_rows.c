#include "sim/schemes/padded_rows.h"

#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"

#include <math.h>

size_t spw_pad_of(const spw_scheme *scheme) { return (size_t)spw_scheme_option_value(scheme, "pad"); }

uint64_t spw_pad_up(uint64_t rows, uint64_t multiple) { return (rows + multiple - 1) / multiple * multiple; }

void spw_pad_rows(const spw_routed_group *routed, uint64_t *rows) {
    const spw_layer_shape *s = routed->shape;
    const uint64_t multiple = spw_pad_of(routed->scheme);
    for (size_t d = 0; d < s->ranks; d++) rows[d] = 0;
    for (size_t x = 0; x < s->experts; x++)
        rows[x / s->experts_per_rank] += spw_pad_up(spw_chosen_rows(routed, x), multiple);
}

void spw_pad_within(const spw_routed_group *routed, uint64_t multiple, uint64_t budget, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    const spw_counts *chosen = out->chosen != NULL ? out->chosen : routed->counts;
    for (size_t d = 0; d < s->ranks; d++) {
        uint64_t first = 0;
        for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++) {
            uint64_t room = budget > first ? budget - first : 0, all = 0;
            for (size_t source = 0; source < s->ranks; source++) {
                const uint32_t want = spw_routed_of(routed, source)[x],
                               asked = spw_counts_routed_of(chosen, routed->number * s->ranks + source)[x];
                const uint32_t take = want < room ? want : (uint32_t)room;
                out->limit[source * s->experts + x] = take;
                out->dropped[source] += want - take;
                room -= take;
                all += asked;
            }
            first += spw_pad_up(all, multiple);
        }
        out->rows[d] = first < budget ? first : budget;
    }
}

void spw_pad_balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const uint64_t multiple = spw_pad_of(scheme), of_expert = spw_pad_up(rows->held, s->experts_per_rank);
    if (multiple > 1)
        rows->held = s->experts_per_rank * spw_pad_up(of_expert / s->experts_per_rank, multiple);
}

spw_status spw_pad_check(const spw_scheme *scheme, const spw_layer_shape *s) {
    const double pad = spw_scheme_option_value(scheme, "pad");
    (void)s;
    if (pad != floor(pad))
        return spw_fail(SPW_ECONFIG, "scheme '%s': pad=%g must be a whole number of rows", scheme->text, pad);
    return SPW_OK;
}
