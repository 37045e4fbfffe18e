/* What `ragged` and `gmm` share: MaxText's ragged all-to-all into one receive buffer (docs/schemes.md,
 * section 2). */
#ifndef SPW_SIM_SCHEMES_MAXTEXT_RAGGED_EXCHANGE_H
#define SPW_SIM_SCHEMES_MAXTEXT_RAGGED_EXCHANGE_H

#include "sim/schemes/experts.h"
#include "sim/schemes/list.h"

/* buffer_factor; 0 = the worst case. */
#define SPW_RAGGED_OPTION_ROWS \
    { \
        "buffer_factor", 0.0, 1e6, 0.0, false, \
            "rows of the receive buffer as a multiple of the rows a rank sends; 0 = the worst case, which " \
            "never drops", \
            NULL \
    }

/* buffer_factor > 0: trunc(N f); else W = R T min(e, K). */
size_t spw_ragged_buffer_rows(const spw_scheme *scheme, const spw_layer_shape *shape);

/* Rows that fit into the buffer of their destination: source ranks are served in order, and of a source its
 * experts in order; what comes later is dropped (section 2.4). */
void spw_ragged_flow(const spw_routed_group *routed, spw_flow *out);
spw_status spw_ragged_check(const spw_scheme *scheme, const spw_layer_shape *shape);

/* The whole layer around the given experts. */
void spw_ragged_layer(spw_layer_builder *b, const spw_experts *experts);

#endif
