/* Megatron-Core, all-gather dispatcher (docs/schemes.md, section 5.3). Every rank gathers all tokens of the group with
 * their router weights, takes the rows of its own experts, and reduce-scatters the sums in fp32. */
#include "sim/schemes/megatron_layer.h"

static const spw_scheme_option options[] = {SPW_MEGATRON_CAPACITY_OPTIONS, {.name = NULL}};

enum {
    CHOSEN_PROBS = SPW_MEGATRON_TENSORS,
    GATHERED_MAP,
    GATHERED_PROBS,
    GATHERED,
    LOCAL_MAP,
    LOCAL_PROBS,
    COLUMNS,
    ARGSORT,
    MAPPING,
    PROB_COLUMNS,
    MASK,
    RESTORED,
    CAST,
    REDUCED,
    D_REDUCED,
    D_CAST,
    D_RESTORED,
    D_GATHERED,
    D_PROB_COLUMNS,
    D_GATHERED_PROBS
};

static const spw_tensor tensors[] = {
    SPW_MEGATRON_SHAPES(SPW_ROWS_HELD),
    [CHOSEN_PROBS] = {"chosen_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, 1, 4},
    [GATHERED_MAP] = {"gathered_map", SPW_ROWS_GATHERED, SPW_WIDTH_EXPERTS, 1, 1},
    [GATHERED_PROBS] = {"gathered_probs", SPW_ROWS_GATHERED, SPW_WIDTH_EXPERTS, 1, 4},
    [GATHERED] = {"gathered_rows", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN, 1, 0},
    [LOCAL_MAP] = {"local_map", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, 1, 1},
    [LOCAL_PROBS] = {"local_probs", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, 1, 4},
    [COLUMNS] = {"map_by_expert", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, 1, 1},
    [ARGSORT] = {"argsort", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, 1, 8},
    [MAPPING] = {"permutation", SPW_ROWS_HELD, SPW_WIDTH_ONE, 1, 8},
    [PROB_COLUMNS] = {"probs_by_expert", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, 1, 4},
    [MASK] = {"prob_mask", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, 1, 1},
    [RESTORED] = {"restored_rows", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN, 1, 0},
    [CAST] = {"restored_fp32", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN, 1, 4},
    [REDUCED] = {"reduced_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, 1, 4},
    [D_REDUCED] = {"d_reduced_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, 1, 4},
    [D_CAST] = {"d_restored_fp32", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN, 1, 4},
    [D_RESTORED] = {"d_restored_rows", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN, 1, 0},
    [D_GATHERED] = {"d_gathered_rows", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN, 1, 0},
    [D_PROB_COLUMNS] = {"d_probs_by_expert", SPW_ROWS_GATHERED, SPW_WIDTH_LOCAL_EXPERTS, 1, 4},
    [D_GATHERED_PROBS] = {"d_gathered_probs", SPW_ROWS_GATHERED, SPW_WIDTH_EXPERTS, 1, 4},
};

/* gathered_rows is one buffer of the whole process: it lives in every pass and is saved by no layer. */
static const spw_event_row event_rows[] = {
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_LOGITS),
    SPW_ROW_BORN(BOTH, 0, 0, "router", CHOSEN_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_MAP),
    SPW_ROW_BORN(BOTH, 0, 0, "all-gather", GATHERED_MAP),
    SPW_ROW_BORN(BOTH, 0, 0, "all-gather", GATHERED_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "all-gather", GATHERED),
    SPW_ROW_DIES(BOTH, 0, 0, "all-gather", SPW_MEGATRON_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", LOCAL_MAP),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", LOCAL_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", COLUMNS),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", ARGSORT),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", MAPPING),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_DIES(BOTH, 0, 0, "permute", COLUMNS),
    SPW_ROW_DIES(BOTH, 0, 0, "permute", ARGSORT),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", PROB_COLUMNS),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", MASK),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_DIES(BOTH, 0, 0, "permute", LOCAL_PROBS),
    SPW_ROW_DIES(BOTH, 0, 0, "permute", GATHERED_MAP),
    SPW_MEGATRON_EXPERTS_FORWARD,
    SPW_ROW_BORN(BOTH, 0, 0, "unpermute", RESTORED),
    SPW_ROW_DIES(BOTH, 0, 0, "unpermute", SPW_MEGATRON_FC2_OUTPUT),
    SPW_ROW_DIES(FORWARD, 0, 0, "unpermute", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_BORN(BOTH, 0, 0, "reduce-scatter", CAST),
    SPW_ROW_BORN(BOTH, 0, 0, "reduce-scatter", REDUCED),
    SPW_ROW_DIES(BOTH, 0, 0, "reduce-scatter", CAST),
    SPW_ROW_BORN(BOTH, 0, 0, "reduce-scatter", SPW_MEGATRON_OUTPUT),
    SPW_ROW_DIES(BOTH, 0, 0, "reduce-scatter", REDUCED),
    SPW_ROW_DIES(BOTH, 0, 0, "reduce-scatter", RESTORED),
    SPW_ROW_DIES(BOTH, 0, 0, "layer end", GATHERED),
    SPW_ROW_DIES(BOTH, 0, 0, "layer end", GATHERED_PROBS),
    SPW_ROW_DIES(BOTH, 0, 0, "layer end", SPW_MEGATRON_MAP),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", SPW_MEGATRON_LOGITS),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", CHOSEN_PROBS),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", LOCAL_MAP),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", MAPPING),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", PROB_COLUMNS),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", MASK),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_DIES(BOTH, 0, 0, "layer end", SPW_MEGATRON_OUTPUT),

    SPW_ROW_BORN(BACKWARD, 0, 0, "combine gradient", GATHERED),
    SPW_ROW_BORN(BACKWARD, 0, 0, "combine gradient", D_REDUCED),
    SPW_ROW_BORN(BACKWARD, 0, 0, "combine gradient", D_CAST),
    SPW_ROW_DIES(BACKWARD, 0, 0, "combine gradient", D_REDUCED),
    SPW_ROW_BORN(BACKWARD, 0, 0, "combine gradient", D_RESTORED),
    SPW_ROW_DIES(BACKWARD, 0, 0, "combine gradient", D_CAST),
    SPW_ROW_BORN(BACKWARD, 0, 0, "unpermute gradient", SPW_MEGATRON_D_FC2_OUTPUT),
    SPW_ROW_DIES(BACKWARD, 0, 0, "unpermute gradient", D_RESTORED),
    SPW_MEGATRON_EXPERTS_BACKWARD,
    SPW_ROW_BORN(BACKWARD, 0, 0, "permute gradient", D_PROB_COLUMNS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "permute gradient", SPW_MEGATRON_D_ROW_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "permute gradient", PROB_COLUMNS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "permute gradient", MASK),
    SPW_ROW_BORN(BACKWARD, 0, 0, "permute gradient", D_GATHERED_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "permute gradient", D_PROB_COLUMNS),
    SPW_ROW_BORN(BACKWARD, 0, 0, "permute gradient", D_GATHERED),
    SPW_ROW_DIES(BACKWARD, 0, 0, "permute gradient", SPW_MEGATRON_D_FC1_INPUT),
    SPW_ROW_BORN(BACKWARD, 0, 0, "dispatch gradient", SPW_MEGATRON_D_X),
    SPW_ROW_DIES(BACKWARD, 0, 0, "dispatch gradient", D_GATHERED),
    SPW_ROW_BORN(BACKWARD, 0, 0, "dispatch gradient", SPW_MEGATRON_D_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "dispatch gradient", D_GATHERED_PROBS),
    SPW_ROW_BORN(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", CHOSEN_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "layer end", LOCAL_MAP),
    SPW_ROW_DIES(BACKWARD, 0, 0, "layer end", MAPPING),
    SPW_ROW_DIES(BACKWARD, 0, 0, "layer end", GATHERED),
    SPW_ROW_DIES(BACKWARD, 0, 0, "layer end", SPW_MEGATRON_D_X),
};

