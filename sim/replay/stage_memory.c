#include "sim/replay/stage_memory.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/schemes/point.h"

#include <string.h>

static size_t places_of(const spw_stage_memory *m) { return m->pipeline.stages * m->ranks; }

/* What one rank keeps in one stage is a figure for every micro-batch and chunk. */
static size_t parts_of(const spw_stage_memory *m) { return m->pipeline.micro_batches * m->pipeline.chunks; }

static spw_status place_layers(spw_stage_memory *m) {
    const spw_model *model = &m->point.job->model;
    const size_t layers = m->layers > model->moe_layers ? m->layers : model->moe_layers;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(layers, &m->stage));
    SPW_TRY(SPW_ALLOC(layers, &m->chunk));
    spw_pipeline_place_layers(&m->pipeline, model, layers, m->stage, m->chunk);

cleanup:
    return status;
}

/* One list where all stages have the same. */
static size_t lists_of(const spw_stage_memory *m) {
    return m->point.job->offload.modules != 0 ? m->pipeline.stages : 1;
}

static spw_status build_layers(spw_stage_memory *m) {
    spw_status status = SPW_ALLOC(lists_of(m), &m->layer);
    for (size_t s = 0; s < lists_of(m) && status == SPW_OK; s++) {
        const spw_layer_shape shape = spw_offload_shape(m->point.job, &m->point.shape, s);
        status = spw_layer_build(m->point.scheme, &shape, SPW_FLAVOUR_LIVE, &m->layer[s]);
    }
    return status;
}

/* What is remembered of a step. */
static size_t cells_of(const spw_stage_memory *m) { return m->ranks * m->layers * m->kinds; }

static spw_status remember(spw_stage_memory *m) {
    spw_status status = SPW_OK;
    if (!m->frees) return SPW_ALLOC(places_of(m) * parts_of(m), &m->kept);
    SPW_TRY(SPW_ALLOC(lists_of(m), &m->law));
    for (size_t l = 0; l < lists_of(m); l++) SPW_TRY(spw_live_law_create(&m->layer[l], &m->law[l]));
    SPW_TRY(SPW_ALLOC(lists_of(m) * cells_of(m), &m->use));
    SPW_TRY(SPW_ALLOC(cells_of(m), &m->all_rows));
    SPW_TRY(SPW_ALLOC(m->pipeline.stages, &m->walk));
    for (size_t s = 0; s < m->pipeline.stages; s++)
        SPW_TRY(spw_stage_walk_create(&(spw_stage_walked){&m->pipeline, &m->point.job->model, s, m->kinds,
                                                          !spw_remat_keeps_experts(m->point.job->remat)},
                                      m->footprint[s].keeps, &m->walk[s]));

cleanup:
    return status;
}

spw_status spw_stage_memory_create(const spw_point *point, size_t ranks, size_t layers, size_t steps,
                                   size_t kinds, bool follows, spw_stage_memory *m) {
    spw_status status = SPW_OK;
    *m = (spw_stage_memory){.point = *point,
                            .pipeline = spw_pipeline_of(point->job),
                            .ranks = ranks,
                            .layers = layers,
                            .kinds = kinds};
    SPW_TRY(build_layers(m));
    m->routed = follows && spw_layer_is_dynamic(&m->layer[0]);
    m->frees = spw_footprint_frees(point->scheme);
    SPW_TRY(SPW_RESIZE(m->pipeline.stages, &m->footprint)); /* which is filled whole */
    SPW_TRY(SPW_ALLOC(steps, &m->step_peak));
    SPW_TRY(SPW_ALLOC(m->pipeline.stages, &m->stage_peak));
    SPW_TRY(spw_footprint_of_stages(point, m->pipeline.stages, m->footprint));
    for (size_t s = 0; s < m->pipeline.stages; s++) {
        if (m->footprint[s].peak_bytes > m->footprint[m->worst_stage].peak_bytes) m->worst_stage = s;
        m->stage_peak[s] = m->routed ? 0 : m->footprint[s].peak_bytes;
    }
    if (m->routed) {
        SPW_TRY(place_layers(m));
        SPW_TRY(SPW_ALLOC(places_of(m), &m->held));
        SPW_TRY(SPW_ALLOC(places_of(m), &m->place_peak));
        SPW_TRY(remember(m));
        SPW_TRY(SPW_ALLOC(ranks * layers, &m->rows));
        SPW_TRY(SPW_ALLOC(layers, &m->worst_rows));
    }

cleanup:
    return status;
}

