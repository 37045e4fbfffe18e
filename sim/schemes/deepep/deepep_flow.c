/* Rows of a dispatcher that sends a token once a rank. */
#include "sim/schemes/deepep/deepep_jax.h"
#include "sim/schemes/flow_lines.h"

void spw_deepep_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    for (size_t d = 0; d < s->ranks; d++) out->rows[d] = out->dropped[d] = 0;
    spw_flow_distinct(routed, out);
    for (size_t r = 0; r < s->ranks; r++) {
        const uint32_t *n = spw_routed_of(routed, r);
        for (size_t x = 0; x < s->experts; x++) out->rows[x / s->experts_per_rank] += n[x];
    }
}
