/* Megatron-Core, all-to-all dispatcher (docs/schemes.md, sections 5.1, 5.2 and 5.5). Every choice is a row of its own on
 * the wire, with its router weight; buffers have the size of what arrives. */
#include "sim/schemes/megatron/megatron_alltoall.h"

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

/* --- The layer. Python names hold sent_rows and received_rows until it returns, and the dispatcher's attributes probs,
 * routing_map and permutation until its next forward pass. --- */

typedef struct layout {
    bool fused;  /* router and permutations are one kernel each */
    bool slots;  /* experts are filled to their capacity */
    bool many;   /* more than one expert a rank: rows are sorted by expert */
    bool copied; /* what arrives is not what fc1 reads: sorted or padded */
    bool torch;  /* what PyTorch's allocator sees */
    bool shared; /* an expert is shared: what arrives is gathered, what the experts make is scattered */
    bool
        alone; /* one expert-parallel rank, with experts shared or sorted: the all-to-all hands on what it gets */
    spw_megatron_experts experts;
} layout;

/* Splits and counts of a few experts; their sizes are fitted to the byte (docs/reserved.md). */
static void preprocess(spw_layer_builder *b, layout c) {
    const spw_dim bytes = {"64", 64};
    spw_layer_keeps(b, "preprocess", "probs");
    spw_layer_keeps(b, "preprocess", "routing_map");
    if (!c.torch) return;
    spw_layer_born(b, "preprocess",
                   (spw_tensor){"splits", SPW_ROWS_GIVEN, .dim = {bytes}, .element_bytes = 1});
    spw_layer_born(b, "preprocess",
                   (spw_tensor){"counts", SPW_ROWS_GIVEN, .dim = {bytes}, .element_bytes = 1});
}

/* A stable sort of the map works on a copy, with indices of its own. */
static void sort_map(spw_layer_builder *b, layout c) {
    spw_layer_born(b, "permute",
                   (spw_tensor){"argsort", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 8});
    if (!c.torch) return;
    spw_layer_born(b, "permute",
                   (spw_tensor){"sorted_map", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 1});
    spw_layer_passes(b, "permute",
                     (spw_tensor){"sort_indices", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 8});
    spw_layer_dies(b, "permute", "sorted_map");
}

