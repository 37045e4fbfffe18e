/* DeepEP with exact receive counts and the PyTorch layer around it (docs/schemes.md, sections 4.1 to 4.4): received rows are
 * permuted to the experts, computed by grouped products and summed with their weights before they return. Every tensor has
 * the rows that arrive. */
#include "sim/schemes/deepep_buffers.h"
#include "sim/schemes/deepep_jax.h"
#include "sim/schemes/fused_expert_events.h"
#include "sim/schemes/padded_rows.h"

static const char *const types[] = {"bf16", "fp8", NULL};

static const spw_scheme_option options[] = {
    {"dtype", 0.0, 0.0, 0.0, false,
     "what dispatches send: activations as they are, or fp8 with a scale for every 128", types},
    SPW_PAD_OPTION_ROW,
    {.name = NULL},
};

enum {
    IN_RANK,
    RECEIVED,
    SOURCE,
    SEND_HEAD,
    INDEX,
    WEIGHT,
    SLOT,
    ROW_WEIGHT,
    X,
    FC1,
    ACT,
    Y,
    SUMMED,
    D_SUMMED,
    DY,
    D_ROW_WEIGHT,
    D_ACT,
    D_FC1,
    DX,
    D_RECEIVED,
    D_WEIGHT,
    SCALES,
    X_SCALES,
    D_SCALES,
    DY_SCALES
};

#define SHARED_TENSORS(bytes) \
    SPW_FUSED_TENSORS(, "", SPW_ROWS_HELD, bytes), \
        [IN_RANK] = {"is_token_in_rank", SPW_ROWS_TOKENS, SPW_WIDTH_RANKS, .element_bytes = 1}, \
        [RECEIVED] = {"received", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, .element_bytes = (bytes)}, \
        [SOURCE] = {"received_source", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, .element_bytes = 4}, \
        [SEND_HEAD] = {"send_head", SPW_ROWS_TOKENS, SPW_WIDTH_RANKS, .element_bytes = 4}, \
        [INDEX] = {"received_index", SPW_ROWS_RECEIVED, SPW_WIDTH_TOP_K, .element_bytes = 8}, \
        [WEIGHT] = {"received_weight", SPW_ROWS_RECEIVED, SPW_WIDTH_TOP_K, .element_bytes = 4}, \
        [SLOT] = {"row_slot", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 8}, \
        [ROW_WEIGHT] = {"row_weight", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 4}, \
        [SUMMED] = {"summed", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN}, \
        [D_SUMMED] = {"d_summed", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, .element_bytes = (bytes)}, \
        [D_ROW_WEIGHT] = {"d_row_weight", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 4}, \
        [D_RECEIVED] = {"d_received", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN}, \
        [D_WEIGHT] = {"d_received_weight", SPW_ROWS_RECEIVED, SPW_WIDTH_TOP_K, .element_bytes = 4}

static const spw_tensor whole[] = {SHARED_TENSORS(0)};
static const spw_tensor narrow[] = {
    SHARED_TENSORS(1),
    [SCALES] = {"received_scales", SPW_ROWS_RECEIVED, SPW_WIDTH_SCALES, .element_bytes = 4},
    [X_SCALES] = {"x_scales", SPW_ROWS_HELD, SPW_WIDTH_SCALES, .element_bytes = 4},
    [D_SCALES] = {"d_summed_scales", SPW_ROWS_RECEIVED, SPW_WIDTH_SCALES, .element_bytes = 4},
    [DY_SCALES] = {"dy_scales", SPW_ROWS_HELD, SPW_WIDTH_SCALES, .element_bytes = 4},
};

/* fp8 rows have their scales beside them: SCALED(event list of the scales) or nothing. */
#define DISPATCH(phase, SCALED) \
    SPW_BORN(phase, "layout", IN_RANK), SPW_BORN(phase, "dispatch", RECEIVED), \
        SPW_BORN(phase, "dispatch", SOURCE), SPW_BORN(phase, "dispatch", SEND_HEAD), \
        SPW_BORN(phase, "dispatch", INDEX), SPW_BORN(phase, "dispatch", WEIGHT), \
        SCALED(SPW_BORN(phase, "dispatch", SCALES)) SPW_BORN(phase, "permute", SLOT), \
        SPW_BORN(phase, "permute", ROW_WEIGHT), SPW_BORN(phase, "permute", X), \
        SCALED(SPW_BORN(phase, "permute", X_SCALES)) SPW_DIES(phase, "permute", RECEIVED), \
        SCALED(SPW_DIES(phase, "permute", SCALES))

