/* MegaBlocks dropless MoE with expert parallelism (docs/schemes.md, section 6.1). What a frame of Python still names is
 * held until that function returns. */
#include "sim/schemes/list.h"
#include "sim/schemes/torch/experts_torch.h"

static const char *const implementations[] = {"grouped", "sparse", "memory_optimized", NULL};

static const spw_scheme_option options[] = {
    {"impl", 0.0, 0.0, 0.0, false,
     "grouped GEMMs, block-sparse products with every expert padded to 128 rows, or grouped GEMMs that "
     "recompute the activation",
     implementations},
    {.name = NULL},
};

enum { BLOCK_ROWS = 128 };

static void to_experts(spw_layer_builder *b) {
    spw_layer_born(b, "gather", (spw_tensor){"sent", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "all-to-all", (spw_tensor){"received", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "local gather", (spw_tensor){"x", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_experts_autograd_gates(b, SPW_ROWS_HELD);
}

/* parallel_forward_once names the rows that it sent (`output`) and the experts' rows (`parallel_x`) to its end. */
static void from_experts(spw_layer_builder *b) {
    spw_layer_born(b, "local scatter", (spw_tensor){"y_received_order", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "local scatter", "y");
    spw_layer_dies(b, "local scatter", "received");
    spw_layer_born(b, "all-to-all back", (spw_tensor){"returned", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    spw_layer_passes(b, "scatter", (spw_tensor){"expanded", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "return", "sent");
    spw_layer_dies(b, "return", "y_received_order");
}

/* Neither the local scatter (without weights) nor an exchange saves anything; the last scatter saves what it scatters. */
static void gradient_to_experts(spw_layer_builder *b) {
    spw_layer_born(b, "scatter gradient", (spw_tensor){"d_returned", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "scatter gradient", "returned");
    spw_layer_born(b, "all-to-all back gradient",
                   (spw_tensor){"dy_received", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "all-to-all back gradient", "d_returned");
    spw_layer_born(b, "local scatter gradient", (spw_tensor){"dy", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "local scatter gradient", "dy_received");
}

/* One node that keeps x, w0_out, w1_out; d_act takes the place of act, dx that of dy. */
static void memory_optimized_gradient(spw_layer_builder *b) {
    static const char *const used[] = {"act", "d_w0_out", "d_w1_out", "w0_out", "w1_out", "x"};
    spw_layer_born(b, "activation again", (spw_tensor){"silu", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_born(b, "activation again", (spw_tensor){"act", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_born(b, "product gradient", (spw_tensor){"d_silu", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_born(b, "product gradient", (spw_tensor){"d_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_dies(b, "product gradient", "silu");
    spw_layer_born(b, "silu gradient", (spw_tensor){"d_w0_out", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_dies(b, "silu gradient", "d_silu");
    spw_layer_passes(b, "input gradients", (spw_tensor){"dx_w1", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    for (size_t i = 0; i < SPW_COUNT_OF(used); i++) spw_layer_dies(b, "input gradients", used[i]);
}

static void gradient_from_experts(spw_layer_builder *b, const char *dx) {
    spw_layer_born(b, "local gather gradient",
                   (spw_tensor){"dx_received_order", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "local gather gradient", dx);
    spw_layer_born(b, "all-to-all gradient", (spw_tensor){"dx_returned", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "all-to-all gradient", "dx_received_order");
    spw_layer_passes(b, "gather gradient",
                     (spw_tensor){"dx_expanded", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "gather gradient", "dx_returned");
}

/* GroupedGLU, SparseGLU: the products are separate nodes of autograd, and x1 is named anew. MemoryOptimizedGroupedGLU: one
 * node. */
static void megablocks_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const bool optimized = spw_scheme_option_is(scheme, "impl", "memory_optimized");
    static const spw_tensor y = {"y", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN};
    to_experts(b);
    spw_layer_dies(b, "product", "silu");
    if (!optimized) spw_layer_dies(b, "product", "w0_out");
    spw_layer_born(b, "gemm wo", y);
    if (optimized) spw_layer_dies(b, "gemm wo", "w0_out");
    spw_layer_dies(b, "gemm wo", optimized ? "w1_out" : "act");
    spw_layer_dies(b, "gemm wo", optimized ? "act" : "w1_out");
    spw_layer_dies(b, "gemm wo", "x");
    from_experts(b);
    spw_layer_dies(b, "return", "returned");

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    to_experts(b);
    if (optimized) spw_layer_dies(b, "product", "silu");
    spw_layer_born(b, "gemm wo", y);
    if (optimized) spw_layer_dies(b, "gemm wo", "act");
    from_experts(b);

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    gradient_to_experts(b);
    if (optimized) {
        memory_optimized_gradient(b);
    } else {
        spw_experts_autograd_gradient(b, s, SPW_ROWS_HELD, SPW_AUTOGRAD_SILU_LAST);
    }
    gradient_from_experts(b, optimized ? "dy" : "dx_w1");
}

/* Every choice travels; the block-sparse products pad what an expert received from all ranks. */
static void megablocks_flow(const spw_routed_group *routed, spw_flow *out) {
    const size_t block = spw_scheme_option_is(routed->scheme, "impl", "sparse") ? BLOCK_ROWS : 1;
    spw_every_choice(routed, block, out);
}

/* Every expert is padded as the mean is. */
static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t even = (s->ranks * s->assignments + s->experts - 1) / s->experts;
    if (spw_scheme_option_is(scheme, "impl", "sparse"))
        rows->held = (even + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS * s->experts_per_rank;
}

const spw_scheme_type spw_scheme_megablocks = {
    .name = "megablocks",
    .trainer = SPW_TRAINER_PYTORCH,
    .about.summary = "MegaBlocks dropless MoE: every choice travels by itself, memory follows what arrives",
    .about.section = "event list of the scheme (6.1)",
    .about.source = "databricks/megablocks megablocks/layers/{moe,dmoe,glu}.py, megablocks/ops",
    .options = options,
    .memory.layer = megablocks_layer,
    .traffic.exchanges = spw_row_exchanges,
    .routing.flow = megablocks_flow,
    .routing.balance = balance,
    .check = spw_check_remat,
};
