#include "sim/job/recipe/finetune.h"

#include "sim/model/matrices.h"

#include "sim/model/token_work.h"

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

/* Sums of inputs and outputs of the products of a layer in which mixer k works; without an indexer's, which chooses and is not trained
 * by adapters. */
static double ends_of(const spw_model *m, size_t k) {
    spw_matrices list;
    spw_matrices_of_mixer(m, k, &list);
    while (list.rows > 0 && list.row[list.rows - 1].place == SPW_IN_INDEXER) list.rows--;
    return (double)(spw_matrices_inputs(&list, SPW_OF_ANY) + spw_matrices_outputs(&list));
}

size_t spw_attention_products(const spw_model *m) {
    spw_matrices list;
    spw_matrices_of_mixer(m, 0, &list);
    while (list.rows > 0 && list.row[list.rows - 1].place == SPW_IN_INDEXER) list.rows--;
    return spw_matrices_products(&list);
}

static double attention_adapter(const spw_model *m) {
    double ends = ends_of(m, 0);
    if (m->other_layers == 0) return ends;
    ends *= (double)(m->layers - m->other_layers);
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) ends += (double)m->mixer[k].layers * ends_of(m, k);
    return ends / (double)m->layers;
}

static double ends_of_list(const spw_matrices *list) {
    return (double)(spw_matrices_inputs(list, SPW_OF_ANY) + spw_matrices_outputs(list));
}

/* Of a dense FFN or a shared expert: gate and up are linears of their own. */
static double ends_of_linears(const spw_model *m, const spw_matrices *list) {
    return ends_of_list(list) + (double)((spw_ffn_matrices(m) - 2) * m->hidden);
}

double spw_layer_adapter(const spw_model *m, const spw_finetune *f) {
    const double moe = (double)m->moe_layers, dense = (double)spw_model_dense_layers(m);
    double ends = spw_finetune_adapts(f, SPW_LORA_ATTENTION) ? attention_adapter(m) : 0.0;
    spw_matrices list;
    if (spw_finetune_adapts(f, SPW_LORA_DENSE)) {
        spw_matrices_of_dense(m, &list);
        if (dense > 0.0) ends += dense * ends_of_linears(m, &list) / (double)m->layers;
        spw_matrices_of_shared(m, &list);
        if (m->shared_ffn > 0) ends += moe * ends_of_linears(m, &list) / (double)m->layers;
    }
    if (spw_finetune_adapts(f, SPW_LORA_ROUTER))
        ends += moe * (double)(m->hidden + spw_model_choices(m)) / (double)m->layers;
    return (double)f->lora_rank * ends;
}

double spw_expert_adapter(const spw_model *m, const spw_finetune *f) {
    spw_matrices list;
    if (!spw_finetune_adapts(f, SPW_LORA_EXPERTS)) return 0.0;
    spw_matrices_of_expert(m, &list);
    const double first = (double)(m->hidden + (spw_expert_matrices(m) - 1) * m->expert_ffn); /* of fc1 */
    return (double)f->lora_rank * (ends_of_list(&list) + (f->wraps_experts ? first : 0.0));
}

spw_trained_work spw_trained_work_of(const spw_model *m, const spw_finetune *f, size_t length) {
    const spw_parameters p = spw_model_parameters(m);
    const spw_token_work work = spw_token_work_of(m, length);
    const double layers = (double)m->layers, moe = (double)m->moe_layers, k = (double)m->top_k,
                 experts = (double)m->experts;
    const double routed = (double)p.routed_per_layer * moe, attention = spw_layer_adapter(m, f),
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
