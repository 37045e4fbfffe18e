#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/reserved_parts.h"

#include "base/memory.h"
#include "sim/memory/allocator/allocator_conf.h"
#include "sim/memory/kept/megatron_job.h"
#include "sim/weights/pipeline.h"

#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* --- Processes --- */

static void process_end(spw_reserved_process *p) {
    spw_allocator_destroy(p->allocator);
    p->allocator = NULL;
}

static uint64_t state_of(const spw_reserved_process *p, size_t slots) {
    return p->allocator != NULL ? spw_allocator_state(p->allocator, p->live, slots) : 1;
}

/* Of a job that goes on: with its moments. */
static spw_status process_begin(const spw_reserved_memory *m, const spw_reserved_stage *stage, int variant,
                                spw_reserved_process *p) {
    spw_list_replay replay;
    spw_status status = spw_allocator_create(&m->settings[variant], &p->allocator);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < stage->slots; i++) p->live[i].block = SPW_ALLOCATION_EMPTY;
    status = spw_event_list_replay(&stage->begin, p->allocator, p->live, &replay);
    if (status != SPW_OK || m->starts || replay.refused) return status;
    return spw_event_list_replay(&stage->moments, p->allocator, p->live, &replay);
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The end of a first step. `last` is then of the whole step. */
static spw_status take_moments(const spw_reserved_stage *stage, spw_reserved_process *p,
                               spw_memory_event *refused) {
    const spw_allocator_stats passes = p->last.after, before = p->last.before;
    const spw_status status = spw_event_list_replay(&stage->moments, p->allocator, p->live, &p->last);
    spw_allocator_stats *after = &p->last.after;
    if (p->last.refused) *refused = stage->moments.event[p->last.refused_event];
    p->last.before = before;
    after->requested_peak_bytes = larger(after->requested_peak_bytes, passes.requested_peak_bytes);
    after->allocated_peak_bytes = larger(after->allocated_peak_bytes, passes.allocated_peak_bytes);
    after->reserved_peak_bytes = larger(after->reserved_peak_bytes, passes.reserved_peak_bytes);
    return status;
}

/* refused: where it ran out. */
static spw_status process_step(const spw_reserved_memory *m, const spw_reserved_stage *stage, int variant,
                               const spw_event_list *list, spw_reserved_process *p,
                               spw_memory_event *refused) {
    spw_status status = SPW_OK;
    p->began = state_of(p, stage->slots);
    if (p->allocator == NULL) SPW_TRY(process_begin(m, stage, variant, p));
    if (m->request.every)
        SPW_TRY(spw_event_list_replay(list, p->allocator, p->live, &p->last));
    else
        SPW_TRY(spw_event_list_replay_cycles(list, p->allocator, p->live, stage->slots, &p->last));
    if (p->last.refused)
        *refused = list->event[p->last.refused_event];
    else if (m->starts && p->last.before.refused == 0)
        SPW_TRY(take_moments(stage, p, refused));
    p->failed = p->last.refused || p->last.before.refused > 0;
    p->retries = p->last.after.retries - p->last.before.retries;
    p->stranded = spw_allocator_stranded_bytes(p->allocator);
    if (p->failed) process_end(p);
    p->ended = state_of(p, stage->slots);

cleanup:
    return status;
}

/* --- Which are followed --- */

static spw_status follow(spw_reserved_memory *m, size_t place) {
    spw_reserved_rank *rank = &m->place[place];
    spw_reserved_stage *stage = &m->stage[spw_reserved_stage_of(m, place)];
    spw_status status = SPW_OK;
    if (rank->memory != NULL) return SPW_OK;
    SPW_TRY(spw_step_memory_create(m->request.point,
                                   &m->request.footprint[m->first_stage + spw_reserved_stage_of(m, place)],
                                   m->recorded, &rank->memory));
    SPW_TRY(spw_step_memory_begin(rank->memory, &stage->begin));
    SPW_TRY(spw_step_memory_optimizer(rank->memory, &stage->moments));
    stage->begin_bytes = (uint64_t)spw_event_list_peak(&stage->begin).after_forward_bytes;
    stage->moment_bytes = (uint64_t)spw_event_list_peak(&stage->moments).after_forward_bytes;
    stage->slots = spw_step_memory_slots(rank->memory);
    for (int v = m->first; v < m->variants; v++) SPW_TRY(SPW_ALLOC(stage->slots, &rank->process[v].live));
    m->followed++;

cleanup:
    return status;
}

