/* Weights of modules: lists of them, and what of them is trained. */
#include "sim/memory/tensors/transformers_modules.h"
#include "sim/memory/tensors/transformers_operations.h"

size_t spw_hf_add_weight(spw_hf_model *m, uint64_t rows, uint64_t columns, bool adapter) {
    const bool trained = adapter || !m->shape->frozen;
    m->weight[m->weights] =
        (spw_hf_weight){spw_tape_parameter(m->tape, trained), rows, columns, trained, false, false};
    return m->weights++;
}

size_t spw_hf_trained_bytes(const spw_transformers_shape *s) {
    return s->frozen && s->adapter_bytes > 0 ? s->adapter_bytes : s->weight_bytes;
}

bool spw_hf_casts_adapters(const spw_transformers_shape *s) {
    return s->frozen && !s->wrapped && spw_hf_trained_bytes(s) > s->element_bytes;
}

/* PEFT puts A [r, in] and B [out, r] behind the matrix and its bias. */
static size_t add_matrix(spw_hf_model *m, uint64_t out, uint64_t in, bool adapts, bool biased) {
    const size_t at = spw_hf_add_weight(m, out, in, false), r = m->shape->lora_rank;
    m->weight[at].biased = biased;
    if (biased) (void)spw_hf_add_weight(m, out, 1, false);
    if (adapts && r > 0) {
        (void)spw_hf_add_weight(m, r, in, true);
        (void)spw_hf_add_weight(m, out, r, true);
    }
    return at;
}

size_t spw_hf_add_matrix(spw_hf_model *m, uint64_t out, uint64_t in, bool adapts) {
    return add_matrix(m, out, in, adapts, false);
}

size_t spw_hf_add_biased_matrix(spw_hf_model *m, uint64_t out, uint64_t in, bool adapts) {
    return add_matrix(m, out, in, adapts, true);
}

size_t spw_hf_add_wide_weight(spw_hf_model *m, uint64_t rows, uint64_t columns) {
    const size_t at = spw_hf_add_weight(m, rows, columns, false);
    m->weight[at].wide = !m->shape->wrapped && m->shape->weight_bytes < SPW_HF_FP32;
    return at;
}

size_t spw_hf_add_untrained(spw_hf_model *m, uint64_t rows, uint64_t columns) {
    m->weight[m->weights] =
        (spw_hf_weight){spw_tape_parameter(m->tape, false), rows, columns, false, false, false};
    return m->weights++;
}

size_t spw_hf_add_norm(spw_hf_model *m, uint64_t width) {
    return m->shape->compressed ? spw_hf_add_wide_weight(m, width, 1) : spw_hf_add_weight(m, width, 1, false);
}
