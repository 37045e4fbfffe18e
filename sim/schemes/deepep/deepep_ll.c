/* DeepEP's low-latency kernels (docs/schemes.md, section 4.5): one message a choice into slots fixed in advance, n for every
 * source rank and expert. They are made for decoding; the backward pass is the transposed exchange in the same form, which
 * no known code does. */
#include "sim/routing/counts.h"
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/library_limits.h"
#include "sim/schemes/list.h"
#include "sim/schemes/torch/experts_torch.h"

#include <math.h>

static const char *const types[] = {"bf16", "fp8", NULL};

static const spw_scheme_option options[] = {
    {"dtype", 0.0, 0.0, 1.0, false,
     "what dispatches send: activations as they are, or fp8 with a scale for every 128", types},
    {"max_tokens", 0.0, 1e9, 0.0, false,
     "tokens of a rank that the buffers are made for; 0 = those of the job", NULL},
    {.name = NULL},
};

static void dispatch(spw_layer_builder *b, spw_experts_fused experts) {
    spw_layer_born(b, "dispatch", spw_experts_fused_x(experts, "x"));
    spw_layer_born(b, "dispatch",
                   (spw_tensor){"received_source", SPW_ROWS_BUFFER, SPW_WIDTH_ONE, .element_bytes = 4});
    if (experts.fp8)
        spw_layer_born(b, "dispatch",
                       (spw_tensor){"x_scales", SPW_ROWS_BUFFER, SPW_WIDTH_SCALES, .element_bytes = 4});
}

static void deepep_ll_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const spw_experts_fused experts = {.rows = SPW_ROWS_BUFFER,
                                       .fp8 = spw_scheme_option_is(scheme, "dtype", "fp8")};
    (void)s;
    dispatch(b, experts);
    spw_experts_fused_forward(b, experts);
    spw_layer_dies(b, "combine", "y");
    spw_layer_dies(b, "combine", "received_source");

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    dispatch(b, experts);
    spw_experts_fused_again(b, experts);
    spw_layer_born(b, "combine", (spw_tensor){"returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "combine", "y");

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_born(b, "weighted dy", (spw_tensor){"d_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "weighted dy", "returned");
    spw_layer_born(b, "combine gradient", spw_experts_fused_x(experts, "dy"));
    if (experts.fp8)
        spw_layer_born(b, "combine gradient",
                       (spw_tensor){"dy_scales", SPW_ROWS_BUFFER, SPW_WIDTH_SCALES, .element_bytes = 4});
    spw_layer_dies(b, "combine gradient", "d_returned");
    spw_experts_fused_gradient(b, experts);
    spw_layer_dies(b, "dispatch gradient", "dx");
    spw_layer_dies(b, "dispatch gradient", "received_source");
}

static size_t most_tokens(const spw_scheme *scheme, const spw_layer_shape *s) {
    const double given = spw_scheme_option_value(scheme, "max_tokens");
    return given > 0.0 ? (size_t)given : s->tokens;
}

static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return s->experts * most_tokens(scheme, s);
}

/* A message is a row and 16 bytes of source; what comes back is a row alone, weighed where the token came from. */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const uint64_t row = s->hidden * s->element_bytes, fp8 = s->hidden + 4 * ((s->hidden + 127) / 128),
                   message = 16 + (spw_scheme_option_is(scheme, "dtype", "fp8") ? fp8 : row);
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, message},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, message},
        {"combine again", SPW_PHASE_RECOMPUTE, true, row},
        {"combine gradient", SPW_PHASE_BACKWARD, false, message},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

static void deepep_ll_flow(const spw_routed_group *routed, spw_flow *out) {
    spw_every_choice(routed, 1, out);
}

static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    return spw_deepep_low_latency_bytes(s, most_tokens(scheme, s));
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    const double given = spw_scheme_option_value(scheme, "max_tokens");
    if (given != floor(given))
        return spw_fail(SPW_ECONFIG, "scheme '%s': max_tokens=%g must be a whole number of tokens",
                        scheme->text, given);
    if (s->tokens > most_tokens(scheme, s)) {
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': a rank has %zu tokens, more than its buffers are made for; max_tokens=%zu "
            "or more, or fewer sequences a GPU, would be right",
            scheme->text, s->tokens, s->tokens);
    }
    return SPW_OK;
}

static int library(const spw_scheme *scheme) {
    (void)scheme;
    return SPW_LIBRARY_DEEPEP_LOW_LATENCY;
}

const spw_scheme_type spw_scheme_deepep_ll = {
    .name = "deepep-ll",
    .trainer = SPW_TRAINER_PYTORCH,
    .library = library,
    .about.summary = "DeepEP low latency: a message a choice, into slots for every source rank and expert",
    .about.section = "event list of the scheme (4.5)",
    .about.source = "deepseek-ai/DeepEP csrc/kernels/legacy/internode_ll.cu, csrc/legacy/{buffer,config}.hpp",
    .options = options,
    .memory.layer = deepep_ll_layer,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "e R max_tokens",
    .traffic.exchanges = exchanges,
    .routing.flow = deepep_ll_flow,
    .memory.communication_bytes = communication_bytes,
    .memory.communication_source = "low-latency buffer hint (4.5)",
    .memory.communication_formula = "2 sets of E max_tokens messages to send and to receive",
    .check = check,
};
