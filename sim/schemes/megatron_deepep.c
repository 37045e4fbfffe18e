#include "sim/schemes/megatron_deepep.h"

#include "sim/schemes/deepep_buffers.h"

enum { FUSED = SPW_MEGATRON_OWN, HYBRID = 2 * SPW_MEGATRON_OWN };

enum {
    CHOSEN_PROBS = SPW_MEGATRON_TENSORS,
    SORTED_IDS,
    TOP_PROBS,
    TOP_INDEX,
    RECEIVED,
    RECEIVED_INDEX,
    RECEIVED_PROBS,
    SOURCE,
    MULTIHOT,
    LOCAL_PROBS,
    LOCAL_MAP,
    COLUMNS,
    ARGSORT,
    MAPPING,
    PROB_COLUMNS,
    ROW_ID_MAP,
    RESTORED,
    D_RESTORED,
    D_RECEIVED,
    D_LOCAL_PROBS,
    D_RECEIVED_PROBS,
    D_TOP_PROBS,
    TENSORS
};

/* `u`: rows of the receive buffer; `r`: of the experts. */
#define SHAPES(u, r) \
    SPW_MEGATRON_SHAPES(r), [CHOSEN_PROBS] = {"chosen_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, 1, 4}, \
                            [SORTED_IDS] = {"sorted_ids", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 8}, \
                            [TOP_PROBS] = {"top_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, 1, 4}, \
                            [TOP_INDEX] = {"top_index", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, 1, 8}, \
                            [RECEIVED] = {"received_rows", u, SPW_WIDTH_HIDDEN, 1, 0}, \
                            [RECEIVED_INDEX] = {"received_index", u, SPW_WIDTH_TOP_K, 1, 8}, \
                            [RECEIVED_PROBS] = {"received_probs", u, SPW_WIDTH_TOP_K, 1, 4}, \
                            [SOURCE] = {"source_index", u, SPW_WIDTH_ONE, 1, 4}, \
                            [MULTIHOT] = {"multihot", u, SPW_WIDTH_LOCAL_EXPERTS, 1, 8}, \
                            [LOCAL_PROBS] = {"local_probs", u, SPW_WIDTH_LOCAL_EXPERTS, 1, 4}, \
                            [LOCAL_MAP] = {"local_map", u, SPW_WIDTH_LOCAL_EXPERTS, 1, 1}, \
                            [COLUMNS] = {"map_by_expert", u, SPW_WIDTH_LOCAL_EXPERTS, 1, 1}, \
                            [ARGSORT] = {"argsort", u, SPW_WIDTH_LOCAL_EXPERTS, 1, 8}, \
                            [MAPPING] = {"permutation", r, SPW_WIDTH_ONE, 1, 8}, \
                            [PROB_COLUMNS] = {"probs_by_expert", u, SPW_WIDTH_LOCAL_EXPERTS, 1, 4}, \
                            [ROW_ID_MAP] = {"row_id_map", u, SPW_WIDTH_LOCAL_ROW_IDS, 1, 4}, \
                            [RESTORED] = {"restored_rows", u, SPW_WIDTH_HIDDEN, 1, 0}, \
                            [D_RESTORED] = {"d_restored_rows", u, SPW_WIDTH_HIDDEN, 1, 0}, \
                            [D_RECEIVED] = {"d_received_rows", u, SPW_WIDTH_HIDDEN, 1, 0}, \
                            [D_LOCAL_PROBS] = {"d_local_probs", u, SPW_WIDTH_LOCAL_EXPERTS, 1, 4}, \
                            [D_RECEIVED_PROBS] = {"d_received_probs", u, SPW_WIDTH_TOP_K, 1, 4}, \
                            [D_TOP_PROBS] = {"d_top_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, 1, 4}

static const spw_tensor exact[] = {SHAPES(SPW_ROWS_RECEIVED, SPW_ROWS_HELD)};
static const spw_tensor worst[] = {SHAPES(SPW_ROWS_GATHERED, SPW_ROWS_HELD)};
static const spw_tensor fixed[] = {SHAPES(SPW_ROWS_GATHERED, SPW_ROWS_BUFFER)};

static const spw_event_row event_rows[] = {
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_LOGITS),
    SPW_ROW_BORN(BOTH, 0, FUSED, "router", CHOSEN_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_MAP),
    SPW_ROW_BORN(BOTH, FUSED, 0, "preprocess", SORTED_IDS),
    SPW_ROW_BORN(BOTH, 0, HYBRID, "preprocess", TOP_PROBS),
    SPW_ROW_BORN(BOTH, 0, HYBRID, "preprocess", TOP_INDEX),
    SPW_ROW_DIES(BOTH, 0, FUSED | HYBRID, "preprocess", SPW_MEGATRON_PROBS),
    SPW_ROW_BORN(BOTH, 0, HYBRID, "dispatch", RECEIVED),
    SPW_ROW_BORN(BOTH, 0, HYBRID, "dispatch", RECEIVED_INDEX),
    SPW_ROW_BORN(BOTH, 0, HYBRID, "dispatch", RECEIVED_PROBS),
    SPW_ROW_BORN(BOTH, 0, HYBRID, "dispatch", SOURCE),
    SPW_ROW_BORN(BOTH, HYBRID, 0, "dispatch", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_BORN(BOTH, HYBRID, 0, "dispatch", SPW_MEGATRON_ROW_PROBS),

    SPW_ROW_BORN(BOTH, 0, FUSED | HYBRID, "permute", MULTIHOT),
    SPW_ROW_BORN(BOTH, 0, FUSED | HYBRID, "permute", LOCAL_PROBS),
    SPW_ROW_BORN(BOTH, 0, FUSED | HYBRID, "permute", LOCAL_MAP),
    SPW_ROW_DIES(BOTH, 0, FUSED | HYBRID, "permute", MULTIHOT),
    SPW_ROW_BORN(BOTH, 0, FUSED | HYBRID, "permute", COLUMNS),
    SPW_ROW_BORN(BOTH, 0, FUSED | HYBRID, "permute", ARGSORT),
    SPW_ROW_BORN(BOTH, 0, FUSED | HYBRID, "permute", MAPPING),
    SPW_ROW_BORN(BOTH, 0, FUSED | HYBRID, "permute", PROB_COLUMNS),
    SPW_ROW_BORN(BOTH, 0, FUSED | HYBRID, "permute", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_DIES(BOTH, 0, FUSED | HYBRID, "permute", PROB_COLUMNS),
    SPW_ROW_BORN(BOTH, FUSED, 0, "permute", ROW_ID_MAP),
    SPW_ROW_BORN(BOTH, 0, HYBRID, "permute", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_BORN(BOTH, FUSED, 0, "permute", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_DIES(BOTH, 0, FUSED | HYBRID, "permute", COLUMNS),
    SPW_MEGATRON_EXPERTS_FORWARD,
    SPW_ROW_BORN(BOTH, 0, HYBRID, "unpermute", RESTORED),
    SPW_ROW_DIES(BOTH, 0, HYBRID, "unpermute", SPW_MEGATRON_FC2_OUTPUT),
    SPW_ROW_DIES(FORWARD, 0, HYBRID, "unpermute", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_DIES(FORWARD, 0, HYBRID, "unpermute", SPW_MEGATRON_ROW_PROBS),

    SPW_ROW_BORN(BOTH, 0, 0, "combine", SPW_MEGATRON_OUTPUT),
    SPW_ROW_DIES(BOTH, HYBRID, 0, "combine", SPW_MEGATRON_FC2_OUTPUT),
    SPW_ROW_DIES(BOTH, 0, HYBRID, "combine", RESTORED),
    SPW_ROW_DIES(BOTH, 0, HYBRID, "combine", RECEIVED_INDEX),
    SPW_ROW_DIES(BOTH, 0, FUSED | HYBRID, "combine", LOCAL_PROBS),
    SPW_ROW_DIES(BOTH, FUSED, 0, "combine", TOP_INDEX),
    SPW_ROW_DIES(FORWARD, FUSED, 0, "combine", ROW_ID_MAP),
    SPW_ROW_DIES(BOTH, 0, HYBRID, "layer end", RECEIVED),
    SPW_ROW_DIES(BOTH, 0, HYBRID, "layer end", RECEIVED_PROBS),
    SPW_ROW_DIES(BOTH, 0, HYBRID, "layer end", SPW_MEGATRON_MAP),
    SPW_ROW_DIES(FORWARD, HYBRID, 0, "layer end", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_DIES(FORWARD, HYBRID, 0, "layer end", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_DIES(FORWARD, HYBRID, 0, "layer end", SPW_MEGATRON_PROBS),
    SPW_ROW_DIES(FORWARD, HYBRID, 0, "layer end", SPW_MEGATRON_MAP),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", SPW_MEGATRON_LOGITS),
    SPW_ROW_DIES(FORWARD, 0, FUSED, "layer end", CHOSEN_PROBS),
    SPW_ROW_DIES(FORWARD, FUSED, 0, "layer end", SORTED_IDS),
    SPW_ROW_DIES(FORWARD, FUSED, 0, "layer end", SPW_MEGATRON_PROBS),
    SPW_ROW_DIES(FORWARD, 0, HYBRID, "layer end", TOP_PROBS),
    SPW_ROW_DIES(FORWARD, 0, HYBRID, "layer end", SOURCE),
    SPW_ROW_DIES(FORWARD, 0, FUSED | HYBRID, "layer end", TOP_INDEX),
    SPW_ROW_DIES(FORWARD, 0, FUSED | HYBRID, "layer end", ARGSORT),
    SPW_ROW_DIES(FORWARD, 0, FUSED | HYBRID, "layer end", MAPPING),
    SPW_ROW_DIES(FORWARD, 0, FUSED | HYBRID, "layer end", LOCAL_MAP),
    SPW_ROW_DIES(BOTH, 0, 0, "layer end", SPW_MEGATRON_OUTPUT),

    SPW_ROW_BORN(BACKWARD, HYBRID, 0, "combine gradient", SPW_MEGATRON_D_FC2_OUTPUT),
    SPW_ROW_BORN(BACKWARD, 0, HYBRID, "combine gradient", D_RESTORED),
    SPW_ROW_BORN(BACKWARD, 0, HYBRID, "unpermute gradient", SPW_MEGATRON_D_FC2_OUTPUT),
    SPW_ROW_DIES(BACKWARD, 0, HYBRID, "unpermute gradient", D_RESTORED),
    SPW_MEGATRON_EXPERTS_BACKWARD,
    SPW_ROW_BORN(BACKWARD, 0, HYBRID, "permute gradient", D_RECEIVED),
    SPW_ROW_DIES(BACKWARD, 0, HYBRID, "permute gradient", SPW_MEGATRON_D_FC1_INPUT),
    SPW_ROW_BORN(BACKWARD, 0, FUSED | HYBRID, "permute gradient", D_LOCAL_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, FUSED | HYBRID, "permute gradient", SPW_MEGATRON_D_ROW_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, FUSED | HYBRID, "permute gradient", ARGSORT),
    SPW_ROW_BORN(BACKWARD, 0, HYBRID, "permute gradient", D_RECEIVED_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, FUSED | HYBRID, "permute gradient", D_LOCAL_PROBS),
    SPW_ROW_DIES(BACKWARD, FUSED, 0, "permute gradient", SPW_MEGATRON_D_ROW_PROBS),
    SPW_ROW_DIES(BACKWARD, FUSED, 0, "permute gradient", ROW_ID_MAP),

    SPW_ROW_BORN(BACKWARD, 0, 0, "dispatch gradient", SPW_MEGATRON_D_X),
    SPW_ROW_BORN(BACKWARD, 0, HYBRID, "dispatch gradient", D_TOP_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, HYBRID, "dispatch gradient", D_RECEIVED),
    SPW_ROW_DIES(BACKWARD, 0, HYBRID, "dispatch gradient", D_RECEIVED_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, HYBRID, "dispatch gradient", SOURCE),
    SPW_ROW_BORN(BACKWARD, HYBRID, 0, "dispatch gradient", SPW_MEGATRON_D_PROBS),
    SPW_ROW_DIES(BACKWARD, HYBRID, 0, "dispatch gradient", SPW_MEGATRON_D_FC1_INPUT),
    SPW_ROW_DIES(BACKWARD, HYBRID, 0, "dispatch gradient", SPW_MEGATRON_D_ROW_PROBS),
    SPW_ROW_BORN(BACKWARD, 0, HYBRID, "router gradient", SPW_MEGATRON_D_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, HYBRID, "router gradient", D_TOP_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, FUSED | HYBRID, "router gradient", TOP_INDEX),
    SPW_ROW_DIES(BACKWARD, FUSED, 0, "router gradient", SORTED_IDS),
    SPW_ROW_DIES(BACKWARD, FUSED, 0, "router gradient", SPW_MEGATRON_PROBS),
    SPW_ROW_BORN(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, FUSED, "router gradient", CHOSEN_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, HYBRID, "layer end", TOP_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, FUSED | HYBRID, "layer end", LOCAL_MAP),
    SPW_ROW_DIES(BACKWARD, 0, FUSED | HYBRID, "layer end", MAPPING),
    SPW_ROW_DIES(BACKWARD, HYBRID, 0, "layer end", SPW_MEGATRON_PROBS),
    SPW_ROW_DIES(BACKWARD, HYBRID, 0, "layer end", SPW_MEGATRON_MAP),
    SPW_ROW_DIES(BACKWARD, 0, 0, "layer end", SPW_MEGATRON_D_X),
};

const spw_layer_list *spw_megatron_deepep_layer(spw_megatron_deepep_kind kind, const spw_layer_shape *s) {
    static const struct {
        spw_event_table table;
        unsigned conditions;
    } kinds[SPW_MEGATRON_DEEPEP_KINDS] = {
        [SPW_MEGATRON_DEEPEP] = {SPW_EVENT_TABLE(exact, event_rows), 0},
        [SPW_MEGATRON_HYBRIDEP] = {SPW_EVENT_TABLE(exact, event_rows), HYBRID},
        [SPW_MEGATRON_PRIMUS] = {SPW_EVENT_TABLE(worst, event_rows), FUSED},
        [SPW_MEGATRON_PRIMUS_FIXED] = {SPW_EVENT_TABLE(fixed, event_rows), FUSED},
    };
    static spw_event_lists lists[SPW_MEGATRON_DEEPEP_KINDS];
    const unsigned act = s->remat == SPW_REMAT_MOE_ACT ? SPW_MEGATRON_ACT : 0;
    return spw_event_table_list(&kinds[kind].table, &lists[kind], kinds[kind].conditions | act);
}

size_t spw_megatron_deepep_exchanges(spw_megatron_deepep_kind kind, const spw_layer_shape *s,
                                     spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const size_t node = s->node_ranks > 0 && s->node_ranks < s->ranks ? s->node_ranks : s->ranks;
    const uint64_t row = s->hidden * s->element_bytes, weights = 4 * s->experts_per_rank * node;
    const bool hybrid = kind == SPW_MEGATRON_HYBRIDEP;
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

void spw_megatron_deepep_flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c,
                              size_t group, spw_flow *out) {
    spw_megatron_flow_begin(scheme, s, c, group, out);
    const size_t pairs = s->ranks * s->ranks;
    for (size_t i = 0; i < pairs; i++) out->wire[i] = c->distinct[group * pairs + i];
}
