/* What the simulator predicts of a layer against what the reference executed: rows, bytes of every exchange and rank
 * pair, drops, and the peaks with the moment and the tensors; all exactly. */
#include "base/memory.h"
#include "reference/schemes/execution.h"
#include "sim/routing/counts.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/ref_random.h"
#include "traces/trace.h"

#include <stdlib.h>
#include <string.h>

enum { MISSING = 0xffff };

typedef struct layer {
    spw_layer_shape shape;
    spw_execution_shape execution;
    int32_t *expert;
    uint16_t *id;
    float *data; /* everything in fp32, one after the other */
    uint64_t rows[SPW_EXECUTION_RANKS], dropped[SPW_EXECUTION_RANKS];
    spw_counts *counts;
    spw_arena *arena;
    spw_fabric *fabric;
} layer;

static spw_layer_shape random_shape(uint64_t *seed) {
    const size_t ranks = (size_t)1 << random_below(seed, 4), per_rank = 1 + random_below(seed, 4);
    spw_layer_shape s = {.ranks = ranks,
                         .experts = ranks * per_rank,
                         .experts_per_rank = per_rank,
                         .hidden = 1 + random_below(seed, 9),
                         .ffn = 1 + random_below(seed, 9),
                         .sequences = 1 + random_below(seed, 3),
                         .sequence_length = 1 + random_below(seed, 12),
                         .element_bytes = (size_t)1 << random_below(seed, 3)};
    s.top_k = 1 + random_below(seed, s.experts < 4 ? s.experts : 4);
    s.tokens = s.sequences * s.sequence_length;
    s.assignments = s.tokens * s.top_k;
    s.worst_rows = s.ranks * s.tokens * (per_rank < s.top_k ? per_rank : s.top_k);
    return s;
}

static void count(layer *l) {
    const spw_layer_shape s = l->shape;
    const spw_placement placement = {
        .ranks = s.ranks, .group_ranks = s.ranks, .gpus_per_node = s.ranks, .experts = s.experts};
    const spw_trace_record record = {.tokens = s.ranks * s.tokens,
                                     .top_k = s.top_k,
                                     .experts = s.experts,
                                     .id_bytes = 2,
                                     .missing = MISSING,
                                     .expert_id = l->id};
    spw_layout *layout = NULL;
    CHECK_OK(spw_layout_create(s.ranks, s.sequences, &layout));
    for (size_t i = 0; i < s.ranks * s.sequences; i++) {
        const spw_segment segment = {.first = i * s.sequence_length,
                                     .tokens = (uint32_t)s.sequence_length,
                                     .sequence = (uint32_t)(i % s.sequences)};
        CHECK_OK(spw_layout_append(layout, i / s.sequences, segment));
    }
    CHECK_OK(spw_counts_create(placement, s.sequences, &l->counts));
    CHECK_OK(spw_counts_fill(l->counts, &record, layout));
    spw_layout_destroy(layout);
}

static void layer_create(uint64_t seed, layer *l) {
    *l = (layer){.shape = random_shape(&seed)};
    const spw_layer_shape s = l->shape;
    const size_t assignments = s.ranks * s.assignments;
    CHECK_OK(SPW_ALLOC(assignments, &l->expert));
    CHECK_OK(SPW_ALLOC(assignments, &l->id));
    random_routing(&seed, s.ranks * s.tokens, s.top_k, s.experts, l->expert);
    for (size_t i = 0; i < assignments; i++) {
        if (random_below(&seed, 20) == 0) l->expert[i] = -1;
        l->id[i] = l->expert[i] < 0 ? MISSING : (uint16_t)l->expert[i];
    }
    l->execution = (spw_execution_shape){.ranks = s.ranks,
                                         .experts = s.experts,
                                         .top_k = s.top_k,
                                         .hidden = s.hidden,
                                         .ffn = s.ffn,
                                         .sequences = s.sequences,
                                         .sequence_length = s.sequence_length,
                                         .element_bytes = s.element_bytes};
    count(l);
}

static void layer_destroy(layer *l) {
    spw_arena_destroy(l->arena), spw_fabric_destroy(l->fabric), spw_counts_destroy(l->counts);
    spw_free(l->id), spw_free(l->expert);
}

static void execute(layer *l, const spw_scheme *scheme) {
    const spw_layer_shape s = l->shape;
    const size_t x = s.ranks * s.tokens * s.hidden, k = s.ranks * s.assignments,
                 w = s.experts * s.hidden * s.ffn;
    float *data = NULL;
    CHECK_OK(SPW_ALLOC(4 * x + 2 * k + 6 * w, &data));
    float *weight = data + 4 * x, *weights = weight + 2 * k;
    for (size_t i = 0; i < k; i++) weight[i] = 1.0f; /* a weight of 0 is no dispatch in MaxText dense */
    const spw_execution_input in = {.expert = l->expert,
                                    .weight = weight,
                                    .x = data,
                                    .dy = data + x,
                                    .weights = {weights, weights + w, weights + 2 * w}};
    const spw_execution_output out = {.y = data + 2 * x,
                                      .dx = data + 3 * x,
                                      .d_weight = weight + k,
                                      .gradients = {weights + 3 * w, weights + 4 * w, weights + 5 * w},
                                      .rows = l->rows,
                                      .dropped = l->dropped};
    spw_arena_destroy(l->arena), spw_fabric_destroy(l->fabric);
    CHECK_OK(spw_arena_create(s.ranks, &l->arena));
    CHECK_OK(spw_fabric_create(s.ranks, &l->fabric));
    l->execution.factor = scheme->type->options[0].name != NULL ? scheme->option[0] : 0.0;
    CHECK_OK(
        spw_execute(spw_executor_find(scheme->type->name), &l->execution, &in, &out, l->arena, l->fabric));
    spw_free(data);
}

