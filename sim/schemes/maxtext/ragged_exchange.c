#include "sim/schemes/maxtext/ragged_exchange.h"

#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/layer_builder.h"

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

void spw_ragged_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    const size_t buffer = spw_ragged_buffer_rows(routed->scheme, s);
    uint32_t *wire = spw_flow_own_lines(out, s->ranks);
    for (size_t r = 0; r < s->ranks; r++) out->dropped[r] = 0;
    for (size_t d = 0; d < s->ranks; d++) {
        size_t room = buffer;
        for (size_t source = 0; source < s->ranks; source++) {
            const uint32_t *n = spw_routed_of(routed, source);
            uint64_t sent = 0;
            for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++) {
                const uint32_t want = n[x];
                const uint32_t take = want < room ? want : (uint32_t)room;
                out->limit[source * s->experts + x] = take;
                out->dropped[source] += want - take;
                room -= take;
                sent += take;
            }
            wire[source * s->ranks + d] = spw_wire_rows(out, sent);
        }
        out->rows[d] = buffer - room;
    }
}

/* --- The layer --- */

static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "repeat", (spw_tensor){"repeated", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "sort", (spw_tensor){"sorted", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "sort", "repeated");
    spw_layer_born(b, "dispatch", (spw_tensor){"received", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "dispatch", "sorted");
    spw_layer_born(b, "local sort", (spw_tensor){"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "local sort", "received");
}

/* The receive buffer of the combine stands before its operand is sorted. */
static void combine(spw_layer_builder *b) {
    spw_layer_born(b, "local unsort", (spw_tensor){"returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_RETURNED});
    spw_layer_born(b, "local unsort", (spw_tensor){"y_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "local unsort", "y");
    spw_layer_dies(b, "combine", "y_unsorted");
    spw_layer_born(b, "unsort", (spw_tensor){"returned_unsorted", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "unsort", "returned");
}

static void combine_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "combine gradient",
                   (spw_tensor){"d_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "combine gradient", "returned_unsorted"); /* the weight gradient used it */
    spw_layer_born(b, "sort of dy",
                   (spw_tensor){"d_returned_sorted", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_RETURNED});
    spw_layer_born(b, "dispatch of dy", (spw_tensor){"dy_received", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_born(b, "local sort of dy", (spw_tensor){"dy", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "local sort of dy", "dy_received");
    spw_layer_dies(b, "local sort of dy", "d_returned_sorted");
    spw_layer_dies(b, "local sort of dy", "d_returned");
}

static void dispatch_gradient(spw_layer_builder *b, const char *dx) {
    spw_layer_born(b, "local unsort of dx", (spw_tensor){"dx_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "local unsort of dx", dx);
    spw_layer_born(b, "combine of dx", (spw_tensor){"dx_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "combine of dx", "dx_unsorted");
    spw_layer_dies(b, "sum over choices", "dx_returned");
}

void spw_ragged_layer(spw_layer_builder *b, const spw_experts *experts) {
    dispatch(b);
    experts->forward(b);
    combine(b);
    spw_layer_dies(b, "sum over choices", "returned_unsorted");

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    dispatch(b);
    experts->again(b);
    combine(b);

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b);
    experts->gradient(b);
    dispatch_gradient(b, experts->dx);
}
