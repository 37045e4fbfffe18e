/* torchtitan's MoE with HybridEP (docs/schemes.md, section 6.7): rows come permuted to the experts, as many as arrive or a part of
 * the worst case, and scores multiply what the experts make, before it returns. */
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/deepep/deepep_jax.h"
#include "sim/schemes/padded_rows.h"
#include "sim/schemes/torch/experts_torch.h"

static const spw_scheme_option options[] = {
    {"capacity", 0.0, 1e6, 0.0, false,
     "non_blocking_capacity_factor: rows of a rank as a part of the most that can come; what exceeds them is "
     "dropped; 0 = as many as arrive, blocking",
     NULL},
    SPW_PAD_OPTION_ROW,
    {.name = NULL},
};

static bool is_fixed(const spw_scheme *scheme) { return spw_scheme_option_value(scheme, "capacity") > 0.0; }

static spw_tensor column(const char *name, spw_rows rows, uint8_t element_bytes) {
    return (spw_tensor){name, rows, SPW_WIDTH_ONE, .element_bytes = element_bytes};
}
static spw_tensor by_expert(const char *name, uint8_t element_bytes) {
    return (spw_tensor){name, SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = element_bytes};
}
static spw_tensor wide(const char *name, spw_rows rows) { return (spw_tensor){name, rows, SPW_WIDTH_HIDDEN}; }

static void dispatch(spw_layer_builder *b, spw_rows rows) {
    spw_layer_born(b, "indices to map", by_expert("routing_map", 1));
    spw_layer_born(b, "indices to map", by_expert("dense_scores", 4));
    spw_hybrid_ep_maps_born(b);
    spw_layer_born(b, "dispatch", wide("x", rows));
    spw_layer_born(b, "dispatch", column("row_scores", rows, 4));
    spw_layer_dies(b, "dispatch", "routing_map");
    spw_layer_dies(b, "dispatch", "dense_scores");
    spw_layer_born(b, "scores", column("scores_bf16", rows, 2));
    spw_layer_dies(b, "scores", "row_scores");
}

static void combine(spw_layer_builder *b, spw_rows rows) {
    static const char *const saved[] = {"y", "x", "scores_bf16"};
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_born(b, "weight", wide("weighted", rows));
    spw_layer_born(b, "combine", wide("output", SPW_ROWS_TOKENS));
    spw_layer_dies(b, "combine", "weighted");
    for (size_t i = 0; i < SPW_COUNT_OF(saved) && forward; i++) spw_layer_dies(b, "layer end", saved[i]);
    if (forward) spw_hybrid_ep_maps_die(b, "layer end");
    spw_layer_dies(b, "layer end", "output");
}

static void combine_gradient(spw_layer_builder *b, spw_rows rows) {
    static const char *const used[] = {"score_products", "y", "scores_bf16", "d_weighted"};
    spw_layer_born(b, "combine gradient", wide("d_weighted", rows));
    spw_layer_born(b, "weight gradient", wide("dy", rows));
    spw_layer_born(b, "weight gradient", wide("score_products", rows));
    spw_layer_born(b, "weight gradient", column("d_scores_bf16", rows, 2));
    for (size_t i = 0; i < SPW_COUNT_OF(used); i++) spw_layer_dies(b, "weight gradient", used[i]);
}

static void dispatch_gradient(spw_layer_builder *b, spw_rows rows) {
    static const char *const used[] = {"d_dense_scores", "dx_w1", "d_row_scores"};
    spw_layer_born(b, "scores gradient", column("d_row_scores", rows, 4));
    spw_layer_dies(b, "scores gradient", "d_scores_bf16");
    spw_layer_born(b, "dispatch gradient", wide("dx", SPW_ROWS_TOKENS));
    spw_layer_born(b, "dispatch gradient", by_expert("d_dense_scores", 4));
    spw_layer_born(b, "dispatch gradient",
                   (spw_tensor){"d_top_scores", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, .element_bytes = 4});
    for (size_t i = 0; i < SPW_COUNT_OF(used); i++) spw_layer_dies(b, "dispatch gradient", used[i]);
    spw_hybrid_ep_maps_die(b, "dispatch gradient");
    spw_layer_dies(b, "layer end", "dx");
    spw_layer_dies(b, "layer end", "d_top_scores");
}

static void torchtitan_hybridep_layer(const spw_scheme *scheme, const spw_layer_shape *s,
                                      spw_layer_builder *b) {
    const spw_rows rows = is_fixed(scheme) ? SPW_ROWS_BUFFER : SPW_ROWS_HELD;
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        dispatch(b, rows);
        spw_experts_up_last(b, rows);
        combine(b, rows);
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b, rows);
    spw_experts_autograd_gradient(b, s, rows, SPW_AUTOGRAD_UP_LAST);
    dispatch_gradient(b, rows);
    spw_experts_weight_gradients_end(b, s);
}

/* int(R T min(e, K) f), rounded up to the padding. */
static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return spw_hybrid_ep_rows(scheme, s->worst_rows);
}

static double worst_factor(const spw_scheme *scheme, const spw_layer_shape *s) {
    return spw_hybrid_ep_worst(scheme, s, s->worst_rows);
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    spw_status status = s->ranks > 1
                            ? spw_hybrid_ep_check(scheme, s)
                            : spw_fail(SPW_ECONFIG,
                                       "scheme '%s': torchtitan takes HybridEP with expert parallelism only, "
                                       "not on one rank",
                                       scheme->text);
    if (status == SPW_OK) status = spw_pad_check(scheme, s);
    if (status == SPW_OK && is_fixed(scheme) && buffer_rows(scheme, s) == 0)
        status = spw_fail(SPW_ECONFIG, "scheme '%s': capacity of %zu rows leaves none", scheme->text,
                          s->worst_rows);
    return status;
}

static spw_status check_kernels(const spw_scheme *scheme, const spw_layer_shape *s) {
    return spw_check_remat(scheme, s);
}

const spw_scheme_type spw_scheme_torchtitan_hybridep = {
    .name = "torchtitan-hybridep",
    .trainer = SPW_TRAINER_TORCHTITAN,
    .about.summary =
        "torchtitan with HybridEP: rows come permuted, as many as arrive or a part of the worst case",
    .about.section = "event list of the scheme (6.7)",
    .about.source =
        "pytorch/torchtitan torchtitan/distributed/deepep/hybridep.py, models/common/token_dispatcher.py "
        "HybridEPTokenDispatcher",
    .options = options,
    .memory.layer = torchtitan_hybridep_layer,
    .memory.weight_gradients = true,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "P_pad(R T min(e, K) capacity)",
    .routing.factor = "capacity",
    .routing.worst_factor = worst_factor,
    SPW_HYBRID_EP_ROW,
    .check = check,
    .check_kernels = check_kernels,
};
