/* Parameters of a model. */
#include "base/saturate.h"
#include "sim/model/matrices.h"
#include "sim/model/model.h"

/* --- Parameter counts; saturating, so that an absurd model is seen by its total --- */

size_t spw_model_indexer_layers(const spw_model *m) {
    size_t layers = 0;
    for (size_t i = 0; m->indexer_heads > 0 && i < m->layers; i++)
        layers += m->mixer_of[i] == 0 && m->shares_indexer[i] == 0;
    return layers;
}

static uint64_t sum_of(const spw_model *m, void (*of)(const spw_model *m, spw_matrices *out)) {
    spw_matrices list;
    of(m, &list);
    return spw_matrices_sum(&list);
}

/* Of all layers by kind, and of the layer that has most. */
static void count_mixers(const spw_model *m, spw_parameters *p) {
    spw_matrices attention;
    spw_matrices_of_mixer(m, 0, &attention);
    p->attention_per_layer = spw_matrices_sum(&attention);
    p->indexer_per_layer = spw_matrices_sum_at(&attention, SPW_IN_INDEXER);
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) {
        const size_t layers = k == 0 ? m->layers - m->other_layers : m->mixer[k].layers;
        p->mixer_per_layer[k] = k == 0 ? p->attention_per_layer : spw_matrices_elements(m, SPW_IN_MIXER, k);
        p->mixers = spw_saturated_sum(p->mixers, spw_saturated_product(layers, p->mixer_per_layer[k]));
        if (layers > 0 && p->mixer_per_layer[k] > p->mixer_most) p->mixer_most = p->mixer_per_layer[k];
    }
    if (m->indexer_heads == 0) return;
    const uint64_t shared = m->layers - m->other_layers - spw_model_indexer_layers(m),
                   less = spw_saturated_product(shared, p->indexer_per_layer);
    p->mixers = less < p->mixers ? p->mixers - less : 0;
}

uint64_t spw_model_mixer_most(const spw_model *m, bool experts) {
    const spw_parameters p = spw_model_parameters(m);
    uint64_t most = 0;
    if (!m->half_layers) return p.mixer_most;
    for (size_t i = 0; i < m->layers; i++) {
        const uint64_t here = p.mixer_per_layer[m->mixer_of[i]];
        if ((m->is_moe[i] != 0) == experts && here > most) most = here;
    }
    return most;
}

uint64_t spw_model_router_column(const spw_model *m) {
    return m->listed_router ? 0 : m->hidden + (uint64_t)m->router_bias + m->selection_bias + m->router_scales;
}

uint64_t spw_model_routed(const spw_model *m) {
    const spw_parameters p = spw_model_parameters(m);
    const uint64_t all = spw_saturated_product(m->moe_layers, p.routed_per_layer),
                   less = spw_saturated_product(m->lacking_experts, p.expert);
    return less < all ? all - less : 0;
}

spw_mtp_parameters spw_mtp_parameters_of(const spw_model *m) {
    const spw_parameters p = spw_model_parameters(m);
    const uint64_t hidden = m->hidden;
    return (spw_mtp_parameters){.routed = p.routed_per_layer,
                                .rest = p.attention_per_layer + (m->half_layers ? 2 : 1) * p.norms_per_layer +
                                        p.shared_per_layer + p.router_per_layer + 2 * hidden * hidden +
                                        3 * hidden};
}

spw_parameters spw_model_parameters(const spw_model *m) {
    const uint64_t expert = sum_of(m, spw_matrices_of_expert);
    spw_matrices list;
    spw_parameters p = {.embedding = spw_saturated_product(m->vocab, m->hidden),
                        .expert = expert,
                        .routed_per_layer = spw_saturated_product(m->experts, expert),
                        .final_norm = sum_of(m, spw_matrices_of_end),
                        .head = sum_of(m, spw_matrices_of_head),
                        .norms_per_layer = sum_of(m, spw_matrices_of_norms),
                        .tables = spw_matrices_elements(m, SPW_IN_TABLES, 0),
                        .latent_per_layer = spw_matrices_elements(m, SPW_IN_MOE_LAYER, 0),
                        .shared_per_layer = sum_of(m, spw_matrices_of_shared),
                        .dense_ffn_per_layer = sum_of(m, spw_matrices_of_dense)};
    spw_matrices_of_router(m, spw_model_choices(m), false, &list);
    p.router_per_layer = spw_matrices_sum(&list);
    count_mixers(m, &p);
    uint64_t sum = spw_saturated_sum(spw_saturated_sum(p.embedding, p.head), p.final_norm);
    sum = spw_saturated_sum(sum,
                            spw_saturated_sum(p.mixers, spw_saturated_product(m->layers, p.norms_per_layer)));
    sum = spw_saturated_sum(sum, spw_saturated_product(spw_model_dense_layers(m), p.dense_ffn_per_layer));
    sum = spw_saturated_sum(
        sum, spw_saturated_product(m->moe_layers, spw_saturated_sum(p.shared_per_layer, p.router_per_layer)));
    const uint64_t unbiased =
        m->selection_bias ? spw_saturated_product(m->hash_layers, m->experts - m->replicas) : 0;
    sum -= unbiased < sum ? unbiased : 0;
    const uint64_t columns = spw_saturated_product(m->lacking_experts, spw_model_router_column(m)),
                   lacking = spw_saturated_product(m->lacking_experts, expert);
    sum -= columns < sum ? columns : 0;
    p.total = spw_saturated_sum(spw_saturated_sum(sum, p.tables),
                                spw_saturated_product(m->moe_layers, p.routed_per_layer));
    p.total -= lacking < p.total ? lacking : 0;
    const uint64_t computed =
        spw_saturated_product(expert, m->top_k * m->experts) / (m->experts + m->zero_experts);
    p.active = spw_saturated_sum(sum, spw_saturated_product(m->moe_layers, computed) -
                                          spw_saturated_product(m->lacking_choices, expert));
    return p;
}
