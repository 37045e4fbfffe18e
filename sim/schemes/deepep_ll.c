/* DeepEP's low-latency kernels (docs/schemes.md, section 4.5): one message a choice into slots fixed in advance, n for every
 * source rank and expert. They are made for decoding; the backward pass is the transposed exchange in the same form, which
 * no known code does. */
#include "sim/schemes/deepep_buffers.h"
#include "sim/schemes/fused_expert_events.h"

#include <math.h>

static const char *const types[] = {"bf16", "fp8", NULL};

static const spw_scheme_option options[] = {
    {"dtype", 0.0, 0.0, 1.0, false,
     "what dispatches send: activations as they are, or fp8 with a scale for every 128", types},
    {"max_tokens", 0.0, 1e9, 0.0, false,
     "tokens of a rank that the buffers are made for; 0 = those of the job", NULL},
    {.name = NULL},
};

enum { X, SOURCE, FC1, ACT, Y, RETURNED, D_RETURNED, DY, D_ACT, D_FC1, DX, X_SCALES, DY_SCALES };

#define SHARED_TENSORS(bytes) \
    SPW_FUSED_TENSORS(, "", SPW_ROWS_BUFFER, bytes), \
        [SOURCE] = {"received_source", SPW_ROWS_BUFFER, SPW_WIDTH_ONE, .element_bytes = 4}, \
        [RETURNED] = {"returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}, \
        [D_RETURNED] = {"d_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}

static const spw_tensor whole[] = {SHARED_TENSORS(0)};
static const spw_tensor narrow[] = {
    SHARED_TENSORS(1),
    [X_SCALES] = {"x_scales", SPW_ROWS_BUFFER, SPW_WIDTH_SCALES, .element_bytes = 4},
    [DY_SCALES] = {"dy_scales", SPW_ROWS_BUFFER, SPW_WIDTH_SCALES, .element_bytes = 4},
};

#define EVENTS(SCALED) \
    { \
        SPW_BORN(FORWARD, "dispatch", X), SPW_BORN(FORWARD, "dispatch", SOURCE), \
            SCALED(SPW_BORN(FORWARD, "dispatch", X_SCALES)) SPW_BORN(FORWARD, "fc1", FC1), \
            SPW_DIES(FORWARD, "fc1", X), \
            SCALED(SPW_DIES(FORWARD, "fc1", X_SCALES)) SPW_BORN(FORWARD, "swiglu", ACT), \
            SPW_DIES(FORWARD, "swiglu", FC1), SPW_BORN(FORWARD, "fc2", Y), SPW_DIES(FORWARD, "fc2", ACT), \
            SPW_DIES(FORWARD, "combine", Y), SPW_DIES(FORWARD, "combine", SOURCE), \
\
            SPW_BORN(RECOMPUTE, "dispatch", X), SPW_BORN(RECOMPUTE, "dispatch", SOURCE), \
            SCALED(SPW_BORN(RECOMPUTE, "dispatch", X_SCALES)) SPW_FUSED_RECOMPUTE(, ""), \
            SPW_BORN(RECOMPUTE, "combine", RETURNED), SPW_DIES(RECOMPUTE, "combine", Y), \
\
            SPW_BORN(BACKWARD, "weighted dy", D_RETURNED), SPW_DIES(BACKWARD, "weighted dy", RETURNED), \
            SPW_BORN(BACKWARD, "combine gradient", DY), \
            SCALED(SPW_BORN(BACKWARD, "combine gradient", DY_SCALES)) \
                SPW_DIES(BACKWARD, "combine gradient", D_RETURNED), \
            SPW_FUSED_FC2_GRADIENT(, ""), \
            SCALED(SPW_DIES(BACKWARD, "fc2 gradient", DY_SCALES)) \
                SPW_BORN(BACKWARD, "swiglu gradient", D_FC1), \
            SPW_FUSED_SWIGLU_GRADIENT(, ""), SPW_FUSED_FC1_GRADIENT(, ""), \
            SCALED(SPW_DIES(BACKWARD, "fc1 gradient", X_SCALES)) \
                SPW_DIES(BACKWARD, "dispatch gradient", DX), \
            SPW_DIES(BACKWARD, "dispatch gradient", SOURCE), \
    }
#define WITH(event) event,
#define WITHOUT(event)

static const spw_event whole_events[] = EVENTS(WITHOUT), narrow_events[] = EVENTS(WITH);

static const spw_layer_list *layer_of(const spw_scheme *scheme, const spw_layer_shape *shape) {
    static const spw_layer_list lists[] = {
        {whole, whole_events, SPW_COUNT_OF(whole), SPW_COUNT_OF(whole_events)},
        {narrow, narrow_events, SPW_COUNT_OF(narrow), SPW_COUNT_OF(narrow_events)},
    };
    (void)shape;
    return &lists[spw_scheme_option_is(scheme, "dtype", "fp8")];
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

static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    (void)scheme;
    const uint32_t *n = c->routed + group * s->ranks * s->experts;
    for (size_t i = 0; i < s->ranks * s->ranks; i++) out->wire[i] = 0;
    for (size_t d = 0; d < s->ranks; d++) out->rows[d] = out->dropped[d] = 0;
    for (size_t i = 0; i < s->ranks * s->experts; i++) {
        const size_t d = i % s->experts / s->experts_per_rank;
        out->limit[i] = n[i];
        out->wire[i / s->experts * s->ranks + d] += n[i];
        out->rows[d] += n[i];
    }
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

const spw_scheme_type spw_scheme_deepep_ll = {
    .name = "deepep-ll",
    .summary = "DeepEP low latency: a message a choice, into slots for every source rank and expert",
    .section_source = "event list of the scheme (4.5)",
    .source = "deepseek-ai/DeepEP csrc/kernels/legacy/internode_ll.cu, csrc/legacy/{buffer,config}.hpp",
    .options = options,
    .list = {narrow, narrow_events, SPW_COUNT_OF(narrow), SPW_COUNT_OF(narrow_events)},
    .layer_of = layer_of,
    .buffer_rows = buffer_rows,
    .buffer_formula = "e R max_tokens",
    .exchanges = exchanges,
    .flow = flow,
    .communication_bytes = communication_bytes,
    .communication_source = "low-latency buffer hint (4.5)",
    .communication_formula = "2 sets of E max_tokens messages to send and to receive",
    .check = check,
};
