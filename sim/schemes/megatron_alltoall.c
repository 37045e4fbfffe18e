/* Megatron-Core, all-to-all dispatcher (docs/schemes.md, sections 5.1, 5.2 and 5.5). Every choice is a row of its own on
 * the wire, with its router weight; buffers have the size of what arrives. */
#include "sim/schemes/megatron_alltoall.h"

static const char *const no_yes[] = {"false", "true", NULL};
static const char *const payers[] = {"experts", "router", NULL};

static const spw_scheme_option options[] = {
    SPW_MEGATRON_CAPACITY_OPTIONS,
    {"pad", 0.0, 0.0, 0.0, false, "fill every expert to its capacity with tokens of weight 0", no_yes},
    SPW_MEGATRON_ALIGN_OPTION,
    {"pay", 0.0, 0.0, 0.0, false,
     "who pads to `align`: the expert module, in copies, or the router of every sender, whose rows travel",
     payers},
    {.name = NULL},
};

enum {
    COPIED = SPW_MEGATRON_OWN, /* what arrives is not what fc1 reads: sorted or padded */
    SLOTS = 2 * SPW_MEGATRON_OWN,
    FUSED = 4 * SPW_MEGATRON_OWN
};

enum {
    CHOSEN_PROBS = SPW_MEGATRON_TENSORS,
    COLUMNS,
    ARGSORT,
    MAPPING,
    PROB_COLUMNS,
    PROB_INDEX,
    ROW_ID_MAP,
    SORT_ID_MAP,
    SENT_PROBS,
    SENT,
    RECEIVED,
    RECEIVED_PROBS,
    UNSORTED,
    COMBINED,
    D_COMBINED,
    D_UNSORTED,
    D_RECEIVED,
    D_RECEIVED_PROBS,
    D_SENT,
    D_SENT_PROBS
};
#define MANY SPW_MEGATRON_MANY
#define PADDED SPW_MEGATRON_PADDED

