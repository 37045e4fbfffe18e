#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/reserved_parts.h"

#include "base/memory.h"
#include "sim/memory/allocator/allocator_conf.h"
#include "sim/memory/kept/megatron_job.h"
#include "sim/weights/pipeline.h"

#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* --- Which are followed --- */

static bool is_like_one_followed(const spw_reserved_memory *m, size_t place) {
    const size_t first = spw_reserved_stage_of(m, place) * m->request.ranks;
    const spw_rank_rows *mine = m->rows + spw_reserved_rank_of(m, place) * spw_reserved_cells(m);
    for (size_t r = 0; r < m->request.ranks; r++)
        if (m->place[first + r].memory != NULL &&
            memcmp(mine, m->rows + r * spw_reserved_cells(m), spw_reserved_cells(m) * sizeof *mine) == 0)
            return true;
    return false;
}

/* The place with most live bytes of those that are left; places: none is. */
static size_t fullest(const spw_reserved_memory *m, const uint64_t *live, const bool *left) {
    size_t most = spw_reserved_places(m);
    for (size_t i = 0; i < spw_reserved_places(m); i++)
        if (left[i] && (most == spw_reserved_places(m) || live[i] > live[most])) most = i;
    return most;
}

static spw_status choose(spw_reserved_memory *m, size_t step, const uint64_t *live) {
    const size_t places = spw_reserved_places(m);
    const size_t most = step == 0 ? SPW_RESERVED_FOLLOWED : 1;
    size_t looked = 0;
    bool *left = NULL;
    spw_status status = SPW_OK;
    const size_t every = live == NULL ? m->request.ranks : 1; /* of places: one a stage */
    if (m->request.every || places <= SPW_RESERVED_FOLLOWED || live == NULL) {
        for (size_t i = 0; i < places && step == 0; i += m->request.every ? 1 : every) {
            spw_reserved_rows_spread(m, spw_reserved_rank_of(m, i));
            SPW_TRY(spw_reserved_follow(m, i));
        }
        return SPW_OK;
    }
    SPW_TRY(SPW_ALLOC(places, &left));
    memset(left, true, places * sizeof *left);
    while (looked < most && m->followed < SPW_RESERVED_MOST) {
        const size_t place = fullest(m, live, left);
        if (place == places) break;
        left[place] = false;
        looked += step > 0;
        spw_reserved_rows_spread(m, spw_reserved_rank_of(m, place));
        if (m->place[place].memory != NULL || is_like_one_followed(m, place)) continue;
        SPW_TRY(spw_reserved_follow(m, place));
        looked += step == 0;
    }

cleanup:
    spw_free(left);
    return status;
}

/* --- The job --- */

static void forget_stages(spw_reserved_memory *m) {
    for (size_t s = 0; s < m->stages; s++) {
        spw_step_memory_destroy(m->stage[s].memory);
        m->stage[s].memory = NULL;
    }
}

static spw_status create_recorded(spw_reserved_memory *m) {
    const spw_job *job = m->request.point->job;
    const spw_pipeline pipeline = spw_pipeline_of(job);
    spw_megatron_shape shape;
    spw_recorded_layers *layers = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_megatron_recorded_layers(m->request.point, &shape));
    SPW_TRY(spw_recorded_layers_create(&shape, &pipeline, &job->model, job->snapshot_stage, &layers));
    SPW_TRY(
        spw_snapshot_steps_create(job->snapshot, layers, (uint64_t)shape.tokens * shape.top_k, &m->recorded));

cleanup:
    spw_recorded_layers_destroy(layers);
    return status;
}

static spw_status create_parts(spw_reserved_memory *m) {
    const spw_job *job = m->request.point->job;
    size_t cells = 0;
    spw_status status = SPW_OK;
    if (!spw_mul_size(m->request.ranks, m->request.layers, &cells) ||
        !spw_mul_size(cells, m->micro_batches, &cells))
        SPW_TRY(spw_fail(SPW_EARG, "too many ranks, layers and micro-batches"));
    SPW_TRY(SPW_RESIZE(cells, &m->rows)); /* all are noted before any is read */
    if (m->request.steps > 1 && job->snapshot == NULL) SPW_TRY(SPW_ALLOC(cells, &m->first_rows));
    SPW_TRY(SPW_ALLOC(m->request.ranks, &m->spread));
    SPW_TRY(SPW_ALLOC(spw_reserved_places(m), &m->place));
    SPW_TRY(SPW_ALLOC(m->stages, &m->stage));
    for (int v = 0; v < VARIANTS; v++) SPW_TRY(SPW_ALLOC(m->request.steps, &m->record[v]));
    if (job->snapshot != NULL) SPW_TRY(create_recorded(m));
    if (m->request.every)
        for (size_t i = 0; i < spw_reserved_places(m); i++) SPW_TRY(spw_reserved_follow(m, i));
    if (m->request.later) SPW_TRY(spw_reserved_later_create(m));

cleanup:
    return status;
}

