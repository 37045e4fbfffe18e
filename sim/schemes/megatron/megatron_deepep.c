#include "sim/schemes/megatron/megatron_deepep.h"

#include "sim/routing/counts.h"
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/flow_lines.h"

/* --- HybridEP: rows arrive permuted --- */

static void hybrid_forward(spw_layer_builder *b, spw_megatron_experts experts, bool stash) {
    static const char *const saved[] = {"probs", "routing_map", "logits", "chosen_probs"};
    spw_megatron_layer_router(b, false);
    spw_megatron_layer_take(b, "dispatch", experts.rows);
    spw_megatron_layer_experts(b, experts);
    spw_layer_born(b, "combine", (spw_tensor){"output", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "combine", "fc2_output");
    spw_megatron_layer_taken(b, "layer end", experts.shape);
    for (size_t i = 0; i < SPW_COUNT_OF(saved) && spw_layer_phase(b) == SPW_PHASE_FORWARD; i++)
        spw_layer_dies(b, "layer end", saved[i]);
    spw_layer_dies(b, "layer end", "output");
    if (stash && spw_layer_phase(b) != SPW_PHASE_FORWARD) spw_megatron_layer_stash(b, experts);
}

static void hybrid_backward(spw_layer_builder *b, spw_megatron_experts experts, bool stash) {
    if (stash) spw_megatron_layer_reload(b, experts);
    spw_layer_born(b, "combine gradient", (spw_tensor){"d_fc2_output", experts.rows, SPW_WIDTH_HIDDEN});
    spw_megatron_layer_experts_gradient(b, experts);
    spw_layer_born(b, "dispatch gradient", (spw_tensor){"dx", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "dispatch gradient",
                   (spw_tensor){"d_probs", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 4});
    spw_layer_dies(b, "dispatch gradient", "d_fc1_input");
    spw_layer_dies(b, "dispatch gradient", "d_row_probs");
    spw_megatron_layer_router_gradient(b, false);
    spw_layer_dies(b, "layer end", "probs");
    spw_layer_dies(b, "layer end", "routing_map");
    spw_layer_dies(b, "layer end", "dx");
}

/* --- NCCL EP: the same, with DeepEP's choices and a routing table for each dispatch --- */

static void choices(spw_layer_builder *b) {
    spw_layer_born(b, "preprocess",
                   (spw_tensor){"top_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, .element_bytes = 4});
    spw_layer_born(b, "preprocess",
                   (spw_tensor){"top_index", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, .element_bytes = 8});
}

static void nccl_forward(spw_layer_builder *b, spw_megatron_experts experts) {
    static const char *const saved[] = {"logits", "chosen_probs", "top_probs", "top_index"};
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_megatron_layer_router(b, false);
    choices(b);
    spw_layer_dies(b, "preprocess", "probs");
    spw_layer_born(b, "dispatch", (spw_tensor){"handle", SPW_ROWS_OWN_0, SPW_WIDTH_ONE, .element_bytes = 1});
    spw_megatron_layer_take(b, "dispatch", experts.rows);
    spw_megatron_layer_experts(b, experts);
    spw_layer_born(b, "combine", (spw_tensor){"output", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "combine", "fc2_output");
    if (forward) spw_layer_dies(b, "combine", "handle");
    spw_megatron_layer_taken(b, "layer end", experts.shape);
    spw_layer_dies(b, "layer end", "routing_map");
    for (size_t i = 0; i < SPW_COUNT_OF(saved) && forward; i++) spw_layer_dies(b, "layer end", saved[i]);
    spw_layer_dies(b, "layer end", "output");
}

static void nccl_backward(spw_layer_builder *b, spw_megatron_experts experts) {
    spw_layer_born(b, "combine gradient", (spw_tensor){"d_fc2_output", experts.rows, SPW_WIDTH_HIDDEN});
    spw_megatron_layer_experts_gradient(b, experts);
    spw_layer_born(b, "dispatch gradient", (spw_tensor){"dx", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "dispatch gradient",
                   (spw_tensor){"d_top_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, .element_bytes = 4});
    spw_layer_dies(b, "dispatch gradient", "d_fc1_input");
    spw_layer_dies(b, "dispatch gradient", "d_row_probs");
    spw_layer_dies(b, "dispatch gradient", "handle");
    spw_layer_born(b, "router gradient",
                   (spw_tensor){"d_probs", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 4});
    spw_layer_dies(b, "router gradient", "d_top_probs");
    spw_megatron_layer_router_gradient(b, false);
    spw_layer_dies(b, "layer end", "top_probs");
    spw_layer_dies(b, "layer end", "top_index");
    spw_layer_dies(b, "layer end", "dx");
}

/* --- DeepEP: tokens arrive once a rank --- */

typedef struct layout {
    bool fused;    /* router and permutation are one kernel each, as Primus has them */
    spw_rows rows; /* of the receive buffer */
    spw_megatron_experts experts;
} layout;

static void dispatch(spw_layer_builder *b, layout c) {
    if (c.fused)
        spw_layer_born(b, "preprocess",
                       (spw_tensor){"sorted_ids", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 8});
    choices(b);
    if (!c.fused) spw_layer_dies(b, "preprocess", "probs");
    spw_layer_born(b, "dispatch", (spw_tensor){"received_rows", c.rows, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "dispatch",
                   (spw_tensor){"received_index", c.rows, SPW_WIDTH_TOP_K, .element_bytes = 8});
    spw_layer_born(b, "dispatch",
                   (spw_tensor){"received_probs", c.rows, SPW_WIDTH_TOP_K, .element_bytes = 4});
    spw_layer_born(b, "dispatch", (spw_tensor){"source_index", c.rows, SPW_WIDTH_ONE, .element_bytes = 4});
}

static void permute(spw_layer_builder *b, layout c) {
    const spw_tensor row_probs = {"row_probs", c.experts.rows, SPW_WIDTH_ONE, .element_bytes = 4},
                     fc1_input = {"fc1_input", c.experts.rows, SPW_WIDTH_HIDDEN};
    if (c.fused) {
        spw_layer_born(b, "permute",
                       (spw_tensor){"row_id_map", c.rows, SPW_WIDTH_LOCAL_ROW_IDS, .element_bytes = 4});
        spw_layer_born(b, "permute", fc1_input);
        spw_layer_born(b, "permute", row_probs);
        return;
    }
    spw_layer_born(b, "permute",
                   (spw_tensor){"multihot", c.rows, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 8});
    spw_layer_born(b, "permute",
                   (spw_tensor){"local_probs", c.rows, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 4});
    spw_layer_born(b, "permute",
                   (spw_tensor){"local_map", c.rows, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 1});
    spw_layer_dies(b, "permute", "multihot");
    spw_layer_born(b, "permute",
                   (spw_tensor){"map_by_expert", c.rows, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 1});
    spw_layer_born(b, "permute",
                   (spw_tensor){"argsort", c.rows, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 8});
    spw_layer_born(b, "permute",
                   (spw_tensor){"permutation", c.experts.rows, SPW_WIDTH_ONE, .element_bytes = 8});
    spw_layer_born(b, "permute",
                   (spw_tensor){"probs_by_expert", c.rows, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 4});
    spw_layer_born(b, "permute", row_probs);
    spw_layer_dies(b, "permute", "probs_by_expert");
    spw_layer_born(b, "permute", fc1_input);
    spw_layer_dies(b, "permute", "map_by_expert");
}

static void combine(spw_layer_builder *b, layout c) {
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_born(b, "unpermute", (spw_tensor){"restored_rows", c.rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unpermute", "fc2_output");
    spw_megatron_layer_taken(b, "unpermute", c.experts.shape);
    spw_layer_born(b, "combine", (spw_tensor){"output", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "combine", "restored_rows");
    spw_layer_dies(b, "combine", "received_index");
    spw_layer_dies(b, "combine", c.fused ? "top_index" : "local_probs");
    if (forward && c.fused) spw_layer_dies(b, "combine", "row_id_map");
}

static void end(spw_layer_builder *b, layout c) {
    static const char *const of_fused[] = {"logits",    "sorted_ids",   "probs",
                                           "top_probs", "source_index", NULL},
                             *const of_torch[] = {"logits",       "chosen_probs", "top_probs",
                                                  "source_index", "top_index",    "argsort",
                                                  "permutation",  "local_map",    NULL};
    const char *const *saved = c.fused ? of_fused : of_torch;
    spw_layer_dies(b, "layer end", "received_rows");
    spw_layer_dies(b, "layer end", "received_probs");
    spw_layer_dies(b, "layer end", "routing_map");
    for (; *saved != NULL && spw_layer_phase(b) == SPW_PHASE_FORWARD; saved++)
        spw_layer_dies(b, "layer end", *saved);
    spw_layer_dies(b, "layer end", "output");
}

static void deepep_forward(spw_layer_builder *b, layout c) {
    spw_megatron_layer_router(b, c.fused);
    dispatch(b, c);
    permute(b, c);
    spw_megatron_layer_experts(b, c.experts);
    combine(b, c);
    end(b, c);
}

static void permute_gradient(spw_layer_builder *b, layout c) {
    spw_layer_born(b, "permute gradient", (spw_tensor){"d_received_rows", c.rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "permute gradient", "d_fc1_input");
    if (!c.fused) {
        spw_layer_born(b, "permute gradient",
                       (spw_tensor){"d_local_probs", c.rows, SPW_WIDTH_LOCAL_EXPERTS, .element_bytes = 4});
        spw_layer_dies(b, "permute gradient", "d_row_probs");
        spw_layer_dies(b, "permute gradient", "argsort");
    }
    spw_layer_born(b, "permute gradient",
                   (spw_tensor){"d_received_probs", c.rows, SPW_WIDTH_TOP_K, .element_bytes = 4});
    if (c.fused) {
        spw_layer_dies(b, "permute gradient", "d_row_probs");
        spw_layer_dies(b, "permute gradient", "row_id_map");
    } else {
        spw_layer_dies(b, "permute gradient", "d_local_probs");
    }
}

static void dispatch_gradient(spw_layer_builder *b, layout c) {
    spw_layer_born(b, "dispatch gradient", (spw_tensor){"dx", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "dispatch gradient",
                   (spw_tensor){"d_top_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, .element_bytes = 4});
    spw_layer_dies(b, "dispatch gradient", "d_received_rows");
    spw_layer_dies(b, "dispatch gradient", "d_received_probs");
    spw_layer_dies(b, "dispatch gradient", "source_index");
    spw_layer_born(b, "router gradient",
                   (spw_tensor){"d_probs", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 4});
    spw_layer_dies(b, "router gradient", "d_top_probs");
    if (c.fused) {
        spw_layer_dies(b, "router gradient", "sorted_ids");
        spw_layer_dies(b, "router gradient", "probs");
    } else {
        spw_layer_dies(b, "router gradient", "top_index");
    }
}

static void backward(spw_layer_builder *b, layout c) {
    spw_layer_born(b, "combine gradient", (spw_tensor){"d_restored_rows", c.rows, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "unpermute gradient", (spw_tensor){"d_fc2_output", c.experts.rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unpermute gradient", "d_restored_rows");
    spw_megatron_layer_experts_gradient(b, c.experts);
    permute_gradient(b, c);
    dispatch_gradient(b, c);
    spw_megatron_layer_router_gradient(b, c.fused);
    spw_layer_dies(b, "layer end", "top_probs");
    if (!c.fused) {
        spw_layer_dies(b, "layer end", "local_map");
        spw_layer_dies(b, "layer end", "permutation");
    }
    spw_layer_dies(b, "layer end", "dx");
}

static bool is_hybrid(spw_megatron_deepep_kind kind) {
    return kind == SPW_MEGATRON_HYBRIDEP || kind == SPW_MEGATRON_HYBRIDEP_FIXED ||
           kind == SPW_MEGATRON_HYBRIDEP_STASH;
}

static bool is_nccl(spw_megatron_deepep_kind kind) {
    return kind == SPW_MEGATRON_NCCLEP || kind == SPW_MEGATRON_NCCLEP_FIXED;
}

void spw_megatron_deepep_layer(spw_megatron_deepep_kind kind, const spw_layer_shape *s,
                               spw_layer_builder *b) {
    static const layout kinds[SPW_MEGATRON_DEEPEP_KINDS] = {
        [SPW_MEGATRON_DEEPEP] = {false, SPW_ROWS_RECEIVED, {.rows = SPW_ROWS_HELD}},
        [SPW_MEGATRON_HYBRIDEP] = {false, SPW_ROWS_RECEIVED, {.rows = SPW_ROWS_HELD}},
        [SPW_MEGATRON_HYBRIDEP_FIXED] = {false, SPW_ROWS_RECEIVED, {.rows = SPW_ROWS_BUFFER}},
        [SPW_MEGATRON_HYBRIDEP_STASH] = {false, SPW_ROWS_RECEIVED, {.rows = SPW_ROWS_BUFFER}},
        [SPW_MEGATRON_NCCLEP] = {false, SPW_ROWS_RECEIVED, {.rows = SPW_ROWS_HELD}},
        [SPW_MEGATRON_NCCLEP_FIXED] = {false, SPW_ROWS_RECEIVED, {.rows = SPW_ROWS_BUFFER}},
        [SPW_MEGATRON_PRIMUS] = {true, SPW_ROWS_GATHERED, {.rows = SPW_ROWS_HELD}},
        [SPW_MEGATRON_PRIMUS_FIXED] = {true, SPW_ROWS_GATHERED, {.rows = SPW_ROWS_BUFFER}},
    };
    const bool hybrid = is_hybrid(kind), stash = kind == SPW_MEGATRON_HYBRIDEP_STASH;
    layout c = kinds[kind];
    c.experts.shape = s;
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        spw_megatron_layer_begins(b, c.experts);
        if (hybrid) {
            hybrid_forward(b, c.experts, stash);
        } else if (is_nccl(kind)) {
            nccl_forward(b, c.experts);
        } else {
            deepep_forward(b, c);
        }
        spw_megatron_layer_ends(b, c.experts);
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_megatron_layer_begins(b, c.experts);
    if (hybrid) {
        hybrid_backward(b, c.experts, stash);
    } else if (is_nccl(kind)) {
        nccl_backward(b, c.experts);
    } else {
        backward(b, c);
    }
    spw_megatron_layer_ends(b, c.experts);
}

size_t spw_megatron_deepep_exchanges(spw_megatron_deepep_kind kind, const spw_layer_shape *s,
                                     spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const size_t node = s->node_ranks > 0 && s->node_ranks < s->ranks ? s->node_ranks : s->ranks;
    const uint64_t row = s->hidden * s->element_bytes, weights = 4 * s->experts_per_rank * node;
    const bool hybrid = is_hybrid(kind) || is_nccl(kind);
    const uint64_t there = hybrid
                               ? row + weights
                               : spw_deepep_row_bytes(s, (spw_deepep_row){.index_bytes = 8, .weights = true}),
                   back = hybrid ? row : spw_deepep_row_bytes(s, (spw_deepep_row){.weights = false}),
                   gradient =
                       hybrid ? row + weights : spw_deepep_row_bytes(s, (spw_deepep_row){.weights = true});
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, there},
        {"combine", SPW_PHASE_FORWARD, true, back},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, there},
        {"combine again", SPW_PHASE_RECOMPUTE, true, back},
        {"combine gradient", SPW_PHASE_BACKWARD, false, back},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, gradient},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

void spw_megatron_deepep_flow(const spw_routed_group *routed, spw_flow *out) {
    spw_megatron_flow_begin(routed, out);
    spw_flow_distinct(routed, out);
}
