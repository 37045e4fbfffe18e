/* What `gmm-deepep` and `ragged-deepep` share: DeepEP in JAX (docs/schemes.md, sections 3.1 and 3.3). A token travels once
 * a rank; it is received into R T rows and fanned out to W rows for the experts. */
#ifndef SPW_SIM_SCHEMES_DEEPEP_JAX_H
#define SPW_SIM_SCHEMES_DEEPEP_JAX_H

#include "sim/schemes/expert_events.h"

enum {
    SPW_DEEPEP_JAX_RECEIVED,
    SPW_DEEPEP_JAX_X,
    SPW_DEEPEP_JAX_W0,
    SPW_DEEPEP_JAX_W1,
    SPW_DEEPEP_JAX_ACT,
    SPW_DEEPEP_JAX_Y,
    SPW_DEEPEP_JAX_Y_UNSORTED,
    SPW_DEEPEP_JAX_OUT,
    SPW_DEEPEP_JAX_OUT_GRADIENT,
    SPW_DEEPEP_JAX_DY_UNSORTED,
    SPW_DEEPEP_JAX_DY,
    SPW_DEEPEP_JAX_DW0,
    SPW_DEEPEP_JAX_DW1,
    SPW_DEEPEP_JAX_DX0,
    SPW_DEEPEP_JAX_DX1,
    SPW_DEEPEP_JAX_DX_UNSORTED,
    SPW_DEEPEP_JAX_DX_RECEIVED,
    SPW_DEEPEP_JAX_TENSORS
};
#define SPW_DEEPEP_JAX_TENSOR_ROWS \
    SPW_EXPERT_TENSORS(SPW_DEEPEP_JAX_), \
        [SPW_DEEPEP_JAX_RECEIVED] = {"received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN}, \
        [SPW_DEEPEP_JAX_Y_UNSORTED] = {"y_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
        [SPW_DEEPEP_JAX_OUT] = {"fanned_in", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN}, \
        [SPW_DEEPEP_JAX_OUT_GRADIENT] = {"d_fanned_in", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN}, \
        [SPW_DEEPEP_JAX_DY_UNSORTED] = {"dy_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
        [SPW_DEEPEP_JAX_DX_UNSORTED] = {"dx_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
        [SPW_DEEPEP_JAX_DX_RECEIVED] = {"dx_received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN}

/* Forward: the received rows die at once. */
#define SPW_DEEPEP_JAX_DISPATCH_FORWARD \
    SPW_BORN(FORWARD, "dispatch", SPW_DEEPEP_JAX_RECEIVED), SPW_BORN(FORWARD, "fan-out", SPW_DEEPEP_JAX_X), \
        SPW_DIES(FORWARD, "fan-out", SPW_DEEPEP_JAX_RECEIVED)
#define SPW_DEEPEP_JAX_COMBINE_FORWARD \
    SPW_BORN(FORWARD, "unsort", SPW_DEEPEP_JAX_Y_UNSORTED), SPW_DIES(FORWARD, "unsort", SPW_DEEPEP_JAX_Y), \
        SPW_BORN(FORWARD, "fan-in", SPW_DEEPEP_JAX_OUT), \
        SPW_DIES(FORWARD, "fan-in", SPW_DEEPEP_JAX_Y_UNSORTED), \
        SPW_DIES(FORWARD, "combine", SPW_DEEPEP_JAX_OUT)
/* Recomputed: they stay to the end of the layer. */
#define SPW_DEEPEP_JAX_DISPATCH_RECOMPUTE \
    SPW_BORN(RECOMPUTE, "dispatch", SPW_DEEPEP_JAX_RECEIVED), SPW_BORN(RECOMPUTE, "fan-out", SPW_DEEPEP_JAX_X)
/* The combine is not repeated, nothing needs its result. */
#define SPW_DEEPEP_JAX_UNSORT_RECOMPUTE \
    SPW_BORN(RECOMPUTE, "unsort", SPW_DEEPEP_JAX_Y_UNSORTED), SPW_DIES(RECOMPUTE, "unsort", SPW_DEEPEP_JAX_Y)
#define SPW_DEEPEP_JAX_COMBINE_GRADIENT \
    SPW_BORN(BACKWARD, "combine gradient", SPW_DEEPEP_JAX_OUT_GRADIENT), \
        SPW_BORN(BACKWARD, "fan-in gradient", SPW_DEEPEP_JAX_DY_UNSORTED), \
        SPW_DIES(BACKWARD, "fan-in gradient", SPW_DEEPEP_JAX_Y_UNSORTED), \
        SPW_DIES(BACKWARD, "fan-in gradient", SPW_DEEPEP_JAX_OUT_GRADIENT), \
        SPW_BORN(BACKWARD, "unsort gradient", SPW_DEEPEP_JAX_DY), \
        SPW_DIES(BACKWARD, "unsort gradient", SPW_DEEPEP_JAX_DY_UNSORTED)
#define SPW_DEEPEP_JAX_DISPATCH_GRADIENT \
    SPW_BORN(BACKWARD, "fan-out gradient", SPW_DEEPEP_JAX_DX_UNSORTED), \
        SPW_DIES(BACKWARD, "fan-out gradient", SPW_DEEPEP_JAX_DX0), \
        SPW_BORN(BACKWARD, "fan-out gradient", SPW_DEEPEP_JAX_DX_RECEIVED), \
        SPW_DIES(BACKWARD, "fan-out gradient", SPW_DEEPEP_JAX_DX_UNSORTED), \
        SPW_DIES(BACKWARD, "dispatch gradient", SPW_DEEPEP_JAX_DX_RECEIVED), \
        SPW_DIES(BACKWARD, "dispatch gradient", SPW_DEEPEP_JAX_RECEIVED)

/* W, the worst case. */
size_t spw_deepep_jax_buffer_rows(const spw_scheme *scheme, const spw_layer_shape *shape);
/* Five: the recomputed combine is dead code. Rows carry 4-byte expert indices and weights (section 4.2). */
size_t spw_deepep_jax_exchanges(const spw_scheme *scheme, const spw_layer_shape *shape,
                                spw_exchange out[SPW_SCHEME_EXCHANGES]);
/* U rows on the wire, n[s->d] held, nothing dropped: every scheme with DeepEP's dispatch and no limit. */
void spw_deepep_flow(const spw_scheme *scheme, const spw_layer_shape *shape, const spw_counts *counts,
                     size_t group, spw_flow *out);
/* ROCm MaxText on several hosts uses 32 multiprocessors (section 3.1). */
uint64_t spw_deepep_jax_communication_bytes(const spw_scheme *scheme, const spw_layer_shape *shape);

#endif
