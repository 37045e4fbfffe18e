#include "sim/schemes/megatron/megatron_layer.h"

#include "sim/job/recipe/offload_modules.h"
#include "sim/job/recipe/remat_modules.h"

static bool is_torch(const spw_layer_builder *b) { return spw_layer_flavour(b) == SPW_FLAVOUR_TORCH; }

/* The input of a product waits for the gradient of its weights, or of its adapter's A. */
static bool drops_inputs(const spw_layer_shape *s) { return s->frozen_experts && s->lora_rank == 0; }

static bool repeats_activation(spw_megatron_experts x) {
    return spw_remat_repeats(x.shape->remat, SPW_MODULE_MOE_ACT);
}

/* What the adapter beside a product makes: A x, which the gradient of B needs, and its output, which is added to that. */
static void adapt(spw_layer_builder *b, const char *step, const char *name, spw_tensor output,
                  spw_megatron_experts x) {
    if (x.shape->lora_rank == 0) return;
    spw_layer_born(b, step, (spw_tensor){name, x.rows, SPW_WIDTH_LORA});
    spw_layer_passes(b, step, output);
    if (spw_layer_phase(b) == SPW_PHASE_FORWARD) spw_layer_dies(b, step, name);
}

static void adapt_gradient(spw_layer_builder *b, const char *step, const char *name, const char *gradient,
                           spw_tensor input, spw_megatron_experts x) {
    if (x.shape->lora_rank == 0) return;
    spw_layer_born(b, step, (spw_tensor){gradient, x.rows, SPW_WIDTH_LORA});
    spw_layer_dies(b, step, name);
    spw_layer_passes(b, step, input);
    spw_layer_dies(b, step, gradient);
}