static void permute(spw_layer_builder *b, layout c) {
    if (c.fused) {
        spw_layer_born(b, "permute",
                       (spw_tensor){"row_id_map", SPW_ROWS_TOKENS, SPW_WIDTH_ROW_IDS, .element_bytes = 4});
    } else {
        spw_layer_born(b, "permute",
                       (spw_tensor){"map_by_expert", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 1});
        sort_map(b, c);
        spw_layer_born(b, "permute",
                       (spw_tensor){"permutation", SPW_ROWS_SENT, SPW_WIDTH_ONE, .element_bytes = 8});
        if (c.slots) spw_layer_dies(b, "permute", "argsort");
        spw_layer_born(
            b, "permute",
            (spw_tensor){"probs_by_expert", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 4});
        if (c.slots)
            spw_layer_born(b, "permute",
                           (spw_tensor){"prob_index", SPW_ROWS_SENT, SPW_WIDTH_ONE, .element_bytes = 8});
    }
    spw_layer_born(b, "permute",
                   (spw_tensor){"sent_probs", SPW_ROWS_SENT, SPW_WIDTH_ONE, .element_bytes = 4});
    if (!c.fused) spw_layer_dies(b, "permute", "probs_by_expert");
    spw_layer_born(b, "permute", (spw_tensor){"sent_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    if (c.fused) return;
    spw_layer_dies(b, "permute", "map_by_expert");
    spw_layer_keeps(b, "permute", "permutation");
}

/* PyTorch joins the pieces of a gather or scatter in a copy of its own where all are of one size, which they are for
 * certain where every rank keeps its own rows. */
static void flat_copy(spw_layer_builder *b, const char *step, layout c, spw_tensor of) {
    of.name = of.element_bytes > 0 ? "flat_fp32" : "flat_rows";
    if (c.torch && c.alone) spw_layer_passes(b, step, of);
}

static const spw_tensor gathered_rows = {"gathered_rows", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN},
                        gathered_probs = {"gathered_probs", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 4},
                        scatter_input = {"scatter_input_fp32", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN,
                                         .element_bytes = 4};

/* To all ranks that share the experts. */
static void gather(spw_layer_builder *b, layout c) {
    const char *step = "gather";
    if (c.many) {
        spw_layer_born(b, step, gathered_rows);
        spw_layer_born(b, step, gathered_probs);
    } else {
        spw_megatron_layer_take(b, step, c.experts.rows);
    }
    flat_copy(b, step, c, gathered_rows);
    if (!c.many) return;
    spw_megatron_layer_take(b, "sort chunks", c.experts.rows);
    spw_layer_dies(b, "sort chunks", "gathered_rows");
    spw_layer_dies(b, "sort chunks", "gathered_probs");
}

/* What the ranks that share an expert made of a row is summed in the type of the router's weights. */
static void scatter(spw_layer_builder *b, layout c) {
    const char *step = "scatter";
    if (c.many)
        spw_layer_born(b, "unsort chunks", (spw_tensor){"unsorted_rows", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, step, scatter_input);
    spw_layer_born(b, step,
                   (spw_tensor){"scattered_fp32", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    flat_copy(b, step, c, scatter_input);
    spw_layer_dies(b, step, "scatter_input_fp32");
    spw_layer_born(b, step, (spw_tensor){"scattered_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, step, "scattered_fp32");
    if (c.many) spw_layer_dies(b, step, "unsorted_rows");
    spw_layer_dies(b, step, "fc2_output");
    spw_megatron_layer_taken(b, step, c.experts.shape);
    if (!c.alone)
        spw_layer_born(b, "combine", (spw_tensor){"combined_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    if (!c.alone) spw_layer_dies(b, "combine", "scattered_rows");
    spw_layer_born(b, "unpermute", (spw_tensor){"output", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unpermute", c.alone ? "scattered_rows" : "combined_rows");
}

static void scatter_gradient(spw_layer_builder *b, layout c) {
    const char *step = "scatter gradient";
    const spw_tensor to_experts = {"d_fc2_output", c.experts.rows, SPW_WIDTH_HIDDEN};
    spw_tensor input = scatter_input;
    input.name = "d_scatter_input_fp32";
    spw_layer_born(b, "unpermute gradient", (spw_tensor){"d_combined_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    if (!c.alone) {
        spw_layer_born(b, "combine gradient",
                       (spw_tensor){"d_scattered_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
        spw_layer_dies(b, "combine gradient", "d_combined_rows");
    }
    spw_layer_born(b, step,
                   (spw_tensor){"d_scattered_fp32", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_dies(b, step, c.alone ? "d_combined_rows" : "d_scattered_rows");
    spw_layer_born(b, step, input);
    flat_copy(b, step, c, input);
    spw_layer_dies(b, step, "d_scattered_fp32");
    spw_layer_born(b, step,
                   c.many ? (spw_tensor){"d_unsorted_rows", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN} : to_experts);
    spw_layer_dies(b, step, "d_scatter_input_fp32");
    if (!c.many) return;
    spw_layer_born(b, "unsort gradient", to_experts);
    spw_layer_dies(b, "unsort gradient", "d_unsorted_rows");
}

static void gather_gradient(spw_layer_builder *b, layout c) {
    const char *dx = "d_fc1_input", *d_probs = "d_row_probs", *step = "gather gradient";
    if (c.many) {
        spw_layer_born(b, "sort gradient", (spw_tensor){"d_gathered_rows", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
        spw_layer_dies(b, "sort gradient", dx);
        spw_layer_born(b, "sort gradient",
                       (spw_tensor){"d_gathered_probs", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 4});
        spw_layer_dies(b, "sort gradient", d_probs);
        dx = "d_gathered_rows", d_probs = "d_gathered_probs";
    }
    spw_layer_born(b, step,
                   (spw_tensor){"d_received_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_dies(b, step, d_probs);
    if (c.torch) spw_layer_dies(b, step, "d_received_probs");
    spw_layer_born(b, step, (spw_tensor){"d_received_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    flat_copy(b, step, c, gathered_rows);
    spw_layer_dies(b, step, dx);
    if (!c.torch) {
        spw_layer_born(b, "dispatch gradient",
                       (spw_tensor){"d_sent_probs", SPW_ROWS_SENT, SPW_WIDTH_ONE, .element_bytes = 4});
        spw_layer_dies(b, "dispatch gradient", "d_received_probs");
    }
    if (c.alone) return;
    spw_layer_born(b, "dispatch gradient", (spw_tensor){"d_sent_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "dispatch gradient", "d_received_rows");
}

static void dispatch(spw_layer_builder *b, layout c) {
    if (c.alone && c.shared) {
        gather(b, c);
        return;
    }
    if (!c.alone && c.copied) {
        spw_layer_born(b, "dispatch", (spw_tensor){"received_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
        spw_layer_born(b, "dispatch",
                       (spw_tensor){"received_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, .element_bytes = 4});
    } else if (!c.alone) {
        spw_megatron_layer_take(b, "dispatch", c.experts.rows);
    }
    if (!c.alone) spw_layer_dies(b, "dispatch", "sent_probs");
    if (c.shared) gather(b, c);
    if (!c.many || c.shared) return;
    if (c.fused)
        spw_layer_born(b, "sort chunks",
                       (spw_tensor){"sort_id_map", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, .element_bytes = 4});
    if (c.experts.padded) {
        spw_layer_born(b, "sort chunks", (spw_tensor){"sorted_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
        spw_layer_born(b, "sort chunks",
                       (spw_tensor){"sorted_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, .element_bytes = 4});
    } else {
        spw_megatron_layer_take(b, "sort chunks", c.experts.rows);
    }
}

static void combine(spw_layer_builder *b, layout c) {
    const char *y = c.experts.padded ? "unpadded_rows" : "fc2_output";
    if (c.shared) {
        scatter(b, c);
        return;
    }
    if (c.many) {
        spw_layer_born(b, "unsort chunks",
                       (spw_tensor){"unsorted_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
        spw_layer_dies(b, "unsort chunks", y);
        if (c.experts.padded) {
            spw_layer_dies(b, "unsort chunks", "sorted_rows");
            spw_layer_dies(b, "unsort chunks", "sorted_probs");
        } else {
            spw_megatron_layer_taken(b, "unsort chunks", c.experts.shape);
        }
    }
    if (!c.alone) {
        spw_layer_born(b, "combine", (spw_tensor){"combined_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
        spw_layer_dies(b, "combine", c.many ? "unsorted_rows" : y);
    }
    spw_layer_born(b, "unpermute", (spw_tensor){"output", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unpermute", c.alone ? "unsorted_rows" : "combined_rows");
}

/* What autograd saved for the map's gradients. */
static void end_permutation(spw_layer_builder *b, const char *step, layout c) {
    spw_layer_dies(b, step, c.fused ? "row_id_map" : c.slots ? "prob_index" : "argsort");
}

static void end_counts(spw_layer_builder *b, layout c) {
    if (!c.torch) return;
    spw_layer_dies(b, "layer end", "splits");
    spw_layer_dies(b, "layer end", "counts");
}

/* The dispatcher's attributes, which under PyTorch live on. */
static void end_routing(spw_layer_builder *b, layout c) {
    spw_layer_dies(b, "layer end", "probs");
    spw_layer_dies(b, "layer end", "routing_map");
    if (!c.fused) spw_layer_dies(b, "layer end", "permutation");
}

/* What the backward pass does not need, and in the forward pass all of it. */
static void end(spw_layer_builder *b, layout c) {
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_dies(b, "layer end", "sent_rows");
    if (c.alone) {
        spw_layer_dies(b, "layer end", "sent_probs");
    } else if (c.copied) {
        spw_layer_dies(b, "layer end", "received_rows");
        spw_layer_dies(b, "layer end", "received_probs");
    } else {
        spw_megatron_layer_taken(b, "layer end", c.experts.shape);
    }
    if (forward) {
        if (c.many && c.fused) spw_layer_dies(b, "layer end", "sort_id_map");
        end_permutation(b, "layer end", c);
        spw_layer_dies(b, "layer end", "logits");
        if (!c.fused) spw_layer_dies(b, "layer end", "chosen_probs");
        end_counts(b, c);
        end_routing(b, c);
    }
    spw_layer_dies(b, "layer end", "output");
}

static void combine_gradient(spw_layer_builder *b, layout c) {
    const spw_tensor to_experts = c.experts.padded
                                      ? (spw_tensor){"d_unpadded_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN}
                                      : (spw_tensor){"d_fc2_output", c.experts.rows, SPW_WIDTH_HIDDEN};
    if (c.shared) {
        scatter_gradient(b, c);
        return;
    }
    spw_layer_born(b, "unpermute gradient", (spw_tensor){"d_combined_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    if (!c.alone) {
        spw_layer_born(b, "combine gradient",
                       c.many ? (spw_tensor){"d_unsorted_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN}
                              : to_experts);
        spw_layer_dies(b, "combine gradient", "d_combined_rows");
    }
    if (!c.many) return;
    spw_layer_born(b, "unsort gradient", to_experts);
    spw_layer_dies(b, "unsort gradient", c.alone ? "d_combined_rows" : "d_unsorted_rows");
}

static void dispatch_gradient(spw_layer_builder *b, layout c) {
    const char *dx = c.experts.padded ? "d_sorted_rows" : "d_fc1_input",
               *d_probs = c.experts.padded ? "d_sorted_probs" : "d_row_probs";
    if (c.shared) {
        gather_gradient(b, c);
        return;
    }
    if (c.many) {
        spw_layer_born(b, "sort gradient",
                       (spw_tensor){"d_received_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
        spw_layer_dies(b, "sort gradient", dx);
        spw_layer_born(
            b, "sort gradient",
            (spw_tensor){"d_received_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, .element_bytes = 4});
        if (c.torch) spw_layer_dies(b, "sort gradient", "d_received_probs");
        spw_layer_dies(b, "sort gradient", d_probs);
        if (c.fused) spw_layer_dies(b, "sort gradient", "sort_id_map");
    }
    if (!c.torch) {
        spw_layer_born(b, "dispatch gradient",
                       (spw_tensor){"d_sent_probs", SPW_ROWS_SENT, SPW_WIDTH_ONE, .element_bytes = 4});
        spw_layer_dies(b, "dispatch gradient", c.many ? "d_received_probs" : d_probs);
    } else if (!c.many) {
        spw_layer_dies(b, "dispatch gradient", d_probs);
    }
    if (c.alone) return;
    spw_layer_born(b, "dispatch gradient", (spw_tensor){"d_sent_rows", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "dispatch gradient", c.many ? "d_received_rows" : dx);
}

static void permute_gradient(spw_layer_builder *b, layout c) {
    spw_layer_born(b, "permute gradient", (spw_tensor){"dx", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "permute gradient", c.alone ? "d_received_rows" : "d_sent_rows");
    spw_layer_born(b, "permute gradient",
                   (spw_tensor){"d_probs", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 4});
    if (c.torch) return; /* what permute saved waits for the router's gradient */
    spw_layer_dies(b, "permute gradient", "d_sent_probs");
    end_permutation(b, "permute gradient", c);
}

void spw_megatron_alltoall_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b,
                                 bool fused) {
    const bool many = s->experts_per_rank > 1, padded = spw_megatron_alltoall_pads(scheme),
               shared = s->expert_tensor > 1;
    const layout c = {.fused = fused,
                      .slots = spw_megatron_alltoall_fills(scheme),
                      .many = many,
                      .copied = many || padded || shared,
                      .shared = shared,
                      .alone = (shared && s->ranks == s->expert_tensor) || (many && s->ranks == 1),
                      .torch = spw_layer_flavour(b) == SPW_FLAVOUR_TORCH,
                      .experts = {s, SPW_ROWS_HELD, padded}};
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        spw_megatron_layer_begins(b, c.experts);
        spw_megatron_layer_router(b, fused);
        spw_megatron_layer_drop(b, s, spw_megatron_capacity(scheme, s));
        preprocess(b, c);
        permute(b, c);
        dispatch(b, c);
        spw_megatron_layer_experts(b, c.experts);
        combine(b, c);
        end(b, c);
        spw_megatron_layer_ends(b, c.experts);
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_megatron_layer_begins(b, c.experts);
    combine_gradient(b, c);
    spw_megatron_layer_experts_gradient(b, c.experts);
    dispatch_gradient(b, c);
    permute_gradient(b, c);
    spw_megatron_layer_router_gradient(b, fused);
    if (c.torch) end_permutation(b, "layer end", c);
    end_counts(b, c);
    end_routing(b, c);
    spw_layer_dies(b, "layer end", "dx");
    spw_megatron_layer_ends(b, c.experts);
}

static void megatron_alltoall_layer(const spw_scheme *scheme, const spw_layer_shape *s,
                                    spw_layer_builder *b) {
    spw_megatron_alltoall_layer(scheme, s, b, false);
}

/* Hidden rows and their router weights are two all-to-alls with the same splits. PyTorch repeats the whole layer. */
size_t spw_megatron_alltoall_exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                                       spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const uint64_t row = s->hidden * s->element_bytes, weight = 4, summed = s->hidden * sizeof(float);
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, row + weight},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, row + weight},
        {"combine again", SPW_PHASE_RECOMPUTE, true, row},
        {"combine gradient", SPW_PHASE_BACKWARD, false, row},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row + weight},
        {"gather", SPW_PHASE_FORWARD, false, row + weight, .gathers = true},
        {"scatter", SPW_PHASE_FORWARD, true, summed, .gathers = true},
        {"gather again", SPW_PHASE_RECOMPUTE, false, row + weight, .gathers = true},
        {"scatter again", SPW_PHASE_RECOMPUTE, true, summed, .gathers = true},
        {"scatter gradient", SPW_PHASE_BACKWARD, false, summed, .gathers = true},
        {"gather gradient", SPW_PHASE_BACKWARD, true, row + weight, .gathers = true},
    };
    const size_t count = s->expert_tensor > 1 ? SPW_COUNT_OF(list) : SPW_COUNT_OF(list) / 2;
    for (size_t i = 0; i < count; i++) out[i] = list[i];
    return count;
}

static bool is_unpadded(const spw_scheme *scheme) { return spw_megatron_align(scheme) == 1; }

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (s->expert_tensor > 1 && spw_megatron_alltoall_pads(scheme))
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': rows that experts pad are not described with expert_tensor %zu; %spay=router, or "
            "expert_tensor 1 would be right",
            scheme->text, s->expert_tensor, s->fp8_copies > 0 ? "" : "align=none, ");
    if (!spw_megatron_alltoall_fills(scheme)) return SPW_OK;
    if (spw_scheme_option_value(scheme, "capacity_factor") == 0.0)
        return spw_fail(SPW_ECONFIG, "scheme '%s': pad=true fills slots and needs capacity_factor",
                        scheme->text);
    if (spw_megatron_align(scheme) > 1 && !spw_megatron_alltoall_pads(scheme))
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
    .trainer = SPW_TRAINER_MEGATRON,
    .about.summary = "Megatron-Core, all-to-all dispatcher: every choice is sent, buffers of what arrives",
    .about.section = "event list of the scheme (5.2)",
    .about.source =
        "NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py MoEAlltoAllTokenDispatcher",
    .options = options,
    .routing.factor = "capacity_factor",
    .routing.worst_factor = spw_megatron_worst_factor,
    .megatron = {true, SPW_MEGATRON_ALL_TO_ALL, .as_timed = is_unpadded,
                 .fills_slots = spw_megatron_alltoall_fills, .as_bare = is_unpadded, .fp8 = true,
                 .freezes = true, .offloads = true},
    .memory.layer = megatron_alltoall_layer,
    .values.weighted_activation = true,
    .traffic.exchanges = spw_megatron_alltoall_exchanges,
    .routing.drop_rule = spw_megatron_drop_rule,
    .routing.keep = spw_megatron_keep,
    .routing.expert_capacity = spw_megatron_capacity,
    .routing.flow = spw_megatron_alltoall_flow,
    .routing.lines = spw_megatron_alltoall_lines,
    .routing.balance = spw_megatron_alltoall_balance,
    .check = check,
};
