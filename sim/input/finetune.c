#include "sim/input/finetune.h"

#include "sim/input/token_work.h"

const char *spw_frozen_name(spw_frozen frozen) {
    static const char *const names[] = {"none", "experts", "base"};
    return names[frozen];
}

bool spw_finetune_is_whole(const spw_finetune *f) {
    return f->frozen == SPW_FROZEN_NONE && f->lora_rank == 0;
}

bool spw_finetune_adapts(const spw_finetune *f, spw_lora_targets target) {
    return f->lora_rank > 0 && ((unsigned)f->lora_targets & (unsigned)target) != 0;
}

/* Sums of inputs and outputs. MLA: both down projections, both up projections, the output; GQA: one product for query, key and
 * value, the output. */
static double attention_ends(const spw_model *m, size_t *products) {
    const size_t value = m->heads * (m->attention == SPW_ATTENTION_MLA ? m->v_head_dim : m->head_dim);
    const size_t out = value + m->hidden;
    if (m->attention != SPW_ATTENTION_MLA) {
        *products = 2;
        return (double)(m->hidden + (m->heads + 2 * m->kv_heads) * m->head_dim + out);
    }
    const size_t key = m->heads * (m->nope_dim + m->rope_dim), kv = m->kv_lora_rank;
    const size_t query =
        m->q_lora_rank > 0 ? m->hidden + m->q_lora_rank + m->q_lora_rank + key : m->hidden + key;
    *products = m->q_lora_rank > 0 ? 5 : 4;
    return (double)(query + m->hidden + kv + m->rope_dim + kv + m->heads * m->nope_dim + value + out);
}

size_t spw_attention_products(const spw_model *m) {
    size_t products = 0;
    (void)attention_ends(m, &products);
    return products;
}

/* Ends of the matrices of a kind's list. */
static double listed_ends(const spw_model *m, size_t kind) {
    const spw_matrix *row;
    double ends = 0.0;
    for (size_t i = 0; (row = spw_matrix_at(m, SPW_IN_MIXER, kind, i)) != NULL; i++)
        if (!row->vector) ends += (double)(row->count > 0 ? row->count : 1) * (double)(row->in + row->out);
    return ends;
}

double spw_attention_adapter(const spw_model *m, const spw_finetune *f) {
    size_t products = 0;
    if (!spw_finetune_adapts(f, SPW_LORA_ATTENTION)) return 0.0;
    const double attending = (double)(m->layers - m->other_layers);
    double ends = listed_ends(m, 0);
    if (m->attention != SPW_ATTENTION_LISTED) ends += attention_ends(m, &products);
    if (m->other_layers == 0) return (double)f->lora_rank * ends;
    ends *= attending;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) ends += (double)m->mixer[k].layers * listed_ends(m, k);
    return (double)f->lora_rank * ends / (double)m->layers;
}

double spw_expert_adapter(const spw_model *m, const spw_finetune *f) {
    if (!spw_finetune_adapts(f, SPW_LORA_EXPERTS)) return 0.0;
    return (double)(f->lora_rank * (2 * spw_model_routed_width(m) + spw_expert_matrices(m) * m->expert_ffn));
}

spw_trained_work spw_trained_work_of(const spw_model *m, const spw_finetune *f, size_t length) {
    const spw_parameters p = spw_model_parameters(m);
    const spw_token_work work = spw_token_work_of(m, length);
    const double layers = (double)m->layers, moe = (double)m->moe_layers, k = (double)m->top_k,
                 experts = (double)m->experts;
    const double routed = (double)p.routed_per_layer * moe, attention = spw_attention_adapter(m, f),
                 expert = spw_expert_adapter(m, f);
    const double active_routed = routed * k / experts,
                 adapters = 2.0 * (layers * attention + moe * k * expert); /* FLOP of a forward pass */
    double frozen = 0.0; /* FLOP of the gradients of weights that are left out */
    spw_trained_work out = {.full = work.training};
    out.parameters = (double)p.total;
    if (f->frozen != SPW_FROZEN_NONE) out.parameters -= routed, frozen = 2.0 * active_routed;
    if (f->frozen == SPW_FROZEN_BASE) out.parameters = 0.0, frozen = work.weights;
    out.parameters += layers * attention + moe * experts * expert;
    out.finetuning = work.training - frozen + 3.0 * adapters;
    return out;
}
