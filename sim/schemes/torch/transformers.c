/* Hugging Face transformers' experts by grouped products on one rank (docs/schemes.md, section 6.8): a row a choice, copied, and
 * copied again wherever rows of other ranks would be masked. A whole model of it is counted tensor by tensor
 * (sim/memory/kept/transformers_job.h); this is the layer that the routing is held against. */
#include "sim/schemes/layer_builder.h"
#include "sim/schemes/list.h"

static const char *const logits[] = {"freed", "kept", NULL};

static const spw_scheme_option options[] = {
    {"logits", 0.0, 0.0, 0.0, false,
     "is what the model returned, its logits, still named while the loss runs backward? Trainer gives it up, "
     "a loop "
     "of one's own often keeps it",
     logits},
    {.name = NULL},
};

static spw_tensor rows(const char *name) { return (spw_tensor){name, SPW_ROWS_HELD, SPW_WIDTH_HIDDEN}; }
static spw_tensor inner(const char *name) { return (spw_tensor){name, SPW_ROWS_HELD, SPW_WIDTH_FFN}; }
static spw_tensor both(const char *name) {
    return (spw_tensor){name, SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2};
}

static void turn(spw_layer_builder *b, const char *step, spw_tensor made, const char *gone) {
    spw_layer_born(b, step, made);
    spw_layer_dies(b, step, gone);
}

static void to_output(spw_layer_builder *b) {
    static const char *const kept[] = {"x", "w0_w1_out", "act", "y"};
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_born(b, "gather", rows("x"));
    spw_layer_born(b, "gate and up", both("w0_w1_raw"));
    turn(b, "mask", both("w0_w1_out"), "w0_w1_raw");
    spw_layer_born(b, "activation", inner("silu"));
    spw_layer_born(b, "activation", inner("act"));
    if (forward) spw_layer_dies(b, "activation", "silu");
    spw_layer_born(b, "down", rows("y_raw"));
    turn(b, "mask of down", rows("y"), "y_raw");
    spw_layer_born(b, "weigh", rows("weighted"));
    turn(b, "order", rows("ordered"), "weighted");
    spw_layer_dies(b, "return", "ordered");
    for (size_t i = 0; i < SPW_COUNT_OF(kept) && forward; i++) spw_layer_dies(b, "return", kept[i]);
}

static void gradient(spw_layer_builder *b) {
    spw_layer_born(b, "sum gradient", rows("d_each"));
    turn(b, "order gradient", rows("d_weighted"), "d_each");
    spw_layer_born(b, "weigh gradient", rows("score_products"));
    turn(b, "weigh gradient", rows("d_y"), "score_products");
    spw_layer_dies(b, "weigh gradient", "d_weighted");
    spw_layer_dies(b, "weigh gradient", "y");
    turn(b, "mask of down gradient", rows("d_y_raw"), "d_y");
    turn(b, "down gradient", inner("d_act"), "d_y_raw");
    spw_layer_dies(b, "down gradient", "act");
    spw_layer_born(b, "product gradient", inner("d_w1_out"));
    turn(b, "product gradient", inner("d_silu"), "d_act");
    spw_layer_dies(b, "product gradient", "silu");
    turn(b, "silu gradient", inner("d_w0_out"), "d_silu");
    spw_layer_dies(b, "silu gradient", "w0_w1_out");
    turn(b, "chunk gradient", both("d_w0_w1_out"), "d_w0_out");
    spw_layer_dies(b, "chunk gradient", "d_w1_out");
    turn(b, "mask gradient", both("d_w0_w1_raw"), "d_w0_w1_out");
    turn(b, "gate and up gradient", rows("dx_raw"), "d_w0_w1_raw");
    spw_layer_dies(b, "gate and up gradient", "x");
    turn(b, "mask of gather gradient", rows("dx_rows"), "dx_raw");
    turn(b, "gather gradient", (spw_tensor){"dx", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN}, "dx_rows");
    spw_layer_dies(b, "layer end", "dx");
}

static void transformers_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme;
    (void)s;
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        to_output(b);
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    gradient(b);
}

static void transformers_flow(const spw_routed_group *routed, spw_flow *out) {
    spw_every_choice(routed, 1, out);
}

const spw_scheme_type spw_scheme_transformers = {
    .name = "transformers",
    .trainer = SPW_TRAINER_TRANSFORMERS,
    .about.summary = "Hugging Face transformers, each GPU with all experts: grouped products, copies of rows",
    .about.section = "event list of the scheme (6.8)",
    .about.source = "huggingface/transformers 5.17.0 integrations/moe.py grouped_mm_experts_forward",
    .options = options,
    .memory.layer = transformers_layer,
    .memory.whole_steps = true,
    .traffic.exchanges = spw_no_exchanges,
    .routing.flow = transformers_flow,
    .check = spw_check_one_rank,
};
