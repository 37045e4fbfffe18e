/* ScatterMoE on one rank (docs/schemes.md, section 6.3): the kernels gather and scatter themselves, so no row is copied
 * for the first product; the gradients reuse the forward pass's buffers. */
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/layer_builder.h"
#include "sim/schemes/list.h"

static const char *const activations[] = {"eager", "compiled", NULL};

static const spw_scheme_option options[] = {
    {"activation", 0.0, 0.0, 0.0, false,
     "the gated activation as autograd sees it in eager mode, or compiled into one kernel that saves its "
     "input "
     "only",
     activations},
    {.name = NULL},
};

/* GLUMLP.forward names its gates and its activation to the end. */
static void to_output(spw_layer_builder *b, bool eager) {
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_born(b, "input", (spw_tensor){"input", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "up projection", (spw_tensor){"w0_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2});
    if (eager) spw_layer_born(b, "activation", (spw_tensor){"silu", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_born(b, "activation", (spw_tensor){"act", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    if (eager && forward) spw_layer_dies(b, "activation", "silu");
    spw_layer_born(b, "down projection", (spw_tensor){"y_expanded", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
}

static void eager_activation_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "product gradient", (spw_tensor){"d_silu", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_born(b, "product gradient", (spw_tensor){"d_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_dies(b, "product gradient", "silu");
    spw_layer_dies(b, "product gradient", "d_act");
    spw_layer_born(b, "silu gradient", (spw_tensor){"d_w0_out", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_dies(b, "silu gradient", "w0_w1_out");
    spw_layer_dies(b, "silu gradient", "d_silu");
    spw_layer_born(b, "chunk gradient",
                   (spw_tensor){"d_w0_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2});
    spw_layer_dies(b, "chunk gradient", "d_w0_out");
    spw_layer_dies(b, "chunk gradient", "d_w1_out");
}

static void compiled_activation_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "activation gradient",
                   (spw_tensor){"d_w0_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2});
    spw_layer_dies(b, "activation gradient", "w0_w1_out");
    spw_layer_dies(b, "activation gradient", "d_act");
}

static void scattermoe_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const bool eager = spw_scheme_option_is(scheme, "activation", "eager");
    (void)s;
    to_output(b, eager);
    spw_layer_dies(b, "down projection", "y_expanded");
    spw_layer_dies(b, "return", "w0_w1_out");
    spw_layer_dies(b, "return", "act");
    spw_layer_dies(b, "return", "input");

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    to_output(b, eager);

    /* dy of every row is written over y_expanded; dx of every row over grouped_x. */
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_born(b, "down projection gradient", (spw_tensor){"d_act", SPW_ROWS_HELD, SPW_WIDTH_FFN});
    spw_layer_dies(b, "down projection gradient", "act");
    spw_layer_dies(b, "down projection gradient", "y_expanded");
    if (eager) {
        eager_activation_gradient(b);
    } else {
        compiled_activation_gradient(b);
    }
    spw_layer_passes(b, "up projection gradient", (spw_tensor){"grouped_x", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "up projection gradient", "d_w0_w1_out");
    spw_layer_dies(b, "up projection gradient", "input");
}

static void scattermoe_flow(const spw_routed_group *routed, spw_flow *out) {
    out->rows[0] = routed->counts->assignments[routed->number];
    spw_flow_one_line(out, 1, out->rows[0]);
    out->dropped[0] = 0;
}

const spw_scheme_type spw_scheme_scattermoe = {
    .name = "scattermoe",
    .trainer = SPW_TRAINER_PYTORCH,
    .about.summary = "ScatterMoE on one rank: products that gather and scatter themselves",
    .about.section = "event list of the scheme (6.3)",
    .about.source = "shawntan/scattermoe scattermoe/{parallel_experts,mlp}.py",
    .options = options,
    .memory.layer = scattermoe_layer,
    .traffic.exchanges = spw_no_exchanges,
    .routing.flow = scattermoe_flow,
    .routing.lines = spw_one_line,
    .check = spw_check_one_rank,
};
