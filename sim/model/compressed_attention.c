#include "sim/model/compressed_attention.h"

#include "sim/model/attention.h"

#include <string.h>

/* Rows of a kind's list of matrices (sim/model/model_mixer.c, grouped_output(), compressed(), heavily_compressed()). */
enum { ROW_Q_DOWN = 0, ROW_O_DOWN = 3, ROW_JOINED = 7, ROW_INDEX_JOINED = 10, ROW_INDEX_Q = 13 };

spw_compressed_attention spw_compressed_attention_of(const spw_model *model, size_t kind) {
    const spw_matrix *q = spw_matrix_at(model, SPW_IN_MIXER, kind, ROW_Q_DOWN),
                     *o = spw_matrix_at(model, SPW_IN_MIXER, kind, ROW_O_DOWN),
                     *joined = spw_matrix_at(model, SPW_IN_MIXER, kind, ROW_JOINED),
                     *index = spw_matrix_at(model, SPW_IN_MIXER, kind, ROW_INDEX_JOINED),
                     *index_q = spw_matrix_at(model, SPW_IN_MIXER, kind, ROW_INDEX_Q);
    spw_compressed_attention a = {.heads = model->heads,
                                  .head_dim = model->head_dim,
                                  .rank = q->out,
                                  .wide = model->heads * model->head_dim,
                                  .groups = o->count,
                                  .latent = o->out,
                                  .window = model->mixer[kind].window};
    if (joined == NULL) return a;
    a.every = model->mixer[kind].every;
    a.parts = joined->out / model->head_dim;
    if (index == NULL) return a;
    a.index_width = index->out / 2;
    a.index_heads = index_q->out / a.index_width;
    a.chosen = model->mixer[kind].most;
    return a;
}

bool spw_attention_is_compressed(const spw_model *m) {
    bool any = false;
    if (!spw_attention_is_listed(m)) return false;
    for (size_t kind = 0; kind < SPW_MODEL_MIXERS; kind++) {
        const spw_matrix *o = spw_matrix_at(m, SPW_IN_MIXER, kind, ROW_O_DOWN),
                         *joined = spw_matrix_at(m, SPW_IN_MIXER, kind, ROW_JOINED);
        if (o == NULL && m->mixer[kind].layers == 0) continue;
        if (o == NULL || strcmp(o->name, "o down") != 0) return false;
        if ((joined != NULL) != (m->mixer[kind].every > 0)) return false;
        if (joined != NULL && strcmp(joined->name, "joined keys") != 0) return false;
        any = true;
    }
    return any && spw_matrix_at(m, SPW_IN_TABLES, 0, 0) == NULL;
}
