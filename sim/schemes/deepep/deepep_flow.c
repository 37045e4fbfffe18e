/* Rows of a dispatcher that sends a token once a rank. */
#include "sim/routing/counts.h"
#include "sim/schemes/deepep/deepep_jax.h"

void spw_deepep_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    for (size_t d = 0; d < s->ranks; d++) out->rows[d] = out->dropped[d] = 0;
    for (size_t r = 0; r < s->ranks; r++) {
        const size_t rank = routed->number * s->ranks + r;
        for (size_t d = 0; d < s->ranks; d++)
            out->wire[r * s->ranks + d] = routed->counts->distinct[rank * s->ranks + d];
        for (size_t x = 0; x < s->experts; x++) {
            const uint32_t n = routed->counts->routed[rank * s->experts + x];
            out->rows[x / s->experts_per_rank] += n;
        }
    }
}
