/* What `gmm-deepep` and `ragged-deepep` share: DeepEP in JAX (docs/schemes.md, sections 3.1 and 3.3). A token travels once
 * a rank; it is received into R T rows and fanned out to W rows for the experts. */
#ifndef SPW_SIM_SCHEMES_DEEPEP_DEEPEP_JAX_H
#define SPW_SIM_SCHEMES_DEEPEP_DEEPEP_JAX_H

#include "sim/schemes/experts.h"
#include "sim/schemes/list.h"

/* The whole layer around the given experts. */
void spw_deepep_jax_layer(spw_layer_builder *b, const spw_experts *experts);

/* W, the worst case. */
size_t spw_deepep_jax_buffer_rows(const spw_scheme *scheme, const spw_layer_shape *shape);
/* Five: the recomputed combine is dead code. Rows carry 4-byte expert indices and weights (section 4.2). */
size_t spw_deepep_jax_exchanges(const spw_scheme *scheme, const spw_layer_shape *shape,
                                spw_exchange out[SPW_SCHEME_EXCHANGES]);
/* U rows on the wire, n[s->d] held, nothing dropped: every scheme with DeepEP's dispatch and no limit. */
void spw_deepep_flow(const spw_routed_group *routed, spw_flow *out);
/* ROCm MaxText on several hosts uses 32 multiprocessors (section 3.1). */
uint64_t spw_deepep_jax_communication_bytes(const spw_scheme *scheme, const spw_layer_shape *shape);

#endif