/* Python holds indices and weights to the combine; autograd keeps the layout, the rows' slots and their weights. */
#define EVENTS(SCALED) \
    { \
        DISPATCH(FORWARD, SCALED) \
        SPW_BORN(FORWARD, "fc1", FC1), SPW_DIES(FORWARD, "fc1", X), \
            SCALED(SPW_DIES(FORWARD, "fc1", X_SCALES)) SPW_BORN(FORWARD, "swiglu", ACT), \
            SPW_DIES(FORWARD, "swiglu", FC1), SPW_BORN(FORWARD, "fc2", Y), SPW_DIES(FORWARD, "fc2", ACT), \
            SPW_BORN(FORWARD, "unpermute", SUMMED), SPW_DIES(FORWARD, "unpermute", Y), \
            SPW_DIES(FORWARD, "unpermute", SLOT), SPW_DIES(FORWARD, "unpermute", ROW_WEIGHT), \
            SPW_DIES(FORWARD, "combine", SUMMED), SPW_DIES(FORWARD, "combine", INDEX), \
            SPW_DIES(FORWARD, "combine", WEIGHT), SPW_DIES(FORWARD, "combine", SOURCE), \
            SPW_DIES(FORWARD, "combine", SEND_HEAD), SPW_DIES(FORWARD, "combine", IN_RANK), \
\
            DISPATCH(RECOMPUTE, SCALED) SPW_FUSED_RECOMPUTE(, ""), SPW_BORN(RECOMPUTE, "unpermute", SUMMED), \
            SPW_DIES(RECOMPUTE, "combine", SUMMED), SPW_DIES(RECOMPUTE, "combine", INDEX), \
            SPW_DIES(RECOMPUTE, "combine", WEIGHT), \
\
            SPW_BORN(BACKWARD, "combine gradient", D_SUMMED), \
            SCALED(SPW_BORN(BACKWARD, "combine gradient", D_SCALES)) \
                SPW_BORN(BACKWARD, "unpermute gradient", DY), \
            SCALED(SPW_BORN(BACKWARD, "unpermute gradient", DY_SCALES)) \
                SPW_BORN(BACKWARD, "unpermute gradient", D_ROW_WEIGHT), \
            SPW_DIES(BACKWARD, "unpermute gradient", D_SUMMED), \
            SCALED(SPW_DIES(BACKWARD, "unpermute gradient", D_SCALES)) \
                SPW_DIES(BACKWARD, "unpermute gradient", Y), \
            SPW_DIES(BACKWARD, "unpermute gradient", ROW_WEIGHT), SPW_FUSED_FC2_GRADIENT(, ""), \
            SCALED(SPW_DIES(BACKWARD, "fc2 gradient", DY_SCALES)) \
                SPW_BORN(BACKWARD, "swiglu gradient", D_FC1), \
            SPW_FUSED_SWIGLU_GRADIENT(, ""), SPW_FUSED_FC1_GRADIENT(, ""), \
            SCALED(SPW_DIES(BACKWARD, "fc1 gradient", X_SCALES)) \
                SPW_BORN(BACKWARD, "permute gradient", D_RECEIVED), \
            SPW_BORN(BACKWARD, "permute gradient", D_WEIGHT), SPW_DIES(BACKWARD, "permute gradient", DX), \
            SPW_DIES(BACKWARD, "permute gradient", D_ROW_WEIGHT), \
            SPW_DIES(BACKWARD, "permute gradient", SLOT), \
            SPW_DIES(BACKWARD, "dispatch gradient", D_RECEIVED), \
            SPW_DIES(BACKWARD, "dispatch gradient", D_WEIGHT), \
            SPW_DIES(BACKWARD, "dispatch gradient", SOURCE), \
            SPW_DIES(BACKWARD, "dispatch gradient", SEND_HEAD), \
            SPW_DIES(BACKWARD, "dispatch gradient", IN_RANK), \
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

/* Recomputation repeats the combine: a checkpoint runs the whole layer again. */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const bool fp8 = spw_scheme_option_is(scheme, "dtype", "fp8");
    const uint64_t dispatch = spw_deepep_row_bytes(s, (spw_deepep_row){fp8, 8, true}),
                   row = spw_deepep_row_bytes(s, (spw_deepep_row){false, 0, false});
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, dispatch},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, dispatch},
        {"combine again", SPW_PHASE_RECOMPUTE, true, row},
        {"combine gradient", SPW_PHASE_BACKWARD, false,
         spw_deepep_row_bytes(s, (spw_deepep_row){fp8, 0, false})},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true,
         spw_deepep_row_bytes(s, (spw_deepep_row){false, 0, true})},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    spw_deepep_flow(scheme, s, c, group, out);
    spw_pad_rows(scheme, s, c, group, out->rows);
}

/* Buffer.num_sms is 20 unless set. */
static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    const spw_deepep_buffers b = spw_deepep_buffer_hint(s->ranks, s->hidden, s->element_bytes, 20);
    return b.nvl_bytes + b.rdma_bytes;
}

const spw_scheme_type spw_scheme_deepep = {
    .name = "deepep",
    .summary = "DeepEP in PyTorch: a token is sent once a rank, tensors have the rows that arrive",
    .section_source = "event list of the scheme (4.4)",
    .source = "deepseek-ai/DeepEP csrc/legacy, deep_ep/buffers/legacy.py; NVIDIA/Megatron-LM core_v0.11.0 "
              "moe/token_dispatcher.py",
    .options = options,
    .list = {whole, whole_events, SPW_COUNT_OF(whole), SPW_COUNT_OF(whole_events)},
    .layer_of = layer_of,
    .by_node = true,
    .once_a_rank = true,
    .exchanges = exchanges,
    .flow = flow,
    .balance = spw_pad_balance,
    .communication_bytes = communication_bytes,
    .check = spw_pad_check,
};