void spw_stage_memory_destroy(spw_stage_memory *m) {
    for (size_t s = 0; m->law != NULL && s < lists_of(m); s++) spw_live_law_destroy(&m->law[s]);
    for (size_t s = 0; m->layer != NULL && s < lists_of(m); s++) spw_layer_destroy(&m->layer[s]);
    spw_free(m->law);
    spw_free(m->layer);
    spw_free(m->footprint);
    spw_free(m->step_peak);
    spw_free(m->stage_peak);
    spw_free(m->place_peak);
    spw_free(m->stage);
    spw_free(m->chunk);
    spw_free(m->held);
    spw_free(m->kept);
    for (size_t s = 0; m->walk != NULL && s < m->pipeline.stages; s++) spw_stage_walk_destroy(m->walk[s]);
    spw_free(m->walk);
    spw_free(m->use);
    spw_free(m->all_rows);
    spw_free(m->rows);
    spw_free(m->worst_rows);
    *m = (spw_stage_memory){.ranks = 0};
}

void spw_stage_memory_begin(spw_stage_memory *m) {
    if (!m->routed) return;
    if (m->kept != NULL) memset(m->kept, 0, places_of(m) * parts_of(m) * sizeof *m->kept);
    for (size_t place = 0; place < places_of(m); place++)
        m->held[place] = (spw_stage_held){.layer = SIZE_MAX, .last = UINT64_MAX};
    memset(m->rows, 0, m->ranks * m->layers * sizeof *m->rows);
}

static bool is_last(const spw_stage_memory *m, size_t layer) {
    const size_t moe_layers = m->point.job->model.moe_layers;
    size_t next = layer + 1;
    while (next < moe_layers && m->stage[next] != m->stage[layer]) next++;
    return layer < moe_layers && next >= moe_layers;
}

/* Where layers are freed one by one; of the other law the last layer's part is known by its stage. */
static void remember_rows(spw_stage_memory *m, size_t layer, size_t micro_batch, size_t rank,
                          const spw_rank_rows *rows) {
    const size_t cell = (rank * m->layers + layer) * m->kinds + micro_batch;
    const bool saves = spw_remat_keeps_experts(m->point.job->remat);
    m->all_rows[cell] = *rows;
    for (size_t list = 0; list < lists_of(m); list++) {
        const spw_live_set live = spw_live_law_at(&m->law[list], rows);
        m->use[list * cells_of(m) + cell] =
            (spw_layer_use){live.backward_bytes, saves ? live.saved_bytes : 0};
        for (size_t l = layer; l < m->point.job->model.moe_layers && live.to_host_bytes > 0; l += m->layers) {
            spw_stage_held *h = &m->held[m->stage[l] * m->ranks + rank];
            const bool here = lists_of(m) == 1 || m->stage[l] == list;
            if (here && is_last(m, l) && live.to_host_bytes > h->stays) h->stays = live.to_host_bytes;
        }
    }
}

void spw_stage_memory_note(spw_stage_memory *m, size_t layer, size_t micro_batch, size_t rank,
                           spw_rank_rows rows) {
    const size_t moe_layers = m->point.job->model.moe_layers;
    if (!m->routed || (m->frees && micro_batch >= m->kinds)) return;
    spw_rank_rows *most = &m->rows[rank * m->layers + layer];
    if (micro_batch == 0 || rows.held > most->held) *most = rows;
    if (m->frees) {
        remember_rows(m, layer, micro_batch, rank, &rows);
        return;
    }
    const spw_live_set live = spw_layer_live_set(&m->layer[0], &rows);
    for (size_t l = layer; l == layer || l < moe_layers; l += m->layers) {
        const size_t place = m->stage[l] * m->ranks + rank;
        spw_stage_held *h = &m->held[place];
        if (l < moe_layers)
            m->kept[place * parts_of(m) + micro_batch * m->pipeline.chunks + m->chunk[l]] += live.saved_bytes;
        if (is_last(m, l) && live.saved_bytes < h->last) h->last = live.saved_bytes;
        if (h->layer == SIZE_MAX || live.backward_bytes > h->live.backward_bytes)
            *h = (spw_stage_held){live, rows, layer, h->last, h->stays};
    }
}

/* --- The end of a step --- */

/* Of one rank on one stage: what its peak is, and where. */
typedef struct found {
    uint64_t peak;
    spw_routed_memory memory;
    size_t layer, micro_batch;
} found;

