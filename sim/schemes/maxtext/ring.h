/* MaxText's ring of experts, for schemes that change its products (docs/schemes.md, section 2.6). */
#ifndef SPW_SIM_SCHEMES_MAXTEXT_RING_H
#define SPW_SIM_SCHEMES_MAXTEXT_RING_H

#include "sim/schemes/experts.h"
#include "sim/schemes/list.h"

/* buffer_factor; 0 = the worst case. */
#define SPW_RING_OPTION_ROWS \
    { \
        "buffer_factor", 0.0, 1e6, 0.0, false, \
            "rows kept for the experts as a multiple of the rows a rank routes; 0 = R T K, which never " \
            "drops", \
            NULL \
    }

/* The whole layer around the given experts. */
void spw_ring_layer(spw_layer_builder *b, const spw_experts *experts);
/* trunc(N f) where buffer_factor f > 0 and that is less than R T K; else R T K. */
size_t spw_ring_buffer_rows(const spw_scheme *scheme, const spw_layer_shape *shape);
size_t spw_ring_exchanges(const spw_scheme *scheme, const spw_layer_shape *shape,
                          spw_exchange out[SPW_SCHEME_EXCHANGES]);
/* T rows between all ranks; the experts of a rank are served in order until its buffer is full. */
void spw_ring_flow(const spw_routed_group *routed, spw_flow *out);

#endif
