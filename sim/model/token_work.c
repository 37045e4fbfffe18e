#include "sim/model/token_work.h"

#include "sim/model/attention.h"

static const double TRAINED = 3.0; /* forward, and two gradients */

double spw_model_like_attention(const spw_model *m) {
    size_t layers = m->mixer[0].heads > 0 ? 0 : m->layers - m->other_layers;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++)
        if (m->mixer[k].attends && m->mixer[k].heads == 0) layers += m->mixer[k].layers;
    return (double)layers;
}

size_t spw_model_runs(const spw_model *m, size_t kind) {
    size_t runs = m->mixer[kind].layers;
    for (size_t i = m->loop_start; i < m->loop_end; i++)
        if (m->mixer_of[i] == kind) runs += m->loop_passes - 1;
    return runs;
}

/* Weights at work on a token in the passes of looped layers behind the first. */
static double looped_weights(const spw_model *m, const spw_parameters *p) {
    double sum = 0.0;
    for (size_t i = m->loop_start; i < m->loop_end; i++) {
        const double experts =
            (double)(p->shared_per_layer + p->router_per_layer) +
            (double)(m->top_k * m->experts) * (double)p->expert / (double)(m->experts + m->zero_experts);
        sum += (double)(p->mixer_per_layer[m->mixer_of[i]] + p->norms_per_layer) +
               (m->is_moe[i] != 0    ? experts
                : m->is_bare[i] != 0 ? 0.0
                                     : (double)p->dense_ffn_per_layer);
    }
    return m->loop_passes > 1 ? sum * (double)(m->loop_passes - 1) : 0.0;
}

double spw_model_own_scores(const spw_model *m, size_t length) {
    double sum = 0.0;
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) {
        const spw_mixer *mixer = &m->mixer[k];
        const spw_mixer joined = {.every = mixer->every};
        if (mixer->heads == 0) continue;
        const double elements = (double)(mixer->heads * (mixer->key + mixer->value)),
                     chosen = mixer->every > 0 ? (double)mixer->index * spw_mixer_keys(&joined, length) : 0.0;
        sum += 2.0 * (double)spw_model_runs(m, k) * (spw_mixer_keys(mixer, length) * elements + chosen);
    }
    return sum;
}

spw_token_work spw_token_work_of(const spw_model *m, size_t length) {
    const spw_parameters p = spw_model_parameters(m);
    const spw_attention_widths w = spw_attention_widths_of(m);
    const double again = looped_weights(m, &p);
    const double looked_up =
        m->tied_embeddings ? 0.0 : (double)p.embedding; /* an embedding is read, not multiplied */
    const double weights = 2.0 * ((double)p.active - looked_up + again),
                 scores = spw_model_like_attention(m) * (double)length * (double)m->heads *
                              (double)(w.key_dim + w.value_dim) +
                          spw_model_own_scores(m, length);
    return (spw_token_work){.weights = weights, .scores = scores, .training = TRAINED * (weights + scores)};
}