static found look_at_stack(const spw_stage_memory *m, size_t place) {
    const size_t stage = place / m->ranks;
    const bool saves = spw_remat_keeps_experts(m->point.job->remat);
    const spw_stage_held *h = &m->held[place];
    const uint64_t kept = spw_pipeline_peak(&m->pipeline, stage, m->kept + place * parts_of(m));
    const spw_saved_rows saved = {kept, h->last < kept ? h->last : kept, h->stays};
    return (found){.peak = spw_footprint_peak(&m->footprint[stage], saves, &h->live, saved),
                   .memory = {.rows = h->rows, .saved = saved},
                   .layer = h->layer};
}

/* The uses of a place's rank. */
static size_t first_cell(const spw_stage_memory *m, size_t place) {
    return place % m->ranks * m->layers * m->kinds;
}

/* Layers of multi-token prediction have the rows of balanced routing: a trace has none of theirs. */
static const spw_stage_peaks *walk_through(const spw_stage_memory *m, size_t place) {
    const size_t stage = place / m->ranks, list = lists_of(m) > 1 ? stage : 0;
    const spw_footprint *f = &m->footprint[stage];
    const bool saves = spw_remat_keeps_experts(m->point.job->remat);
    const spw_layer_uses uses = {m->use + list * cells_of(m) + first_cell(m, place),
                                 m->layers,
                                 m->kinds,
                                 {f->live_set.backward_bytes, saves ? f->live_set.saved_bytes : 0}};
    return spw_stage_walk_run(m->walk[stage], &uses);
}

static found look_at_walk(const spw_stage_memory *m, size_t place, const spw_stage_peaks *peaks) {
    const spw_footprint *f = &m->footprint[place / m->ranks];
    const spw_saved_rows saved = {.all = peaks->at[SPW_MOMENT_LOSS].rows, .stays = m->held[place].stays};
    const spw_stage_moment *at = &peaks->at[SPW_MOMENT_MOE_LAYER];
    found out = {.memory = {.rows = f->rows, .walked = true, .peaks = *peaks, .saved = saved},
                 .layer = SIZE_MAX,
                 .micro_batch = at->micro_batch};
    if (!at->there || at->layer == SIZE_MAX) return out;
    out.layer = at->layer % m->layers;
    out.memory.rows = m->all_rows[first_cell(m, place) + out.layer * m->kinds + at->micro_batch % m->kinds];
    return out;
}

static void note_worst(spw_stage_memory *m, size_t step, size_t place, const found *worst) {
    const size_t each = m->kinds, rank = place % m->ranks;
    m->worst = worst->memory;
    m->worst_stage = place / m->ranks;
    m->worst_step = step;
    m->worst_layer = worst->layer != SIZE_MAX ? worst->layer : m->layers - 1;
    m->worst_rank = rank;
    for (size_t l = 0; l < m->layers; l++)
        m->worst_rows[l] = m->frees ? m->all_rows[(rank * m->layers + l) * each + worst->micro_batch % each]
                                    : m->rows[rank * m->layers + l];
}

void spw_stage_memory_end(spw_stage_memory *m, size_t step) {
    if (!m->routed) m->step_peak[step] = m->footprint[m->worst_stage].peak_bytes;
    for (size_t place = 0; place < places_of(m) && m->routed; place++) {
        const size_t stage = place / m->ranks;
        const spw_stage_peaks *walked = m->frees ? walk_through(m, place) : NULL;
        const uint64_t peak =
            m->frees ? spw_footprint_walked_peak(&m->footprint[stage], walked, m->held[place].stays)
                     : look_at_stack(m, place).peak;
        m->place_peak[place] = peak;
        if (peak > m->step_peak[step]) m->step_peak[step] = peak;
        if (peak > m->stage_peak[stage]) m->stage_peak[stage] = peak;
        if (peak <= m->worst_bytes) continue;
        const found here = m->frees ? look_at_walk(m, place, walked) : look_at_stack(m, place);
        m->worst_bytes = peak;
        note_worst(m, step, place, &here);
    }
}

spw_status spw_stage_memory_footprint(const spw_stage_memory *m, spw_footprint *out) {
    *out = m->footprint[m->worst_stage];
    if (!m->routed) return SPW_OK;
    return spw_footprint_of_stage(&m->point, m->worst_stage, &m->worst, out);
}
