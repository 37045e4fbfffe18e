/* HybridEP (branch hybrid-ep of DeepEP) under Megatron-Core's flex dispatcher (docs/schemes.md, section 4.8): rows come
 * permuted to the experts, into as many rows as arrive or into a fixed budget; weights multiply the activation. */
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/deepep/deepep_jax.h"
#include "sim/schemes/padded_rows.h"
#include "sim/schemes/torch/experts_torch.h"

static const spw_scheme_option options[] = {
    {"budget", 0.0, 1e6, 0.0, false,
     "rows of a rank as a multiple of the assignments it makes; what exceeds them is dropped; 0 = as many as "
     "arrive",
     NULL},
    SPW_PAD_OPTION_ROW,
    {.name = NULL},
};

static bool has_budget(const spw_scheme *scheme) { return spw_scheme_option_value(scheme, "budget") > 0.0; }

static void dispatch(spw_layer_builder *b, spw_experts_fused experts) {
    spw_hybrid_ep_maps_born(b);
    spw_layer_born(b, "dispatch", spw_experts_fused_x(experts, "x"));
    spw_layer_born(b, "dispatch",
                   (spw_tensor){"row_weight", experts.rows, SPW_WIDTH_ONE, .element_bytes = 4});
}

static void hybrid_ep_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const spw_experts_fused experts = {.rows = has_budget(scheme) ? SPW_ROWS_BUFFER : SPW_ROWS_HELD,
                                       .weighted = true};
    (void)s;
    dispatch(b, experts);
    spw_experts_fused_forward(b, experts);
    spw_layer_dies(b, "combine", "y");
    spw_hybrid_ep_maps_die(b, "combine");

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    dispatch(b, experts);
    spw_experts_fused_again(b, experts);
    spw_layer_dies(b, "combine", "y");

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_born(b, "combine gradient", spw_experts_fused_x(experts, "dy"));
    spw_experts_fused_gradient(b, experts);
    spw_layer_dies(b, "dispatch gradient", "dx");
    spw_layer_dies(b, "dispatch gradient", "d_row_weight");
    spw_hybrid_ep_maps_die(b, "dispatch gradient");
}

/* int(T K f), rounded up to the padding. */
static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return spw_hybrid_ep_rows(scheme, s->assignments);
}

static double worst_factor(const spw_scheme *scheme, const spw_layer_shape *s) {
    return spw_hybrid_ep_worst(scheme, s, s->assignments);
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    const spw_status status = spw_hybrid_ep_check(scheme, s);
    return status == SPW_OK ? spw_pad_check(scheme, s) : status;
}

const spw_scheme_type spw_scheme_hybrid_ep = {
    .name = "hybrid-ep",
    .trainer = SPW_TRAINER_PYTORCH,
    .about.summary =
        "HybridEP under Megatron-Core: rows come permuted to the experts, within a budget if one is set",
    .about.section = "event list of the scheme (4.8)",
    .about.source =
        "deepseek-ai/DeepEP branch hybrid-ep csrc/hybrid_ep; NVIDIA/Megatron-LM moe/token_dispatcher.py, "
        "fused_a2a.py",
    .options = options,
    .memory.layer = hybrid_ep_layer,
    .values.weighted_activation = true,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "P_pad(T K budget)",
    .routing.factor = "budget",
    .routing.worst_factor = worst_factor,
    .check = check,
    SPW_HYBRID_EP_ROW,
};