/* FNV-1a. */
static uint64_t rows_number(const spw_reserved_memory *m, size_t rank) {
    const spw_rank_rows *rows = m->rows + rank * spw_reserved_cells(m);
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < spw_reserved_cells(m); i++) {
        const uint64_t three[] = {rows[i].held, rows[i].received, rows[i].sent};
        for (size_t k = 0; k < 3; k++) number = (number ^ three[k]) * UINT64_C(0x100000001b3);
    }
    return number;
}

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
        for (size_t i = 0; i < places && step == 0; i += m->request.every ? 1 : every) SPW_TRY(follow(m, i));
        return SPW_OK;
    }
    SPW_TRY(SPW_ALLOC(places, &left));
    memset(left, true, places * sizeof *left);
    while (looked < most && m->followed < SPW_RESERVED_MOST) {
        const size_t place = fullest(m, live, left);
        if (place == places) break;
        left[place] = false;
        looked += step > 0;
        if (m->place[place].memory != NULL || is_like_one_followed(m, place)) continue;
        SPW_TRY(follow(m, place));
        looked += step == 0;
    }

cleanup:
    spw_free(left);
    return status;
}

/* --- The job --- */

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
    SPW_TRY(SPW_ALLOC(cells, &m->rows));
    if (m->request.steps > 1 && job->snapshot == NULL) SPW_TRY(SPW_ALLOC(cells, &m->first_rows));
    SPW_TRY(SPW_ALLOC(spw_reserved_places(m), &m->place));
    SPW_TRY(SPW_ALLOC(m->stages, &m->stage));
    for (int v = 0; v < VARIANTS; v++) SPW_TRY(SPW_ALLOC(m->request.steps, &m->record[v]));
    if (job->snapshot != NULL) SPW_TRY(create_recorded(m));
    if (m->request.every)
        for (size_t i = 0; i < spw_reserved_places(m); i++) SPW_TRY(follow(m, i));

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
        spw_reserved_rank *rank = &m->place[i];
        spw_step_memory_destroy(rank->memory);
        for (int v = 0; v < VARIANTS; v++) {
            process_end(&rank->process[v]);
            spw_free(rank->process[v].live);
        }
    }
    for (size_t s = 0; s < m->stages && m->stage != NULL; s++)
        spw_event_list_destroy(&m->stage[s].begin), spw_event_list_destroy(&m->stage[s].moments);
    for (int v = 0; v < VARIANTS; v++) spw_free(m->record[v]);
    spw_snapshot_steps_destroy(m->recorded);
    spw_free(m->stage);
    spw_free(m->place);
    spw_free(m->rows);
    spw_free(m->first_rows);
    spw_free(m);
}

void spw_reserved_memory_note(spw_reserved_memory *m, size_t layer, size_t micro_batch, size_t rank,
                              spw_rank_rows rows) {
    m->rows[(rank * m->request.layers + layer) * m->micro_batches + micro_batch] = rows;
}

/* A step with the rows of the one before, which left every process as it found it, does the same again. */
static bool is_repeated(const spw_reserved_memory *m, const spw_reserved_rank *rank, uint64_t number) {
    bool same = rank->ran && rank->rows == number && m->recorded == NULL && !m->request.every;
    for (int v = m->first; v < m->variants && same; v++) {
        const spw_reserved_process *p = &rank->process[v];
        same = p->began != 0 && p->began == p->ended;
    }
    return same;
}

