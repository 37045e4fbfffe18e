#include "sim/schemes/deepep/deepep_jax.h"

#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/layer_builder.h"

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

uint64_t spw_deepep_jax_communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    spw_deepep_buffers b = spw_deepep_buffer_hint(s->ranks, s->hidden, s->element_bytes, 32);
    return b.nvl_bytes + b.rdma_bytes;
}

/* --- The layer --- */

static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "dispatch", (spw_tensor){"received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "fan-out", (spw_tensor){"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
}

static void unsort(spw_layer_builder *b) {
    spw_layer_born(b, "unsort", (spw_tensor){"y_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unsort", "y");
}

static void combine_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "combine gradient", (spw_tensor){"d_fanned_in", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "fan-in gradient", (spw_tensor){"dy_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "fan-in gradient", "y_unsorted");
    spw_layer_dies(b, "fan-in gradient", "d_fanned_in");
    spw_layer_born(b, "unsort gradient", (spw_tensor){"dy", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unsort gradient", "dy_unsorted");
}

static void dispatch_gradient(spw_layer_builder *b, const char *dx) {
    spw_layer_born(b, "fan-out gradient", (spw_tensor){"dx_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "fan-out gradient", dx);
    spw_layer_born(b, "fan-out gradient", (spw_tensor){"dx_received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "fan-out gradient", "dx_unsorted");
    spw_layer_dies(b, "dispatch gradient", "dx_received");
    spw_layer_dies(b, "dispatch gradient", "received");
}

void spw_deepep_jax_layer(spw_layer_builder *b, const spw_experts *experts) {
    dispatch(b);
    spw_layer_dies(b, "fan-out", "received");
    experts->forward(b);
    unsort(b);
    spw_layer_born(b, "fan-in", (spw_tensor){"fanned_in", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "fan-in", "y_unsorted");
    spw_layer_dies(b, "combine", "fanned_in");

    /* The received rows stay to the end; the combine is not repeated, for nothing needs its result. */
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    dispatch(b);
    experts->again(b);
    unsort(b);

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b);
    experts->gradient(b);
    dispatch_gradient(b, experts->dx);
}
