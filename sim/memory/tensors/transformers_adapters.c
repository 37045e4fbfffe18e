#include "sim/memory/tensors/transformers_operations.h"

/* gate_up_proj is two matrices of the checkpoint in one. */
enum { FUSED = 2 };

/* The parameter [experts, out x in] and what stands beside it. */
static size_t add_experts(spw_hf_model *m, uint64_t out, uint64_t in, uint64_t rank) {
    const uint64_t experts = m->shape->model->experts;
    const size_t at = spw_hf_add_weight(m, experts, out * in, false);
    if (m->shape->adapts_experts && rank > 0) {
        (void)spw_hf_add_weight(m, rank * experts, in, true);
        (void)spw_hf_add_weight(m, out, rank * experts, true);
    }
    return at;
}

void spw_hf_add_experts(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *model = m->shape->model;
    const uint64_t h = spw_model_routed_width(model), f = model->expert_ffn, rank = m->shape->lora_rank;
    if (m->shape->sinks) { /* [GptOssMLP] */
        l->router = spw_hf_add_biased_matrix(m, model->experts, h, m->shape->adapts_router);
        l->gate_up = spw_hf_add_weight(m, model->experts, 2 * f * h, false);
        (void)spw_hf_add_weight(m, model->experts, 2 * f, false);
        l->down = spw_hf_add_weight(m, model->experts, h * f, false);
        (void)spw_hf_add_weight(m, model->experts, h, false);
        return;
    }
    l->gate_up = add_experts(m, (model->plain_experts ? 1 : 2) * f, h, FUSED * rank);
    l->down = add_experts(m, h, f, rank);
    l->router = spw_hf_add_matrix(m, model->experts, model->hidden, m->shape->adapts_router);
}

/* torch.baddbmm(W, B, A): B is a view [experts, out, r] that no product takes, and is copied for it; so it is for the gradient of A.
 * The gradient of B [experts, out, r] is put in B's order. */
static spw_value add_factors(spw_hf_model *m, size_t at, uint64_t out, uint64_t in, uint64_t rank) {
    const uint64_t b = m->shape->element_bytes, g = spw_hf_gradient_bytes(m),
                   experts = m->shape->model->experts, whole = experts * out * in * b,
                   left = experts * out * rank * b, right = experts * rank * in * b;
    const double flop = 2.0 * (double)(experts * out) * (double)(in * rank);
    spw_tape *t = m->tape;
    if (!m->shape->adapts_experts || rank == 0) return SPW_HF_LEAF(m, at);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ADAPTERS);
    const spw_value copy = spw_tape_tensor(t, left);
    const spw_value sum =
        spw_tape_apply(t, &(spw_op){.bytes = whole,
                                    .input = {SPW_HF_LEAF(m, at + 1), SPW_HF_LEAF(m, at + 2)},
                                    .back = {{SPW_GRADIENT_TEMP, 1, left, 0.0, flop},
                                             SPW_TO_WORK(0, left),
                                             SPW_TO_PRODUCT(0, right * g / b, flop),
                                             SPW_TO(1, left * g / b, (double)left)},
                                    .read_bytes = (double)whole,
                                    .flop = flop,
                                    .rate = SPW_HF_SMALL_PRODUCT});
    spw_tape_drop(t, copy);
    spw_tape_kind(t, kind);
    return sum;
}

/* The outer wrapper is that of down. */
void spw_hf_try_experts(spw_hf_model *m) {
    const spw_model *model = m->shape->model;
    const uint64_t matrix = m->shape->element_bytes * model->experts * model->hidden * model->expert_ffn,
                   left[] = {model->hidden, 2 * model->expert_ffn * FUSED};
    if (!m->shape->adapts_experts || m->shape->lora_rank == 0) return;
    for (uint64_t i = 0; i < 2; i++) {
        const spw_value copy = spw_tape_tensor(m->tape, m->shape->element_bytes * model->experts *
                                                            m->shape->lora_rank * left[i]);
        const spw_value whole = spw_tape_tensor(m->tape, (i + 1) * matrix);
        spw_tape_drop(m->tape, copy);
        spw_tape_drop(m->tape, whole);
    }
}

spw_value spw_hf_expert_weight(spw_hf_model *m, const spw_hf_layer *l, bool wide) {
    const spw_model *model = m->shape->model;
    const uint64_t h = model->hidden, f = model->expert_ffn, rank = m->shape->lora_rank;
    return wide ? add_factors(m, l->gate_up, 2 * f, h, FUSED * rank) : add_factors(m, l->down, h, f, rank);
}

/* W + scaling (B A), one operation after the other. */
spw_value spw_hf_router_weight(spw_hf_model *m, size_t at) {
    const uint64_t b = m->shape->element_bytes, g = spw_hf_gradient_bytes(m), h = m->shape->model->hidden,
                   experts = m->shape->model->experts, rank = m->shape->lora_rank, whole = experts * h * b;
    const double flop = 2.0 * (double)(experts * h) * (double)rank, r = (double)whole;
    spw_tape *t = m->tape;
    if (!m->shape->adapts_router || rank == 0) return SPW_HF_LEAF(m, at);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ADAPTERS);
    const spw_value made =
        spw_tape_apply(t, &(spw_op){.bytes = whole,
                                    .input = {SPW_HF_LEAF(m, at + 1), SPW_HF_LEAF(m, at + 2)},
                                    .back = {SPW_TO_PRODUCT(1, experts * rank * g, flop),
                                             SPW_TO_PRODUCT(0, rank * h * g, flop)},
                                    .flop = flop,
                                    .rate = SPW_HF_SMALL_PRODUCT});
    const spw_value scaled = spw_tape_apply(
        t, &(spw_op){.bytes = whole, .input = {made}, .back = {SPW_TO(0, whole, r)}, .read_bytes = r});
    spw_tape_drop(t, made);
    const spw_value sum = spw_tape_apply(
        t, &(spw_op){.bytes = whole, .input = {scaled}, .back = {SPW_TO_PASS(0)}, .read_bytes = 2.0 * r});
    spw_tape_drop(t, scaled);
    spw_tape_kind(t, kind);
    return sum;
}