void spw_megatron_layer_take(spw_layer_builder *b, const char *step, spw_rows rows) {
    spw_layer_born(b, step, (spw_tensor){"fc1_input", rows, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, step, (spw_tensor){"row_probs", rows, SPW_WIDTH_ONE, .element_bytes = 4});
}

/* An input that waits on the host waits in bf16 (Megatron-Core's set_save_original_input of fc1). */
static bool is_copy_kept(const spw_layer_shape *s) {
    return s->fp8_copies > 0 && (s->offload & SPW_OFFLOAD_EXPERT_FC1) == 0;
}

void spw_megatron_layer_taken(spw_layer_builder *b, const char *step, const spw_layer_shape *s) {
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    if (forward || is_copy_kept(s) || drops_inputs(s)) spw_layer_dies(b, step, "fc1_input");
    if (forward) spw_layer_dies(b, step, "row_probs");
}

/* --- fp8 or fp4 copies of an operand: without a recipe there are none --- */

/* `times` of what the first product makes: gate and up, or one of them where experts have two matrices. */
enum { FIRST = UINT8_MAX };
static uint8_t times_of(uint8_t times, const spw_layer_shape *s) {
    return times == FIRST ? (uint8_t)spw_layer_first(s) : times;
}

typedef struct operand {
    const char *by_row[2], *by_column[2]; /* of fp8, of fp4 */
    spw_width width;
    uint8_t times;
} operand;
#define COPIES(name) \
    {name "_fp8", name "_fp4"}, { name "_fp8_t", name "_fp4_t" }
static const operand fc1_input = {COPIES("fc1_input"), SPW_WIDTH_HIDDEN, 1},
                     fc2_input = {COPIES("fc2_input"), SPW_WIDTH_FFN, 1},
                     d_fc2_output = {COPIES("d_fc2_output"), SPW_WIDTH_HIDDEN, 1},
                     d_fc1_output = {COPIES("d_fc1_output"), SPW_WIDTH_FFN, FIRST};
#undef COPIES

static const char *by_row(const operand *o, spw_megatron_experts x) {
    return o->by_row[x.shape->fp4_group > 0 ? 1 : 0];
}
static const char *by_column(const operand *o, spw_megatron_experts x) {
    return o->by_column[x.shape->fp4_group > 0 ? 1 : 0];
}

static bool splits(spw_megatron_experts x) { return x.shape->fp8_copies > 1; }

static spw_tensor copy_of(const operand *o, const char *name, spw_megatron_experts x) {
    const spw_width scaled = o->width == SPW_WIDTH_HIDDEN ? SPW_WIDTH_HIDDEN_SCALED : SPW_WIDTH_FFN_SCALED;
    return (spw_tensor){name, x.rows, x.shape->fp8_scaled ? scaled : o->width,
                        .times = times_of(o->times, x.shape), .element_bytes = 1};
}

/* The forward pass, which autograd does not watch, needs the copy by row alone. */
static void cast(spw_layer_builder *b, const char *step, const operand *o, spw_megatron_experts x) {
    if (x.shape->fp8_copies == 0) return;
    spw_layer_born(b, step, copy_of(o, by_row(o, x), x));
    if (splits(x) && spw_layer_phase(b) != SPW_PHASE_FORWARD)
        spw_layer_born(b, step, copy_of(o, by_column(o, x), x));
}

/* After a product of the forward passes: what the backward pass needs stays. */
static void multiplied(spw_layer_builder *b, const char *step, const operand *o, spw_megatron_experts x) {
    if (x.shape->fp8_copies > 0 && (splits(x) || spw_layer_phase(b) == SPW_PHASE_FORWARD))
        spw_layer_dies(b, step, by_row(o, x));
}

/* An input that is kept in bf16, or computed again, is cast again (Megatron-Core's set_save_original_input): forward by row
 * alone, backward by column, and with one scale a tensor both ways (TransformerEngine's grouped_linear.py). */
static bool casts_again(const operand *o, spw_megatron_experts x) {
    return x.shape->fp8_copies > 0 && (o == &fc2_input ? repeats_activation(x) : !is_copy_kept(x.shape));
}
static bool by_row_again(spw_megatron_experts x) { return !splits(x) || !x.shape->fp8_scaled; }

/* Of an input in the forward passes. */
static void cast_input(spw_layer_builder *b, const char *step, const operand *o, spw_megatron_experts x) {
    if (casts_again(o, x)) {
        spw_layer_born(b, step, copy_of(o, by_row(o, x), x));
    } else {
        cast(b, step, o, x);
    }
}

static void end_input(spw_layer_builder *b, const char *step, const operand *o, spw_megatron_experts x) {
    if (casts_again(o, x)) {
        spw_layer_dies(b, step, by_row(o, x));
    } else {
        multiplied(b, step, o, x);
    }
}

static void cast_again(spw_layer_builder *b, const char *step, const operand *o, spw_megatron_experts x) {
    if (!casts_again(o, x)) return;
    if (by_row_again(x)) spw_layer_born(b, step, copy_of(o, by_row(o, x), x));
    if (splits(x)) spw_layer_born(b, step, copy_of(o, by_column(o, x), x));
}

static void end_cast_again(spw_layer_builder *b, const char *step, const operand *o, const char *original,
                           spw_megatron_experts x) {
    if (!casts_again(o, x)) return;
    if (splits(x) && by_row_again(x)) spw_layer_dies(b, step, by_row(o, x));
    spw_layer_dies(b, step, original);
}

/* What is left of the input and of the output's gradient, which live as bf16 where there is no recipe. */
static void end_products(spw_layer_builder *b, const char *step, const operand *input,
                         const operand *gradient, const char *input_bf16, spw_megatron_experts x) {
    if (x.shape->fp8_copies == 0) {
        if (!drops_inputs(x.shape)) spw_layer_dies(b, step, input_bf16);
        return;
    }
    spw_layer_dies(b, step, splits(x) ? by_column(input, x) : by_row(input, x));
    spw_layer_dies(b, step, by_row(gradient, x));
    if (splits(x)) spw_layer_dies(b, step, by_column(gradient, x));
}

/* In bf16, before it is added to main_grad: of all experts, or of one. */
static spw_tensor weight_gradient(const char *name, const spw_layer_shape *s, bool of_one, uint8_t times) {
    return (spw_tensor){
        name,
        SPW_ROWS_GIVEN,
        .times = times,
        .dim = {{"e", of_one ? 1 : s->experts_per_rank}, {"F", s->ffn}, {"H", s->hidden}},
    };
}

/* Bare layers, and jobs whose products do not add to main_grad themselves (gradient_accumulation_fusion: false). */
static bool lists_weights(const spw_layer_builder *b, const spw_layer_shape *s) {
    return is_torch(b) || s->weight_gradients != SPW_WEIGHT_GRADIENTS_UNLISTED;
}

/* --- Offloading: the inputs of fc1 and of the activation wait in the host's memory --- */

static const struct offloaded {
    unsigned module;
    const char *name, *other; /* the same of the layer whose backward pass comes next */
    spw_width width;
    uint8_t times, element_bytes;
    bool released; /* by name, else when the layer ends and nobody holds it any more */
} offloaded[] = {
    {SPW_OFFLOAD_EXPERT_FC1, "fc1_input", "reloaded_fc1_input", SPW_WIDTH_HIDDEN, 1, 0, true},
    {SPW_OFFLOAD_MOE_ACT, "fc1_output", "reloaded_fc1_output", SPW_WIDTH_FFN, FIRST, 0, true},
    {SPW_OFFLOAD_MOE_ACT, "row_probs", "reloaded_row_probs", SPW_WIDTH_ONE, 1, 4, false},
};

static uint64_t least_bytes(const struct offloaded *o, const spw_layer_shape *s) {
    return SPW_OFFLOAD_LEAST_ELEMENTS * (o->element_bytes > 0 ? o->element_bytes : s->element_bytes);
}

static void come_back(spw_layer_builder *b, const char *step, spw_megatron_experts x, unsigned modules,
                      bool others) {
    for (size_t i = 0; i < SPW_COUNT_OF(offloaded); i++) {
        const struct offloaded *o = &offloaded[i];
        if ((x.shape->offload & modules & o->module) == 0) continue;
        spw_layer_returns(b, step,
                          (spw_tensor){others ? o->other : o->name, x.rows, o->width,
                                       .times = times_of(o->times, x.shape),
                                       .element_bytes = o->element_bytes},
                          least_bytes(o, x.shape));
    }
}

static void leave(spw_layer_builder *b, const char *step, spw_megatron_experts x, unsigned modules,
                  bool others, bool released) {
    for (size_t i = 0; i < SPW_COUNT_OF(offloaded); i++) {
        const struct offloaded *o = &offloaded[i];
        if ((x.shape->offload & modules & o->module) == 0 || (!others && o->released != released)) continue;
        spw_layer_leaves(b, step, others ? o->other : o->name, least_bytes(o, x.shape), !others);
    }
}

/* After a product of the pass that keeps. The layer that stays on the GPU stays to the end of the pass. */
static void offload(spw_layer_builder *b, const char *step, spw_megatron_experts x, unsigned module) {
    if (spw_layer_phase(b) == SPW_PHASE_RECOMPUTE && x.shape->offload_ahead)
        leave(b, step, x, module, false, true);
}

void spw_megatron_layer_begins(spw_layer_builder *b, spw_megatron_experts x) {
    if (spw_layer_phase(b) == SPW_PHASE_BACKWARD) come_back(b, "reload", x, SPW_OFFLOAD_EXPERTS, false);
    if (spw_layer_phase(b) == SPW_PHASE_RECOMPUTE && x.shape->offload_ahead)
        come_back(b, "reload", x, SPW_OFFLOAD_EXPERTS, true);
}

void spw_megatron_layer_ends(spw_layer_builder *b, spw_megatron_experts x) {
    const spw_phase phase = spw_layer_phase(b);
    if (phase == SPW_PHASE_FORWARD) return;
    if (phase == SPW_PHASE_RECOMPUTE && !x.shape->offload_ahead)
        leave(b, "layer end", x, SPW_OFFLOAD_EXPERTS, false, true);
    if (phase == SPW_PHASE_RECOMPUTE) leave(b, "layer end", x, SPW_OFFLOAD_EXPERTS, false, false);
    if (phase == SPW_PHASE_BACKWARD || x.shape->offload_ahead)
        leave(b, "layer end", x, SPW_OFFLOAD_EXPERTS, true, true);
}

static void grouped(spw_layer_builder *b, spw_megatron_experts x) {
    const uint8_t first = (uint8_t)spw_layer_first(x.shape);
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    cast_input(b, "fc1", &fc1_input, x);
    spw_layer_born(b, "fc1", (spw_tensor){"fc1_output", x.rows, SPW_WIDTH_FFN, .times = first});
    end_input(b, "fc1", &fc1_input, x);
    adapt(b, "fc1", "fc1_lora", (spw_tensor){"fc1_lora_output", x.rows, SPW_WIDTH_FFN, .times = first}, x);
    offload(b, "fc1", x, SPW_OFFLOAD_EXPERT_FC1);
    spw_layer_born(b, "swiglu", (spw_tensor){"fc2_input", x.rows, SPW_WIDTH_FFN});
    cast_input(b, "fc2", &fc2_input, x);
    spw_layer_born(b, "fc2", (spw_tensor){"fc2_output", x.rows, SPW_WIDTH_HIDDEN});
    end_input(b, "fc2", &fc2_input, x);
    adapt(b, "fc2", "fc2_lora", (spw_tensor){"fc2_lora_output", x.rows, SPW_WIDTH_HIDDEN}, x);
    if (forward || drops_inputs(x.shape) || repeats_activation(x) || x.shape->fp8_copies > 0)
        spw_layer_dies(b, "fc2", "fc2_input");
    if (forward) spw_layer_dies(b, "fc2", "fc1_output");
    offload(b, "fc2", x, SPW_OFFLOAD_MOE_ACT);
}

static void one_by_one(spw_layer_builder *b, spw_megatron_experts x) {
    const uint8_t first = (uint8_t)spw_layer_first(x.shape);
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    const size_t experts = x.shape->experts_per_rank;
    for (size_t i = 1; i <= experts; i++) {
        spw_layer_expert(b, i);
        spw_layer_born(b, "fc1",
                       (spw_tensor){"expert_fc1_output", SPW_ROWS_EXPERT, SPW_WIDTH_FFN, .times = first});
        spw_layer_born(b, "swiglu", (spw_tensor){"expert_fc2_input", SPW_ROWS_EXPERT, SPW_WIDTH_FFN});
        if (forward) spw_layer_dies(b, "swiglu", "expert_fc1_output");
        spw_layer_born(b, "fc2", (spw_tensor){"expert_fc2_output", SPW_ROWS_EXPERT, SPW_WIDTH_HIDDEN});
        if (forward) spw_layer_dies(b, "fc2", "expert_fc2_input");
    }
    spw_layer_expert(b, 0);
    spw_layer_born(b, "join", (spw_tensor){"fc2_output", x.rows, SPW_WIDTH_HIDDEN});
    for (size_t i = 1; i <= experts; i++) {
        spw_layer_expert(b, i);
        spw_layer_dies(b, "join", "expert_fc2_output");
    }
    spw_layer_expert(b, 0);
}

void spw_megatron_layer_experts(spw_layer_builder *b, spw_megatron_experts x) {
    if (x.padded) spw_megatron_layer_take(b, "pad", x.rows);
    if (x.shape->sequential_experts) {
        one_by_one(b, x);
    } else {
        grouped(b, x);
    }
    if (!x.padded) return;
    spw_layer_born(b, "unpad", (spw_tensor){"unpadded_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unpad", "fc2_output");
    spw_megatron_layer_taken(b, "unpad", x.shape);
}

/* In the order in which TransformerEngine saves them. */
enum { STASHED = 4 };
static size_t stashed(spw_megatron_experts x, spw_tensor out[STASHED]) {
    const uint8_t first = (uint8_t)spw_layer_first(x.shape);
    const bool fp8 = x.shape->fp8_copies > 0;
    size_t count = 0;
    out[count++] = fp8 ? copy_of(&fc1_input, splits(x) ? by_column(&fc1_input, x) : by_row(&fc1_input, x), x)
                       : (spw_tensor){"fc1_input", x.rows, SPW_WIDTH_HIDDEN};
    out[count++] = (spw_tensor){"fc1_output", x.rows, SPW_WIDTH_FFN, .times = first};
    out[count++] = (spw_tensor){"row_probs", x.rows, SPW_WIDTH_ONE, .element_bytes = 4};
    if (fp8) {
        out[count++] = copy_of(&fc2_input, splits(x) ? by_column(&fc2_input, x) : by_row(&fc2_input, x), x);
    } else if (!repeats_activation(x)) {
        out[count++] = (spw_tensor){"fc2_input", x.rows, SPW_WIDTH_FFN};
    }
    return count;
}

void spw_megatron_layer_stash(spw_layer_builder *b, spw_megatron_experts x) {
    spw_tensor tensor[STASHED];
    const size_t count = stashed(x, tensor);
    for (size_t i = 0; i < count; i++) spw_layer_dies(b, "stash", tensor[i].name);
}

void spw_megatron_layer_reload(spw_layer_builder *b, spw_megatron_experts x) {
    spw_tensor tensor[STASHED];
    const size_t count = stashed(x, tensor);
    for (size_t i = 0; i < count; i++) spw_layer_born(b, "reload", tensor[i]);
}

/* Gradient of fc2's weights, and what it was there for. delay_wgrad_compute: behind all gradients of inputs. */
static void fc2_weights(spw_layer_builder *b, spw_megatron_experts x) {
    if (lists_weights(b, x.shape))
        spw_layer_born(b, "fc2 weight gradient", weight_gradient("d_fc2_weight", x.shape, false, 1));
    cast_again(b, "fc2 weight gradient", &fc2_input, x);
    end_products(b, "fc2 weight gradient", &fc2_input, &d_fc2_output, "fc2_input", x);
    end_cast_again(b, "fc2 weight gradient", &fc2_input, "fc2_input", x);
    spw_layer_dies(b, "fc2 weight gradient", "d_fc2_output");
    if (lists_weights(b, x.shape)) spw_layer_dies(b, "fc2 weight gradient", "d_fc2_weight");
}

static void grouped_gradient(spw_layer_builder *b, spw_megatron_experts x) {
    const uint8_t first = (uint8_t)spw_layer_first(x.shape);
    if (repeats_activation(x))
        spw_layer_born(b, "swiglu again", (spw_tensor){"fc2_input", x.rows, SPW_WIDTH_FFN});
    cast(b, "fc2 input gradient", &d_fc2_output, x);
    spw_layer_born(b, "fc2 input gradient", (spw_tensor){"d_fc2_input", x.rows, SPW_WIDTH_FFN});
    adapt_gradient(b, "fc2 input gradient", "fc2_lora", "d_fc2_lora",
                   (spw_tensor){"d_fc2_lora_input", x.rows, SPW_WIDTH_FFN}, x);
    if (!x.shape->delayed_weights) fc2_weights(b, x);
    spw_layer_born(b, "swiglu gradient", (spw_tensor){"d_fc1_output", x.rows, SPW_WIDTH_FFN, .times = first});
    spw_layer_born(b, "swiglu gradient",
                   (spw_tensor){"d_row_probs", x.rows, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_dies(b, "swiglu gradient", "fc1_output");
    spw_layer_dies(b, "swiglu gradient", "d_fc2_input");
    spw_layer_dies(b, "swiglu gradient", "row_probs");
    come_back(b, "swiglu gradient", x, SPW_OFFLOAD_MOE_ACT, true);
    cast(b, "fc1 input gradient", &d_fc1_output, x);
    spw_layer_born(b, "fc1 input gradient", (spw_tensor){"d_fc1_input", x.rows, SPW_WIDTH_HIDDEN});
    adapt_gradient(b, "fc1 input gradient", "fc1_lora", "d_fc1_lora",
                   (spw_tensor){"d_fc1_lora_input", x.rows, SPW_WIDTH_HIDDEN}, x);
    if (x.shape->delayed_weights) fc2_weights(b, x);
    if (lists_weights(b, x.shape))
        spw_layer_born(b, "fc1 weight gradient", weight_gradient("d_fc1_weight", x.shape, false, first));
    cast_again(b, "fc1 weight gradient", &fc1_input, x);
    spw_layer_dies(b, "fc1 weight gradient", "d_fc1_output");
    end_products(b, "fc1 weight gradient", &fc1_input, &d_fc1_output, "fc1_input", x);
    end_cast_again(b, "fc1 weight gradient", &fc1_input, "fc1_input", x);
    come_back(b, "fc1 weight gradient", x, SPW_OFFLOAD_EXPERT_FC1, true);
    if (lists_weights(b, x.shape)) spw_layer_dies(b, "fc1 weight gradient", "d_fc1_weight");
}

/* What the experts share dies with the first one, which comes last. */
static void one_gradient(spw_layer_builder *b, const spw_layer_shape *s, size_t expert) {
    const uint8_t first = (uint8_t)spw_layer_first(s);
    const bool last = expert == 1;
    spw_layer_expert(b, expert);
    spw_layer_born(b, "fc2 input gradient",
                   (spw_tensor){"d_expert_fc2_input", SPW_ROWS_EXPERT, SPW_WIDTH_FFN});
    if (lists_weights(b, s))
        spw_layer_born(b, "fc2 weight gradient", weight_gradient("d_expert_fc2_weight", s, true, 1));
    spw_layer_dies(b, "fc2 weight gradient", "expert_fc2_input");
    spw_layer_expert(b, 0);
    if (last) spw_layer_dies(b, "fc2 weight gradient", "d_fc2_output");
    spw_layer_expert(b, expert);
    if (lists_weights(b, s)) spw_layer_dies(b, "fc2 weight gradient", "d_expert_fc2_weight");
    spw_layer_born(b, "swiglu gradient",
                   (spw_tensor){"d_expert_fc1_output", SPW_ROWS_EXPERT, SPW_WIDTH_FFN, .times = first});
    spw_layer_born(b, "swiglu gradient",
                   (spw_tensor){"d_expert_probs", SPW_ROWS_EXPERT, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_dies(b, "swiglu gradient", "expert_fc1_output");
    spw_layer_dies(b, "swiglu gradient", "d_expert_fc2_input");
    spw_layer_born(b, "fc1 input gradient",
                   (spw_tensor){"d_expert_fc1_input", SPW_ROWS_EXPERT, SPW_WIDTH_HIDDEN});
    if (lists_weights(b, s))
        spw_layer_born(b, "fc1 weight gradient", weight_gradient("d_expert_fc1_weight", s, true, first));
    spw_layer_dies(b, "fc1 weight gradient", "d_expert_fc1_output");
    spw_layer_expert(b, 0);
    if (last) spw_layer_dies(b, "fc1 weight gradient", "fc1_input");
    spw_layer_expert(b, expert);
    if (lists_weights(b, s)) spw_layer_dies(b, "fc1 weight gradient", "d_expert_fc1_weight");
    spw_layer_expert(b, 0);
}

static void join_gradients(spw_layer_builder *b, size_t experts, spw_tensor whole, const char *piece) {
    spw_layer_born(b, "join gradients", whole);
    for (size_t i = 1; i <= experts; i++) {
        spw_layer_expert(b, i);
        spw_layer_dies(b, "join gradients", piece);
    }
    spw_layer_expert(b, 0);
}

/* Last expert first. All of them share the storage of fc1_input and of d_fc2_output. */
static void one_by_one_gradient(spw_layer_builder *b, spw_megatron_experts x) {
    const size_t experts = x.shape->experts_per_rank;
    for (size_t i = experts; i > 0; i--) one_gradient(b, x.shape, i);
    spw_layer_dies(b, "join gradients", "row_probs");
    join_gradients(b, experts, (spw_tensor){"d_row_probs", x.rows, SPW_WIDTH_ONE, .element_bytes = 4},
                   "d_expert_probs");
    join_gradients(b, experts, (spw_tensor){"d_fc1_input", x.rows, SPW_WIDTH_HIDDEN}, "d_expert_fc1_input");
}

void spw_megatron_layer_experts_gradient(spw_layer_builder *b, spw_megatron_experts x) {
    if (x.padded) {
        spw_layer_born(b, "unpad gradient", (spw_tensor){"d_fc2_output", x.rows, SPW_WIDTH_HIDDEN});
        spw_layer_dies(b, "unpad gradient", "d_unpadded_rows");
    }
    if (x.shape->sequential_experts) {
        one_by_one_gradient(b, x);
    } else {
        grouped_gradient(b, x);
    }
    if (!x.padded) return;
    spw_layer_born(b, "pad gradient", (spw_tensor){"d_sorted_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "pad gradient", "d_fc1_input");
    spw_layer_born(b, "pad gradient",
                   (spw_tensor){"d_sorted_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_dies(b, "pad gradient", "d_row_probs");
}
