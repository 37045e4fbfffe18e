/* Weights that are rows of the model's list: of its kinds of layers, and of what stands beside mixers and FFNs. */
#include "sim/model/config/model_per_layer.h"
#include "sim/model/config/model_reading.h"
#include "sim/model/model_mixer.h"

/* Weights of every kind of layer that the model has. */
spw_status spw_reading_mixers(const spw_reading *in, spw_raw_config *raw, spw_model *m) {
    const spw_family *f = in->family;
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) {
        const spw_mixer_kind *kind = f->layer_words == NULL && k == 1 ? f->mixer : f->kinds[k];
        if (kind == NULL || (k > 0 && m->mixer[k].layers == 0)) continue;
        bool listed = false;
        spw_status status = kind == &spw_global || kind == &spw_shared_global || kind == &spw_dots_sliding
                                ? spw_per_layer_read(in, m, raw, &listed)
                            : kind == &spw_laguna_gate ? spw_heads_per_layer_read(in, m, raw)
                                                       : SPW_OK;
        if (status == SPW_OK && !listed) status = spw_reading_rows(in, kind->keys, raw);
        if (status != SPW_OK) return status;
        spw_mixer_count(kind, raw, k, m);
    }
    return SPW_OK;
}

static void add_numbers(spw_model *m, spw_matrix_place place, const char *name, uint64_t count) {
    spw_matrix_add(m, (spw_matrix){.name = name, .in = 1, .out = count, .place = place, .vector = true});
}

/* Layers of a kind whose attention chooses its keys. */
static bool has_indexers(const spw_reading *in, const spw_model *m) {
    bool any = false;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        const spw_mixer_kind *kind = in->family->kinds[k];
        any = any || (m->mixer[k].layers > 0 && (kind == &spw_compressed || kind == &spw_block_sparse));
    }
    return any;
}

/* Residual streams: DeepseekV4HyperConnection, twice a layer, and DeepseekV4HyperHead of transformers 5.24; through a low rank
 * ('hc_lowrank') Qwen3_8_FlashNextHyperConnection of NeMo AutoModel 0.7. */
static void add_streams(const spw_family *f, const spw_raw_config *raw, spw_model *m) {
    const uint64_t n = m->streams, wide = n * m->hidden, rank = spw_or_default(raw->stream_rank, 0);
    const uint64_t mixes = f->narrow_streams ? 2 * n : (n + 2) * n;
    const spw_matrix mixing = {.name = "stream mixing",
                               .in = wide,
                               .out = mixes,
                               .count = 2,
                               .place = SPW_IN_LAYER,
                               .vector = true},
                     down = {.name = "stream mixing, down",
                             .in = wide,
                             .out = rank + n,
                             .count = 2,
                             .place = SPW_IN_LAYER,
                             .vector = true},
                     up = {.name = "stream mixing, up",
                           .in = rank,
                           .out = wide,
                           .count = 2,
                           .place = SPW_IN_LAYER,
                           .vector = true},
                     head = {.name = "stream head",
                             .in = wide,
                             .out = rank > 0 ? 2 * rank : n,
                             .place = SPW_IN_MODEL,
                             .vector = true};
    spw_matrix_add(m, rank > 0 ? down : mixing);
    if (rank > 0) spw_matrix_add(m, up);
    add_numbers(m, SPW_IN_LAYER, rank > 0 ? "norms of streams" : "its bias and scales",
                2 * (rank > 0 ? wide : mixes + (f->narrow_streams ? 2 : 3)));
    if (f->no_stream_head) return;
    spw_matrix_add(m, head);
    add_numbers(m, SPW_IN_MODEL, rank > 0 ? "norm of the stream head" : "its bias and scale",
                rank > 0 ? wide : n + 1);
}

/* What stands beside mixers and FFNs. Residual streams: DeepseekV4HyperConnection, twice a layer, and DeepseekV4HyperHead of
 * transformers 5.24. Attention over earlier residuals: modeling_kimi_linear.py beside Kimi K3's weights, twice a layer and at the end:
 * a norm and a projection to one number. */
spw_status spw_reading_beside(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    const uint64_t h = m->hidden, n = spw_or_default(raw->streams, 0);
    m->latent = spw_or_default(raw->latent, 0);
    if (m->latent > 0) {
        spw_matrix_add(
            m, (spw_matrix){.name = "latent down", .in = h, .out = m->latent, .place = SPW_IN_MOE_LAYER});
        spw_matrix_add(
            m, (spw_matrix){.name = "latent up", .in = m->latent, .out = h, .place = SPW_IN_MOE_LAYER});
        if (m->ffn_bias && in->family->half_layers)
            add_numbers(m, SPW_IN_MOE_LAYER, "biases of both", m->latent + h); /* Nemotron */
        if (m->latent_norm) add_numbers(m, SPW_IN_MOE_LAYER, "latent norm", m->latent);
        if (in->family->expert_norm) add_numbers(m, SPW_IN_MOE_LAYER, "norm of experts' rows", 2 * m->latent);
    }
    m->streams = n;
    m->stream_rounds = spw_or_default(raw->stream_rounds, 20); /* DeepseekV4Config's default */
    m->residual_blocks = spw_or_default(raw->residual_blocks, 0);
    if (n > 0) add_streams(in->family, raw, m);
    if (m->residual_blocks > 0) {
        add_numbers(m, SPW_IN_LAYER, "residual queries and norms", 4 * h);
        add_numbers(m, SPW_IN_MODEL, "residual query and norm", 2 * h);
    }
    if (spw_family_has(in->family, SPW_HASH)) {
        const spw_status status = spw_reading_hash(in, raw, m->layers, &m->hash_layers);
        if (status != SPW_OK) return status;
    }
    if (m->output_gate) {
        spw_matrix_add(m, (spw_matrix){.name = "output gate",
                                       .in = h,
                                       .out = spw_attention_widths_of(m).context,
                                       .place = SPW_IN_MIXER,
                                       .cut = SPW_CUT_OUTPUTS});
    }
    const spw_status tables = spw_reading_tables(in, raw, m);
    if (tables != SPW_OK) return tables;
    if (in->family->any_attention && !spw_attention_is_latent(m) && raw->indexer_heads != SPW_ABSENT &&
        !has_indexers(in, m))
        return spw_fail(SPW_ECONFIG,
                        "%s: 'index_n_heads' is of an indexer, but no layer has one: latent attention "
                        "('%s'), or layers "
                        "'compressed_sparse_attention' or 'block_sparse_attention' in 'layer_types'",
                        in->where, spw_latent_attention.mark);
    if (m->matrices <= SPW_MODEL_MATRICES) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: its layers have %zu kinds of matrices; at most %d are described",
                    in->where, m->matrices, SPW_MODEL_MATRICES);
}