static const spw_layer_list *layer_of(const spw_scheme *scheme, const spw_layer_shape *s) {
    static const spw_event_table table = SPW_EVENT_TABLE(tensors, event_rows);
    static spw_event_lists lists;
    (void)scheme;
    return spw_event_table_list(&table, &lists, s->remat == SPW_REMAT_MOE_ACT ? SPW_MEGATRON_ACT : 0);
}

/* There: a row, its line of the routing map and of the weights. Back: sums in the weights' fp32. */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const uint64_t row = s->hidden * s->element_bytes, sum = s->hidden * 4, map = s->experts,
                   weights = s->experts * 4;
    const spw_exchange list[] = {
        {"all-gather", SPW_PHASE_FORWARD, false, row + map + weights},
        {"reduce-scatter", SPW_PHASE_FORWARD, true, sum},
        {"all-gather again", SPW_PHASE_RECOMPUTE, false, row + map + weights},
        {"reduce-scatter again", SPW_PHASE_RECOMPUTE, true, sum},
        {"combine gradient", SPW_PHASE_BACKWARD, false, sum},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row + weights},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    spw_megatron_flow_begin(scheme, s, c, group, out);
    for (size_t i = 0; i < s->ranks * s->ranks; i++) out->wire[i] = s->tokens;
    for (size_t i = 0; i < s->ranks * s->experts; i++)
        out->rows[i % s->experts / s->experts_per_rank] += c->routed[group * s->ranks * s->experts + i];
}

static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t capacity = spw_megatron_capacity(scheme, s);
    rows->sent = rows->received = s->ranks * s->tokens;
    if (capacity < s->assignments / s->experts) rows->held = s->experts * capacity;
}

const spw_scheme_type spw_scheme_megatron_allgather = {
    .name = "megatron-allgather",
    .summary =
        "Megatron-Core, all-gather dispatcher: all tokens to all ranks, rows of what a rank's experts get",
    .section_source = "event list of the scheme (5.3)",
    .source =
        "NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py MoEAllGatherTokenDispatcher",
    .options = options,
    .layer_of = layer_of,
    .weighted_activation = true,
    .exchanges = exchanges,
    .drop_rule = spw_megatron_drop_rule,
    .keep = spw_megatron_keep,
    .expert_capacity = spw_megatron_capacity,
    .flow = flow,
    .balance = balance,
};
