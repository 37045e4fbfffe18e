/* Megatron-Core's router, forward and backward. */
#include "sim/schemes/megatron/megatron_layer.h"

static bool is_torch(const spw_layer_builder *b) { return spw_layer_flavour(b) == SPW_FLAVOUR_TORCH; }

/* A temporary of the router, as it fills maps of tokens by experts. */
static spw_tensor router_map(const char *name) {
    return (spw_tensor){name, SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 4};
}

static const spw_tensor router_input = {"router_input", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN,
                                        .element_bytes = 4};

/* Zeros, then the chosen probabilities scattered into them; the same for the map, through integers. */
static void scatter_choices(spw_layer_builder *b) {
    const char *step = "router";
    if (is_torch(b)) spw_layer_born(b, step, router_map("zero_probs"));
    spw_layer_born(b, step, router_map("probs"));
    if (is_torch(b)) {
        spw_layer_dies(b, step, "zero_probs");
        spw_layer_born(b, step, router_map("zero_map"));
        spw_layer_born(b, step, router_map("int_map"));
        spw_layer_dies(b, step, "zero_map");
        spw_layer_born(b, step, router_map("chosen_map"));
        spw_layer_dies(b, step, "int_map");
    }
    spw_layer_born(b, step,
                   (spw_tensor){"routing_map", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 1});
    if (!is_torch(b)) return;
    spw_layer_dies(b, step, "chosen_map");
    spw_layer_dies(b, step, "chosen_logits");
}

void spw_megatron_layer_router(spw_layer_builder *b, bool fused) {
    const char *step = "router";
    const bool whole = is_torch(b) && !fused;
    if (whole) spw_layer_born(b, step, router_input);
    spw_layer_born(b, step, router_map("logits"));
    if (fused) {
        spw_layer_born(b, step, router_map("probs"));
        spw_layer_born(b, step,
                       (spw_tensor){"routing_map", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, .element_bytes = 1});
        return;
    }
    if (whole) {
        spw_layer_dies(b, step, router_input.name);
        spw_layer_born(b, step,
                       (spw_tensor){"chosen_logits", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, .element_bytes = 4});
    }
    spw_layer_born(b, step,
                   (spw_tensor){"chosen_probs", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, .element_bytes = 4});
    scatter_choices(b);
}

void spw_megatron_layer_drop(spw_layer_builder *b, const spw_layer_shape *s, size_t capacity) {
    const char *step = "drop";
    const spw_dim slots = {"C", capacity}, experts = {"E", s->experts};
    if (!is_torch(b) || capacity > s->tokens) return;
    spw_layer_born(b, step,
                   (spw_tensor){"top_values", SPW_ROWS_GIVEN, .dim = {slots, experts}, .element_bytes = 4});
    spw_layer_born(b, step,
                   (spw_tensor){"top_indices", SPW_ROWS_GIVEN, .dim = {slots, experts}, .element_bytes = 8});
    spw_layer_passes(b, step, router_map("kept_map"));
    spw_layer_dies(b, step, "top_values");
    spw_layer_dies(b, step, "top_indices");
}

/* The input's gradient comes in fp32, from an input that is made fp32 again. */
static void router_gradient_whole(spw_layer_builder *b) {
    const char *step = "router gradient";
    spw_layer_born(b, step, router_map("d_chosen_map"));
    spw_layer_dies(b, step, "d_probs");
    spw_layer_dies(b, step, "d_chosen_map");
    spw_layer_born(b, step, router_map("d_logits"));
    spw_layer_born(
        b, step, (spw_tensor){"d_router_input_fp32", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .element_bytes = 4});
    spw_layer_born(b, step, (spw_tensor){"d_router_input", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, step, "d_router_input_fp32");
    spw_layer_passes(b, step, router_input);
    spw_layer_dies(b, step, "d_logits");
    spw_layer_dies(b, step, "d_router_input");
    spw_layer_dies(b, step, "logits");
    spw_layer_dies(b, step, "chosen_probs");
}

void spw_megatron_layer_router_gradient(spw_layer_builder *b, bool fused) {
    if (is_torch(b) && !fused) {
        router_gradient_whole(b);
        return;
    }
    spw_layer_born(b, "router gradient", router_map("d_logits"));
    spw_layer_dies(b, "router gradient", "d_probs");
    spw_layer_dies(b, "router gradient", "logits");
    if (!fused) spw_layer_dies(b, "router gradient", "chosen_probs");
    spw_layer_dies(b, "router gradient", "d_logits");
}