static void check_flow(const layer *l, const spw_scheme *scheme) {
    const size_t ranks = l->shape.ranks;
    spw_flow flow = {0};
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    CHECK_OK(SPW_ALLOC(ranks, &flow.wire));
    CHECK_OK(SPW_ALLOC(ranks * ranks, &flow.line));
    CHECK_OK(SPW_ALLOC(ranks, &flow.rows));
    CHECK_OK(SPW_ALLOC(ranks * l->shape.sequences * l->shape.experts, &flow.limit));
    CHECK_OK(SPW_ALLOC(ranks, &flow.dropped));
    scheme->type->routing.flow(&(spw_routed_group){scheme, &l->shape, l->counts, 0}, &flow);
    const size_t exchanges = scheme->type->traffic.exchanges(scheme, &l->shape, exchange);
    for (size_t s = 0; s < ranks; s++) {
        CHECK(flow.rows[s] == l->rows[s]);
        CHECK(flow.dropped[s] == l->dropped[s]);
        for (size_t d = 0; d < ranks; d++) {
            for (size_t i = 0; i < exchanges; i++) {
                const size_t from = exchange[i].back ? d : s, to = exchange[i].back ? s : d;
                CHECK(spw_fabric_bytes(l->fabric, exchange[i].name, from, to) ==
                      flow.wire[s][d] * exchange[i].row_bytes);
            }
        }
    }
    spw_free(flow.dropped), spw_free(flow.limit), spw_free(flow.rows), spw_free(flow.wire),
        spw_free(flow.line);
}

static void check_peaks(const layer *l, const spw_scheme *scheme) {
    spw_layer predicted = layer_of(scheme, &l->shape);
    const spw_live_set set = spw_layer_live_set(&predicted, NULL);
    check_layer(&predicted);
    for (size_t r = 0; r < l->shape.ranks; r++) {
        const spw_arena_peak forward = spw_arena_forward_peak(l->arena, r);
        const spw_arena_peak backward = spw_arena_backward_peak(l->arena, r);
        size_t live = 0;
        CHECK(forward.bytes == set.forward_bytes &&
              strcmp(forward.step, spw_layer_step(&predicted, set.forward_event)) == 0);
        CHECK(backward.bytes == set.backward_bytes &&
              strcmp(backward.step, spw_layer_step(&predicted, set.backward_event)) == 0);
        CHECK(spw_arena_saved(l->arena, r) == set.saved_bytes);
        for (size_t i = 0; i < predicted.tensors; i++) {
            bool held = false;
            for (size_t n = 0; n < backward.tensors; n++) {
                const bool same = strcmp(backward.name[n], predicted.tensor[i].name) == 0;
                if (same) CHECK(backward.tensor_bytes[n] == spw_layer_bytes(&predicted.tensor[i], NULL));
                held |= same;
            }
            CHECK(held == spw_layer_is_live(&predicted, NULL, i, set.backward_event));
            live += held;
        }
        CHECK(live == backward.tensors); /* and nothing that the simulator does not know */
    }
    spw_layer_destroy(&predicted);
}

int main(void) {
    const char *const schemes[] = {"dense:capacity_factor=1",
                                   "dense:capacity_factor=1.25",
                                   "dense:capacity_factor=0.4",
                                   "gmm",
                                   "gmm:buffer_factor=0.7",
                                   "gmm:buffer_factor=1.5",
                                   "ragged",
                                   "ragged:buffer_factor=0.9",
                                   "gmm-deepep",
                                   "ring",
                                   "ring:buffer_factor=0.6",
                                   "ring:buffer_factor=1.5"};
    for (uint64_t seed = 1; seed <= 50; seed++) {
        layer l;
        layer_create(seed, &l);
        for (size_t n = 0; n < sizeof schemes / sizeof schemes[0]; n++) {
            spw_scheme scheme;
            const int before = check_failures;
            CHECK_OK(spw_scheme_parse(schemes[n], &scheme));
            if (spw_scheme_check(&scheme, &l.shape) != SPW_OK) continue;
            execute(&l, &scheme);
            check_flow(&l, &scheme);
            check_peaks(&l, &scheme);
            if (check_failures > before) fprintf(stderr, "  seed %d, %s\n", (int)seed, schemes[n]);
        }
        layer_destroy(&l);
    }
    return check_done();
}