static const spw_tensor tensors[] = {
    SPW_MEGATRON_SHAPES(SPW_ROWS_HELD),
    [CHOSEN_PROBS] = {"chosen_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, 1, 4},
    [COLUMNS] = {"map_by_expert", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 1},
    [ARGSORT] = {"argsort", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 8},
    [MAPPING] = {"permutation", SPW_ROWS_SENT, SPW_WIDTH_ONE, 1, 8},
    [PROB_COLUMNS] = {"probs_by_expert", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 4},
    [PROB_INDEX] = {"prob_index", SPW_ROWS_SENT, SPW_WIDTH_ONE, 1, 8},
    [ROW_ID_MAP] = {"row_id_map", SPW_ROWS_TOKENS, SPW_WIDTH_ROW_IDS, 1, 4},
    [SORT_ID_MAP] = {"sort_id_map", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, 1, 4},
    [SENT_PROBS] = {"sent_probs", SPW_ROWS_SENT, SPW_WIDTH_ONE, 1, 4},
    [SENT] = {"sent_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, 1, 0},
    [RECEIVED] = {"received_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, 1, 0},
    [RECEIVED_PROBS] = {"received_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, 1, 4},
    [UNSORTED] = {"unsorted_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, 1, 0},
    [COMBINED] = {"combined_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, 1, 0},
    [D_COMBINED] = {"d_combined_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, 1, 0},
    [D_UNSORTED] = {"d_unsorted_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, 1, 0},
    [D_RECEIVED] = {"d_received_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, 1, 0},
    [D_RECEIVED_PROBS] = {"d_received_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, 1, 4},
    [D_SENT] = {"d_sent_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, 1, 0},
    [D_SENT_PROBS] = {"d_sent_probs", SPW_ROWS_SENT, SPW_WIDTH_ONE, 1, 4},
};

/* Python names hold sent_rows and received_rows until the layer returns, and the dispatcher probs, routing_map and
 * permutation until its next forward pass. */
static const spw_event_row event_rows[] = {
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_LOGITS),
    SPW_ROW_BORN(BOTH, 0, FUSED, "router", CHOSEN_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_PROBS),
    SPW_ROW_BORN(BOTH, 0, 0, "router", SPW_MEGATRON_MAP),

    SPW_ROW_BORN(BOTH, FUSED, 0, "permute", ROW_ID_MAP),
    SPW_ROW_BORN(BOTH, 0, FUSED, "permute", COLUMNS),
    SPW_ROW_BORN(BOTH, 0, FUSED, "permute", ARGSORT),
    SPW_ROW_BORN(BOTH, 0, FUSED, "permute", MAPPING),
    SPW_ROW_DIES(BOTH, SLOTS, FUSED, "permute", ARGSORT),
    SPW_ROW_BORN(BOTH, 0, FUSED, "permute", PROB_COLUMNS),
    SPW_ROW_BORN(BOTH, SLOTS, FUSED, "permute", PROB_INDEX),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", SENT_PROBS),
    SPW_ROW_DIES(BOTH, 0, FUSED, "permute", PROB_COLUMNS),
    SPW_ROW_BORN(BOTH, 0, 0, "permute", SENT),
    SPW_ROW_DIES(BOTH, 0, FUSED, "permute", COLUMNS),

    SPW_ROW_BORN(BOTH, COPIED, 0, "dispatch", RECEIVED),
    SPW_ROW_BORN(BOTH, COPIED, 0, "dispatch", RECEIVED_PROBS),
    SPW_ROW_BORN(BOTH, 0, COPIED, "dispatch", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_BORN(BOTH, 0, COPIED, "dispatch", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_DIES(BOTH, 0, 0, "dispatch", SENT_PROBS),

    SPW_ROW_BORN(BOTH, MANY | FUSED, 0, "sort chunks", SORT_ID_MAP),
    SPW_ROW_BORN(BOTH, MANY, PADDED, "sort chunks", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_BORN(BOTH, MANY, PADDED, "sort chunks", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_BORN(BOTH, MANY | PADDED, 0, "sort chunks", SPW_MEGATRON_SORTED),
    SPW_ROW_BORN(BOTH, MANY | PADDED, 0, "sort chunks", SPW_MEGATRON_SORTED_PROBS),
    SPW_MEGATRON_EXPERTS_FORWARD,
    SPW_ROW_BORN(BOTH, MANY, 0, "unsort chunks", UNSORTED),
    SPW_ROW_DIES(BOTH, MANY, PADDED, "unsort chunks", SPW_MEGATRON_FC2_OUTPUT),
    SPW_ROW_DIES(BOTH, MANY | PADDED, 0, "unsort chunks", SPW_MEGATRON_UNPADDED),
    SPW_ROW_DIES(FORWARD, MANY, PADDED, "unsort chunks", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_DIES(FORWARD, MANY, PADDED, "unsort chunks", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_DIES(BOTH, MANY | PADDED, 0, "unsort chunks", SPW_MEGATRON_SORTED),
    SPW_ROW_DIES(BOTH, MANY | PADDED, 0, "unsort chunks", SPW_MEGATRON_SORTED_PROBS),

    SPW_ROW_BORN(BOTH, 0, 0, "combine", COMBINED),
    SPW_ROW_DIES(BOTH, MANY, 0, "combine", UNSORTED),
    SPW_ROW_DIES(BOTH, PADDED, MANY, "combine", SPW_MEGATRON_UNPADDED),
    SPW_ROW_DIES(BOTH, 0, COPIED, "combine", SPW_MEGATRON_FC2_OUTPUT),
    SPW_ROW_BORN(BOTH, 0, 0, "unpermute", SPW_MEGATRON_OUTPUT),
    SPW_ROW_DIES(BOTH, 0, 0, "unpermute", COMBINED),
    SPW_ROW_DIES(BOTH, 0, 0, "layer end", SENT),
    SPW_ROW_DIES(BOTH, COPIED, 0, "layer end", RECEIVED),
    SPW_ROW_DIES(BOTH, COPIED, 0, "layer end", RECEIVED_PROBS),
    SPW_ROW_DIES(FORWARD, 0, COPIED, "layer end", SPW_MEGATRON_FC1_INPUT),
    SPW_ROW_DIES(FORWARD, 0, COPIED, "layer end", SPW_MEGATRON_ROW_PROBS),
    SPW_ROW_DIES(FORWARD, MANY | FUSED, 0, "layer end", SORT_ID_MAP),
    SPW_ROW_DIES(FORWARD, FUSED, 0, "layer end", ROW_ID_MAP),
    SPW_ROW_DIES(FORWARD, SLOTS, FUSED, "layer end", PROB_INDEX),
    SPW_ROW_DIES(FORWARD, 0, SLOTS | FUSED, "layer end", ARGSORT),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", SPW_MEGATRON_LOGITS),
    SPW_ROW_DIES(FORWARD, 0, FUSED, "layer end", CHOSEN_PROBS),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", SPW_MEGATRON_PROBS),
    SPW_ROW_DIES(FORWARD, 0, 0, "layer end", SPW_MEGATRON_MAP),
    SPW_ROW_DIES(FORWARD, 0, FUSED, "layer end", MAPPING),
    SPW_ROW_DIES(BOTH, 0, 0, "layer end", SPW_MEGATRON_OUTPUT),

    SPW_ROW_BORN(BACKWARD, 0, 0, "unpermute gradient", D_COMBINED),
    SPW_ROW_BORN(BACKWARD, MANY, 0, "combine gradient", D_UNSORTED),
    SPW_ROW_BORN(BACKWARD, PADDED, MANY, "combine gradient", SPW_MEGATRON_D_UNPADDED),
    SPW_ROW_BORN(BACKWARD, 0, COPIED, "combine gradient", SPW_MEGATRON_D_FC2_OUTPUT),
    SPW_ROW_DIES(BACKWARD, 0, 0, "combine gradient", D_COMBINED),
    SPW_ROW_BORN(BACKWARD, MANY | PADDED, 0, "unsort gradient", SPW_MEGATRON_D_UNPADDED),
    SPW_ROW_BORN(BACKWARD, MANY, PADDED, "unsort gradient", SPW_MEGATRON_D_FC2_OUTPUT),
    SPW_ROW_DIES(BACKWARD, MANY, 0, "unsort gradient", D_UNSORTED),
    SPW_MEGATRON_EXPERTS_BACKWARD,
    SPW_ROW_BORN(BACKWARD, MANY, 0, "sort gradient", D_RECEIVED),
    SPW_ROW_DIES(BACKWARD, MANY, PADDED, "sort gradient", SPW_MEGATRON_D_FC1_INPUT),
    SPW_ROW_DIES(BACKWARD, MANY | PADDED, 0, "sort gradient", SPW_MEGATRON_D_SORTED),
    SPW_ROW_BORN(BACKWARD, MANY, 0, "sort gradient", D_RECEIVED_PROBS),
    SPW_ROW_DIES(BACKWARD, MANY, PADDED, "sort gradient", SPW_MEGATRON_D_ROW_PROBS),
    SPW_ROW_DIES(BACKWARD, MANY | PADDED, 0, "sort gradient", SPW_MEGATRON_D_SORTED_PROBS),
    SPW_ROW_DIES(BACKWARD, MANY | FUSED, 0, "sort gradient", SORT_ID_MAP),
    SPW_ROW_BORN(BACKWARD, 0, 0, "dispatch gradient", D_SENT_PROBS),
    SPW_ROW_DIES(BACKWARD, MANY, 0, "dispatch gradient", D_RECEIVED_PROBS),
    SPW_ROW_DIES(BACKWARD, PADDED, MANY, "dispatch gradient", SPW_MEGATRON_D_SORTED_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, COPIED, "dispatch gradient", SPW_MEGATRON_D_ROW_PROBS),
    SPW_ROW_BORN(BACKWARD, 0, 0, "dispatch gradient", D_SENT),
    SPW_ROW_DIES(BACKWARD, MANY, 0, "dispatch gradient", D_RECEIVED),
    SPW_ROW_DIES(BACKWARD, PADDED, MANY, "dispatch gradient", SPW_MEGATRON_D_SORTED),
    SPW_ROW_DIES(BACKWARD, 0, COPIED, "dispatch gradient", SPW_MEGATRON_D_FC1_INPUT),
    SPW_ROW_BORN(BACKWARD, 0, 0, "permute gradient", SPW_MEGATRON_D_X),
    SPW_ROW_DIES(BACKWARD, 0, 0, "permute gradient", D_SENT),
    SPW_ROW_BORN(BACKWARD, 0, 0, "permute gradient", SPW_MEGATRON_D_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "permute gradient", D_SENT_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, SLOTS | FUSED, "permute gradient", ARGSORT),
    SPW_ROW_DIES(BACKWARD, SLOTS, FUSED, "permute gradient", PROB_INDEX),
    SPW_ROW_DIES(BACKWARD, FUSED, 0, "permute gradient", ROW_ID_MAP),
    SPW_ROW_BORN(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, FUSED, "router gradient", CHOSEN_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "router gradient", SPW_MEGATRON_D_LOGITS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "layer end", SPW_MEGATRON_PROBS),
    SPW_ROW_DIES(BACKWARD, 0, 0, "layer end", SPW_MEGATRON_MAP),
    SPW_ROW_DIES(BACKWARD, 0, FUSED, "layer end", MAPPING),
    SPW_ROW_DIES(BACKWARD, 0, 0, "layer end", SPW_MEGATRON_D_X),
};

static const spw_event_table table = SPW_EVENT_TABLE(tensors, event_rows);
static spw_event_lists lists;

static bool experts_pad(const spw_scheme *scheme) {
    return spw_megatron_align(scheme) > 1 && spw_scheme_option_is(scheme, "pay", "experts");
}

static bool fills_slots(const spw_scheme *scheme) { return spw_scheme_option_is(scheme, "pad", "true"); }

const spw_layer_list *spw_megatron_alltoall_layer(const spw_scheme *scheme, const spw_layer_shape *s,
                                                  bool fused) {
    unsigned conditions = fused ? FUSED : 0;
    if (s->remat == SPW_REMAT_MOE_ACT) conditions |= SPW_MEGATRON_ACT;
    if (experts_pad(scheme)) conditions |= PADDED | COPIED;
    if (s->experts_per_rank > 1) conditions |= MANY | COPIED;
    if (fills_slots(scheme)) conditions |= SLOTS;
    return spw_event_table_list(&table, &lists, conditions);
}

static const spw_layer_list *layer_of(const spw_scheme *scheme, const spw_layer_shape *s) {
    return spw_megatron_alltoall_layer(scheme, s, false);
}

/* Hidden rows and their router weights are two all-to-alls with the same splits. PyTorch repeats the whole layer. */
size_t spw_megatron_alltoall_exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                                       spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const uint64_t row = s->hidden * s->element_bytes, weight = 4;
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, row + weight},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, row + weight},
        {"combine again", SPW_PHASE_RECOMPUTE, true, row},
        {"combine gradient", SPW_PHASE_BACKWARD, false, row},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row + weight},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

/* Rows that one rank sends to one expert, of `kept` choices: a router can only add tokens that it has. */
static uint64_t sent_rows(const spw_scheme *scheme, const spw_layer_shape *s, uint64_t kept,
                          bool router_pads) {
    if (fills_slots(scheme)) {
        const size_t capacity = spw_megatron_capacity(scheme, s);
        return capacity < s->tokens ? capacity : s->tokens;
    }
    const uint64_t padded = router_pads ? spw_pad_up(kept, spw_megatron_align(scheme)) : kept;
    return padded < s->tokens ? padded : s->tokens;
}

void spw_megatron_alltoall_flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c,
                                size_t group, spw_flow *out) {
    const size_t align = spw_megatron_align(scheme);
    const bool pad_here = experts_pad(scheme);
    spw_megatron_flow_begin(scheme, s, c, group, out);
    for (size_t x = 0; x < s->experts; x++) {
        const size_t d = x / s->experts_per_rank;
        uint64_t received = 0;
        for (size_t r = 0; r < s->ranks; r++) {
            const uint64_t n = sent_rows(scheme, s, c->routed[(group * s->ranks + r) * s->experts + x],
                                         align > 1 && !pad_here);
            out->wire[r * s->ranks + d] += n;
            received += n;
        }
        out->rows[d] += pad_here ? spw_pad_up(received, align) : received;
    }
}

void spw_megatron_alltoall_balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t capacity = spw_megatron_capacity(scheme, s), align = spw_megatron_align(scheme),
                 even = (s->assignments + s->experts - 1) / s->experts;
    if (capacity == SIZE_MAX && align == 1) return;
    const uint64_t n = sent_rows(scheme, s, even < capacity ? even : capacity,
                                 align > 1 && !experts_pad(scheme)),
                   held = s->ranks * n;
    rows->sent = rows->received = s->experts * n;
    rows->held = s->experts_per_rank * (experts_pad(scheme) ? spw_pad_up(held, align) : held);
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (!fills_slots(scheme)) return SPW_OK;
    if (spw_scheme_option_value(scheme, "capacity_factor") == 0.0)
        return spw_fail(SPW_ECONFIG, "scheme '%s': pad=true fills slots and needs capacity_factor",
                        scheme->text);
    if (spw_megatron_align(scheme) > 1 && !experts_pad(scheme))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': pad=true fixes the rows of every expert, the router cannot add to them; "
            "pay=experts would be right",
            scheme->text);
    if (spw_megatron_capacity(scheme, s) == SIZE_MAX)
        return spw_fail(SPW_ECONFIG,
                        "scheme '%s': more slots an expert than the %zu tokens of a rank cannot be filled; a "
                        "capacity_factor of at most experts / top_k = %.6g would be right",
                        scheme->text, s->tokens, (double)s->experts / (double)s->top_k);
    return SPW_OK;
}

const spw_scheme_type spw_scheme_megatron_alltoall = {
    .name = "megatron-alltoall",
    .summary = "Megatron-Core, all-to-all dispatcher: every choice is sent, buffers of what arrives",
    .section_source = "event list of the scheme (5.2)",
    .source =
        "NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py MoEAlltoAllTokenDispatcher",
    .options = options,
    .layer_of = layer_of,
    .weighted_activation = true,
    .exchanges = spw_megatron_alltoall_exchanges,
    .drop_rule = spw_megatron_drop_rule,
    .keep = spw_megatron_keep,
    .expert_capacity = spw_megatron_capacity,
    .flow = spw_megatron_alltoall_flow,
    .balance = spw_megatron_alltoall_balance,
    .check = check,
};