/* `list` is overwritten: one a thread, for all its ranks. */
static spw_status rank_step(spw_reserved_memory *m, size_t place, spw_event_list *list) {
    spw_reserved_rank *rank = &m->place[place];
    const size_t r = spw_reserved_rank_of(m, place);
    const spw_step_rows rows = {m->rows + r * spw_reserved_cells(m), m->request.layers, m->micro_batches};
    const uint64_t number = rows_number(m, r);
    if (is_repeated(m, rank, number)) return SPW_OK;
    spw_status status = spw_step_memory_step(rank->memory, &rows, list);
    if (status == SPW_OK && !m->request.every) status = spw_event_list_find_again(list);
    if (status != SPW_OK) return status;
    const spw_list_peak peak = spw_event_list_peak(list);
    rank->at = peak.peak_event < list->events ? list->event[peak.peak_event] : (spw_memory_event){.slot = 0};
    rank->peak_bytes = (uint64_t)peak.peak_bytes;
    rank->rows = number;
    rank->ran = true;
    rank->first = m->starts;
    for (int v = m->first; v < m->variants && status == SPW_OK; v++) {
        spw_reserved_process *p = &rank->process[v];
        status = process_step(m, &m->stage[spw_reserved_stage_of(m, place)], v, list, p, &rank->refused[v]);
    }
    return status;
}

static spw_status run_step(spw_reserved_memory *m, size_t step) {
    const int places = (int)spw_reserved_places(m);
    spw_status status = SPW_OK;
#pragma omp parallel
    {
        spw_event_list list = {.events = 0};
#pragma omp for schedule(dynamic, 1)
        for (int i = 0; i < places; i++) {
            if (m->place[i].memory == NULL) continue;
            const spw_status one = rank_step(m, (size_t)i, &list);
            if (one != SPW_OK) {
#pragma omp atomic write
                status = one;
            }
        }
        spw_event_list_destroy(&list);
    }
    return status == SPW_OK ? SPW_OK : spw_fail(status, "the allocator's replay of step %zu failed", step);
}

/* The routing of the first step among the moments, which that step did not have. */
static spw_status run_first_again(spw_reserved_memory *m) {
    const size_t bytes = m->request.ranks * spw_reserved_cells(m) * sizeof *m->rows;
    memcpy(m->rows, m->first_rows, bytes);
    const spw_status status = run_step(m, 0);
    for (int v = 0; v < m->variants && status == SPW_OK; v++) spw_reserved_record_run(m, v, 0);
    return status;
}

static spw_status run_times(spw_reserved_memory *m, size_t step, int runs) {
    spw_status status = SPW_OK;
    for (int v = m->first; v < m->variants; v++) m->record[v][step] = (spw_reserved_record){.failed = false};
    for (int run = 0; run < runs && status == SPW_OK; run++) {
        m->starts = step == 0 && run == 0;
        status = run_step(m, step);
        for (int v = m->first; v < m->variants && status == SPW_OK; v++) spw_reserved_record_run(m, v, step);
    }
    m->starts = false;
    return status;
}

/* The other setting, from the beginning of the processes that are followed. */
static spw_status run_other(spw_reserved_memory *m, int runs) {
    spw_status status = SPW_OK;
    m->first = AS_SET + 1;
    m->variants = VARIANTS;
    for (size_t i = 0; i < spw_reserved_places(m); i++) {
        spw_reserved_rank *rank = &m->place[i];
        if (rank->memory == NULL) continue;
        spw_step_memory_destroy(rank->memory);
        rank->memory = NULL;
        rank->ran = false;
        m->followed--;
        SPW_TRY(follow(m, i));
    }
    status = run_times(m, 0, runs);

cleanup:
    return status;
}

spw_status spw_reserved_memory_end_step(spw_reserved_memory *m, size_t step, const uint64_t *live) {
    spw_reserved_rows_spread(m);
    /* One step stands for all: what it leaves is there when the next one begins, which does the same from then on. */
    const int runs = m->request.steps == 1 && m->recorded == NULL ? STEADY : 1;
    spw_status status = choose(m, step, live != NULL ? live + m->first_stage * m->request.ranks : NULL);
    if (status == SPW_OK) status = run_times(m, step, runs);
    if (status == SPW_OK && m->alone && m->record[AS_SET][step].failed) status = run_other(m, runs);
    if (m->first_rows == NULL || status != SPW_OK) return status;
    if (step == 0) memcpy(m->first_rows, m->rows, m->request.ranks * spw_reserved_cells(m) * sizeof *m->rows);
    return step > 0 && step + 1 == m->request.steps ? run_first_again(m) : SPW_OK;
}
