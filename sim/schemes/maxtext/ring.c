/* MaxText ring of experts (docs/schemes.md, section 2.6): every rank gathers all tokens of its group,
 * computes its own experts and the weighted partial sums are reduce-scattered. Volume does not depend on
 * routing. With buffer_factor (which needs MaxText's use_ragged_sort) the rows are truncated, the experts of
 * a rank served in order. */
#include "sim/schemes/maxtext/ring.h"

#include "sim/machine/compiled_layer.h"
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/maxtext/ragged_exchange.h"
#include "sim/schemes/maxtext/xla_layers.h"

#include <math.h>

static const char *const no_yes[] = {"false", "true", NULL};

static const spw_scheme_option options[] = {
    SPW_RING_OPTION_ROWS,
    {"ragged_sort", 0.0, 0.0, 0.0, false,
     "MaxText's use_ragged_sort: rows of other ranks' experts are left out of the sort; a buffer_factor "
     "implies it",
     no_yes},
    {"token_chunks", 1.0, 1024.0, 1.0, false,
     "parts of the sequence that are exchanged and computed one after the other; XLA keeps their buffers "
     "side "
     "by side, so they take no less memory",
     NULL},
    {.name = NULL},
};

static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "all-gather", (spw_tensor){"gathered", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "repeat", (spw_tensor){"repeated", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    if (spw_layer_phase(b) == SPW_PHASE_FORWARD) spw_layer_dies(b, "repeat", "gathered");
    spw_layer_born(b, "sort", (spw_tensor){"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "sort", "repeated");
}

static void unsort(spw_layer_builder *b) {
    spw_layer_born(b, "unsort", (spw_tensor){"y_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "unsort", "y");
}

static void combine_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "all-gather of dy",
                   (spw_tensor){"d_partial_sums", SPW_ROWS_GATHERED, SPW_WIDTH_RETURNED});
    spw_layer_born(b, "partial sums gradient",
                   (spw_tensor){"dy_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "partial sums gradient", "y_unsorted");
    spw_layer_dies(b, "partial sums gradient", "d_partial_sums");
    spw_layer_born(b, "unsort gradient", (spw_tensor){"dy", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "unsort gradient", "dy_unsorted");
}

static void dispatch_gradient(spw_layer_builder *b, const spw_experts *experts) {
    spw_layer_born(b, "sort gradient", (spw_tensor){"dx_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "sort gradient", experts->dx);
    spw_layer_born(b, "sum over choices", (spw_tensor){"dx_gathered", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "sum over choices", "dx_unsorted");
    spw_layer_dies(b, "reduce-scatter of dx", "dx_gathered");
    spw_layer_dies(b, "reduce-scatter of dx", "gathered");
}

void spw_ring_layer(spw_layer_builder *b, const spw_experts *experts) {
    dispatch(b);
    experts->forward(b);
    unsort(b);
    spw_layer_born(b, "weighted partial sums",
                   (spw_tensor){"partial_sums", SPW_ROWS_GATHERED, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "weighted partial sums", "y_unsorted");
    spw_layer_dies(b, "reduce-scatter", "partial_sums");

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    dispatch(b);
    experts->again(b);
    unsort(b);

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b);
    experts->gradient(b);
    dispatch_gradient(b, experts);
}

static void ring_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_ring_layer(b, &spw_experts_grouped);
}

size_t spw_ring_buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    const size_t all = s->ranks * s->assignments;
    double factor = spw_scheme_option_value(scheme, "buffer_factor"), rows = (double)s->assignments * factor;
    return factor > 0.0 && rows < (double)all ? (size_t)rows : all;
}

/* The all-gather takes the tokens and two fp32 logits an expert along. The recomputed partial sums are needed
 * by nothing, so that reduce-scatter is dead code: 3 all-gathers and 2 reduce-scatters with remat full, which
 * is what XLA compiles. */
size_t spw_ring_exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                          spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const double parts = spw_scheme_option_value(scheme, "token_chunks");
    const size_t chunks = isnan(parts) ? 1 : (size_t)parts;
    const uint64_t row = s->hidden * s->element_bytes, part = spw_returned_width(s) * s->element_bytes,
                   logits = 2 * s->experts * sizeof(float);
    const uint64_t waiting = s->waiting_layers;
    const spw_exchange again = {"combine again", SPW_PHASE_RECOMPUTE, true, part * waiting / (waiting + 1),
                                chunks};
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, row + logits, chunks},
        {"combine", SPW_PHASE_FORWARD, true, part, chunks},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, row + logits, chunks},
        {"combine gradient", SPW_PHASE_BACKWARD, false, part, chunks},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row, chunks},
        {"router gradient", SPW_PHASE_BACKWARD, true, s->experts * sizeof(float), chunks,
         .for_router = true}, /* of the gathered logits */
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    if (waiting == 0) return SPW_COUNT_OF(list);
    out[SPW_COUNT_OF(list)] =
        again; /* of all layers of a scan's turn but the last, whose sum nothing reads */
    return SPW_COUNT_OF(list) + 1;
}

/* Local experts are served in order of id, and for an expert the gathered tokens in order of rank and
 * position. */
void spw_ring_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    const size_t buffer = spw_ring_buffer_rows(routed->scheme, s);
    uint32_t *wire = spw_flow_own_lines(out, s->ranks);
    for (size_t i = 0; i < s->ranks * s->ranks; i++)
        wire[i] = spw_wire_rows(out, routed->counts->tokens[routed->number * s->ranks + i / s->ranks]);
    for (size_t r = 0; r < s->ranks; r++) out->dropped[r] = 0;
    for (size_t d = 0; d < s->ranks; d++) {
        size_t room = buffer;
        for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++) {
            for (size_t source = 0; source < s->ranks; source++) {
                const uint32_t want = spw_routed_of(routed, source)[x];
                const uint32_t take = want < room ? want : (uint32_t)room;
                out->limit[source * s->experts + x] = take;
                out->dropped[source] += want - take;
                room -= take;
            }
        }
        out->rows[d] = buffer - room;
    }
}

static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer plain = {SPW_PROGRAM_RING, SPW_COMPILED_EXCHANGE_GATHER};
    static const spw_compiled_layer sorted = {SPW_PROGRAM_RING_SORTED, SPW_COMPILED_EXCHANGE_GATHER};
    return spw_scheme_option_is(scheme, "ragged_sort", "true") ||
                   spw_scheme_option_value(scheme, "buffer_factor") > 0.0
               ? &sorted
               : &plain;
}

const spw_scheme_type spw_scheme_ring = {
    .name = "ring",
    .trainer = SPW_TRAINER_MAXTEXT,
    .about.summary =
        "MaxText ring of experts: all-gather the tokens, compute the own experts, reduce-scatter",
    .memory.any_device = true,
    .about.section = "event list of the scheme (2.6)",
    .about.source = "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py roe_ag_and_route",
    .options = options,
    .routing.factor = "buffer_factor",
    .routing.worst_factor = spw_worst_rank_factor,
    .memory.layer = ring_layer,
    .memory.buffer_rows = spw_ring_buffer_rows,
    .memory.buffer_formula = "rows",
    .traffic.exchanges = spw_ring_exchanges,
    .routing.limits = true,
    .routing.flow = spw_ring_flow,
    .compiled.mesh = true,
    .compiled.layer = spw_xla_ring,
    .compiled.list = compiled,
    .check = spw_ragged_check,
};
