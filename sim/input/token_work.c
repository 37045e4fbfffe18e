#include "sim/input/token_work.h"

static const double TRAINED = 3.0; /* forward, and two gradients */

spw_token_work spw_token_work_of(const spw_model *m, size_t length) {
    const spw_parameters p = spw_model_parameters(m);
    const bool latent = m->attention == SPW_ATTENTION_MLA;
    const double key = (double)(latent ? m->nope_dim + m->rope_dim : m->head_dim),
                 value = (double)m->v_head_dim;
    const double attending = (double)(m->layers - (m->other.attends ? 0 : m->other.layers));
    const double looked_up =
        m->tied_embeddings ? 0.0 : (double)p.embedding; /* an embedding is read, not multiplied */
    const double weights = 2.0 * ((double)p.active - looked_up),
                 scores = attending * (double)length * (double)m->heads * (key + value);
    return (spw_token_work){.weights = weights, .scores = scores, .training = TRAINED * (weights + scores)};
}