spw_status spw_reserved_memory_create(const spw_reserved_request *request, spw_reserved_memory **out) {
    const spw_job *job = request->point->job;
    const spw_pipeline pipeline = spw_pipeline_of(job);
    spw_reserved_memory *m = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &m));
    m->request = *request;
    m->stages =
        job->snapshot != NULL ? 1 : pipeline.stages; /* other stages than the recorded one are unlike it */
    m->first_stage = job->snapshot != NULL ? job->snapshot_stage : 0;
    m->micro_batches = pipeline.micro_batches;
    m->settings[AS_SET] = spw_allocator_conf_settings(&job->allocator, request->footprint->budget_bytes,
                                                      (uint64_t)(job->cluster.hbm_gib.value * GIB));
    /* as seen there (docs/schemes.md, section 6.8); other lists were held against allocators whose addresses rose */
    m->settings[AS_SET].addresses_fall = request->point->scheme->type->memory.whole_steps;
    m->settings[EXPANDABLE] = m->settings[AS_SET];
    m->settings[EXPANDABLE].expandable_segments = true;
    m->alone = request->as_set_alone && request->steps == 1 && job->snapshot == NULL && !request->every &&
               !m->settings[AS_SET].expandable_segments;
    m->variants = m->alone || m->settings[AS_SET].expandable_segments ? 1 : VARIANTS;
    SPW_TRY(create_parts(m));
    *out = m;
    m = NULL;

cleanup:
    spw_reserved_memory_destroy(m);
    return status;
}

void spw_reserved_memory_destroy(spw_reserved_memory *m) {
    if (m == NULL) return;
    for (size_t i = 0; i < spw_reserved_places(m) && m->place != NULL; i++) {
        spw_reserved_drop(m, i);
        spw_free(m->place[i].turn);
        spw_free(m->place[i].now);
    }
    spw_reserved_later_destroy(m);
    if (m->stage != NULL) forget_stages(m);
    for (size_t s = 0; s < m->stages && m->stage != NULL; s++)
        spw_event_list_destroy(&m->stage[s].begin), spw_event_list_destroy(&m->stage[s].moments);
    for (int v = 0; v < VARIANTS; v++) spw_free(m->record[v]);
    spw_snapshot_steps_destroy(m->recorded);
    spw_free(m->stage);
    spw_free(m->place);
    spw_free(m->rows);
    spw_free(m->first_rows);
    spw_free(m->spread);
    spw_free(m);
}

void spw_reserved_memory_note(spw_reserved_memory *m, size_t layer, size_t micro_batch, size_t rank,
                              spw_rank_rows rows) {
    m->rows[(rank * m->request.layers + layer) * m->micro_batches + micro_batch] = rows;
}

/* The routing of the first step among the moments, which that step did not have. */
static spw_status run_first_again(spw_reserved_memory *m) {
    const size_t bytes = m->request.ranks * spw_reserved_cells(m) * sizeof *m->rows;
    memcpy(m->rows, m->first_rows, bytes);
    return spw_reserved_run_again(m, 0);
}

/* The other setting, from the beginning of the processes that are followed. */
static spw_status run_other(spw_reserved_memory *m, int runs) {
    spw_status status = SPW_OK;
    m->first = AS_SET + 1;
    m->variants = VARIANTS;
    bool *followed = NULL;
    SPW_TRY(SPW_ALLOC(spw_reserved_places(m), &followed));
    for (size_t i = 0; i < spw_reserved_places(m); i++) {
        followed[i] = m->place[i].memory != NULL;
        spw_reserved_forget(m, i);
    }
    forget_stages(m);
    m->followed = 0;
    for (size_t i = 0; i < spw_reserved_places(m); i++) {
        m->place[i].ran = false;
        if (followed[i]) SPW_TRY(spw_reserved_follow(m, i));
    }
    status = spw_reserved_run(m, 0, runs);

cleanup:
    spw_free(followed);
    return status;
}

spw_status spw_reserved_memory_end_step(spw_reserved_memory *m, size_t step, const uint64_t *live) {
    memset(m->spread, false, m->request.ranks * sizeof *m->spread);
    for (size_t r = 0; r < m->request.ranks && m->request.steps > 1; r++) spw_reserved_rows_spread(m, r);
    /* One step stands for all: what it leaves is there when the next one begins, which does the same from then on. */
    const int runs = spw_reserved_is_steady(m) ? STEADY : 1;
    spw_status status = choose(m, step, live != NULL ? live + m->first_stage * m->request.ranks : NULL);
    if (status == SPW_OK && m->later != NULL) return spw_reserved_later_end_step(m, step);
    if (status == SPW_OK) status = spw_reserved_run(m, step, runs);
    if (status == SPW_OK && m->alone && m->record[AS_SET][step].failed) status = run_other(m, runs);
    if (m->first_rows == NULL || status != SPW_OK) return status;
    if (step == 0) memcpy(m->first_rows, m->rows, m->request.ranks * spw_reserved_cells(m) * sizeof *m->rows);
    return step > 0 && step + 1 == m->request.steps ? run_first_again(m) : SPW_OK;
}
