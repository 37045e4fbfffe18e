/* Processes that are run when all steps have ended: each needs nothing of the others, so that they can be shared out. What comes of a
 * process is merged in the order of the places, which gives the same as all of them step by step: maxima of which the first counts,
 * sums, and the first death. The first step's routing that comes again behind the last step is kept apart until all are in. */
#include "base/grow.h"
#include "base/memory.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/reserved_parts.h"
#include "sim/schemes/point.h"
#include "sim/weights/pipeline.h"

#include <string.h>

typedef struct followed {
    size_t place, begin; /* the first step of it */
} followed;

struct spw_reserved_later {
    followed *list; /* [places] */
    size_t count;
    bool over; /* the last step has ended */
    spw_rank_rows
        *rows; /* by step, then by place of the list, those that are followed by then: [cells] each */
    size_t used, capacity;
    spw_rank_rows *first;       /* [count][cells] of the first step */
    size_t *step_begin, *order; /* [steps]: where in rows; [count]: the list by places, once all is over */
    /* Of the runs taken so far: */
    spw_reserved_record again[VARIANTS];
    uint64_t stranded[VARIANTS],
        died[VARIANTS]; /* died: in which step, `steps` behind the last; UINT64_MAX: nobody has */
    spw_reserved_death death[VARIANTS];
};

/* In front of what a process has done: then records [VARIANTS] of every step from its begin on, and of the step that comes again. */
typedef struct run_note {
    uint64_t stranded[VARIANTS], died[VARIANTS];
    spw_reserved_death death[VARIANTS];
} run_note;

static size_t most_followed(const spw_reserved_request *q, size_t places) {
    return q->every || places < SPW_RESERVED_MOST ? places : SPW_RESERVED_MOST;
}

uint64_t spw_reserved_memory_later_bytes(const spw_reserved_request *request) {
    const spw_pipeline pipeline = spw_pipeline_of(request->point->job);
    return (uint64_t)most_followed(request, request->ranks * pipeline.stages) * request->layers *
           pipeline.micro_batches * (request->steps + 1) * sizeof(spw_rank_rows);
}

spw_status spw_reserved_later_create(spw_reserved_memory *m) {
    spw_reserved_later *l = NULL;
    spw_status status = SPW_ALLOC(1, &l);
    if (status != SPW_OK) return status;
    m->later = l;
    for (int v = 0; v < VARIANTS; v++) l->died[v] = UINT64_MAX;
    SPW_TRY(SPW_ALLOC(spw_reserved_places(m), &l->list));
    SPW_TRY(SPW_ALLOC(spw_reserved_places(m), &l->order));
    SPW_TRY(SPW_ALLOC(m->request.steps, &l->step_begin));

cleanup:
    return status;
}

void spw_reserved_later_destroy(spw_reserved_memory *m) {
    spw_reserved_later *l = m->later;
    if (l == NULL) return;
    spw_free(l->list);
    spw_free(l->order);
    spw_free(l->step_begin);
    spw_free(l->rows);
    spw_free(l->first);
    spw_free(l);
    m->later = NULL;
}

static spw_rank_rows *rows_of_rank(const spw_reserved_memory *m, spw_rank_rows *rows, size_t place) {
    return rows + spw_reserved_rank_of(m, place) * spw_reserved_cells(m);
}

/* --- Steps that end --- */

static void list_new(spw_reserved_memory *m, size_t step) {
    spw_reserved_later *l = m->later;
    for (size_t place = 0; place < spw_reserved_places(m); place++) {
        bool known = m->place[place].memory == NULL;
        for (size_t i = 0; i < l->count && !known; i++) known = l->list[i].place == place;
        if (!known) l->list[l->count++] = (followed){place, step};
    }
}

/* The list by places: they are merged in that order. */
static void put_in_order(spw_reserved_later *l) {
    for (size_t i = 0; i < l->count; i++) {
        size_t at = i;
        for (; at > 0 && l->list[l->order[at - 1]].place > l->list[i].place; at--)
            l->order[at] = l->order[at - 1];
        l->order[at] = i;
    }
    l->over = true;
}

spw_status spw_reserved_later_end_step(spw_reserved_memory *m, size_t step) {
    spw_reserved_later *l = m->later;
    const size_t cells = spw_reserved_cells(m);
    spw_status status = SPW_OK;
    if (step == 0) memcpy(m->first_rows, m->rows, m->request.ranks * cells * sizeof *m->rows);
    list_new(m, step);
    SPW_TRY(SPW_GROW(l->used, l->used + l->count * cells, &l->capacity, &l->rows));
    l->step_begin[step] = l->used;
    for (size_t i = 0; i < l->count; i++, l->used += cells)
        memcpy(l->rows + l->used, rows_of_rank(m, m->rows, l->list[i].place), cells * sizeof *l->rows);
    if (step + 1 < m->request.steps) return SPW_OK;
    SPW_TRY(SPW_ALLOC(l->count * cells, &l->first));
    for (size_t i = 0; i < l->count; i++)
        memcpy(l->first + i * cells, rows_of_rank(m, m->first_rows, l->list[i].place),
               cells * sizeof *l->first);
    put_in_order(l);

cleanup:
    return status;
}

static spw_status later_found(spw_reserved_memory *m, const spw_state *state) {
    spw_reserved_later *l = m->later;
    const size_t cells = spw_reserved_cells(m);
    spw_status status = SPW_OK;
    SPW_TRY(spw_state_part(state, &l->count, sizeof l->count));
    SPW_TRY(spw_state_part(state, &l->used, sizeof l->used));
    if (state->in != NULL && l->first == NULL) {
        if (l->count > spw_reserved_places(m) || l->used > m->request.steps * l->count * cells)
            SPW_TRY(
                spw_fail(SPW_EFORMAT, "%zu processes to follow, of %zu", l->count, spw_reserved_places(m)));
        SPW_TRY(SPW_ALLOC(l->used, &l->rows));
        SPW_TRY(SPW_ALLOC(l->count * cells, &l->first));
        l->capacity = l->used;
    }
    SPW_TRY(spw_state_part(state, l->list, l->count * sizeof *l->list));
    SPW_TRY(spw_state_part(state, l->step_begin, m->request.steps * sizeof *l->step_begin));
    SPW_TRY(spw_state_part(state, l->rows, l->used * sizeof *l->rows));
    SPW_TRY(spw_state_part(state, l->first, l->count * cells * sizeof *l->first));
    if (state->in != NULL) put_in_order(l);

cleanup:
    return status;
}

spw_status spw_reserved_memory_found(spw_reserved_memory *m, const spw_state *state) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_state_part(state, &m->followed, sizeof m->followed));
    SPW_TRY(spw_state_part(state, &m->variants, sizeof m->variants));
    SPW_TRY(spw_state_part(state, m->stranded, sizeof m->stranded));
    SPW_TRY(spw_state_part(state, m->death, sizeof m->death));
    for (int v = 0; v < VARIANTS; v++)
        SPW_TRY(spw_state_part(state, m->record[v], m->request.steps * sizeof *m->record[v]));
    if (m->later != NULL) SPW_TRY(later_found(m, state));

cleanup:
    return status;
}

/* --- Runs --- */

size_t spw_reserved_memory_runs(const spw_reserved_memory *m) {
    return m->later != NULL && m->later->over ? m->later->count : 0;
}

bool spw_reserved_memory_has_parts(const spw_reserved_memory *m) { return m->variants == VARIANTS; }

/* Settings [first, end) of a part. */
typedef struct settings {
    int first, end;
} settings;

static settings settings_of(const spw_reserved_memory *m, spw_reserved_part part) {
    return (settings){part == SPW_RESERVED_OTHER ? EXPANDABLE : AS_SET,
                      part == SPW_RESERVED_AS_SET ? EXPANDABLE : m->variants};
}

static size_t records_of(const spw_reserved_memory *m, const followed *one) {
    return (m->request.steps - one->begin + 1) * VARIANTS;
}

/* One step, of which `rows` are the place's; `number`: for who died first. */
static spw_status run_step(spw_reserved_memory *m, size_t place, size_t step, bool again,
                           const spw_rank_rows *rows, run_note *note, spw_reserved_record *record) {
    const size_t number = again ? m->request.steps : step;
    memcpy(rows_of_rank(m, m->rows, place), rows, spw_reserved_cells(m) * sizeof *rows);
    const spw_status status = spw_reserved_run_place(m, place, step == 0 && !again);
    for (int v = m->first; v < m->variants && status == SPW_OK; v++) {
        spw_reserved_record_place(m, v, step, place, &record[v]);
        if (m->death[v].there && note->died[v] == UINT64_MAX) note->died[v] = number;
    }
    return status;
}

spw_status spw_reserved_memory_run(spw_reserved_memory *m, size_t run, spw_reserved_part part,
                                   spw_note *out) {
    const spw_reserved_later *l = m->later;
    const settings all = {m->first, m->variants}, of = settings_of(m, part);
    const size_t at = l->order[run], cells = spw_reserved_cells(m), steps = m->request.steps;
    const followed one = l->list[at];
    const size_t bytes = records_of(m, &one) * sizeof(spw_reserved_record);
    spw_reserved_record *record = NULL;
    run_note note = {.died = {UINT64_MAX, UINT64_MAX}};
    void *place = NULL;
    spw_status status = SPW_OK;
    memset(m->death, 0, sizeof m->death);
    memset(m->stranded, 0, sizeof m->stranded);
    m->first = of.first, m->variants = of.end;
    SPW_TRY(SPW_ALLOC(records_of(m, &one), &record));
    SPW_TRY(spw_reserved_follow(m, one.place));
    for (size_t s = one.begin; s < steps; s++)
        SPW_TRY(run_step(m, one.place, s, false, l->rows + l->step_begin[s] + at * cells, &note,
                         record + (s - one.begin) * VARIANTS));
    SPW_TRY(run_step(m, one.place, 0, true, l->first + at * cells, &note,
                     record + (steps - one.begin) * VARIANTS));
    memcpy(note.stranded, m->stranded, sizeof note.stranded);
    memcpy(note.death, m->death, sizeof note.death);
    SPW_TRY(spw_note_add(out, sizeof note, &place));
    memcpy(place, &note, sizeof note);
    SPW_TRY(spw_note_add(out, bytes, &place));
    memcpy(place, record, bytes);

cleanup:
    m->first = all.first, m->variants = all.end;
    spw_reserved_drop(m, one.place);
    memset(m->death, 0, sizeof m->death);
    memset(m->stranded, 0, sizeof m->stranded);
    spw_free(record);
    return status;
}

static void merge(spw_reserved_record *all, const spw_reserved_record *one) {
    if (one->requested > all->requested) {
        all->requested = one->requested;
        all->live_place = one->live_place;
        all->live_layer = one->live_layer;
        all->live_micro_batch = one->live_micro_batch;
    }
    if (one->allocated > all->allocated) all->allocated = one->allocated;
    if (one->reserved > all->reserved) all->reserved = one->reserved, all->place = one->place;
    all->retries += one->retries;
    all->failed = all->failed || one->failed;
}

/* All runs are in. */
static void complete(spw_reserved_memory *m) {
    const spw_reserved_later *l = m->later;
    for (int v = 0; v < m->variants; v++) {
        spw_reserved_record *first = &m->record[v][0];
        const uint64_t retries = first->retries > l->again[v].retries ? first->retries : l->again[v].retries;
        merge(first, &l->again[v]);
        first->retries = retries;
    }
    memcpy(m->stranded, l->stranded, sizeof m->stranded);
    memcpy(m->death, l->death, sizeof m->death);
}

spw_status spw_reserved_memory_take(spw_reserved_memory *m, size_t run, spw_reserved_part part,
                                    spw_note_reader *reader) {
    const settings of = settings_of(m, part);
    spw_reserved_later *l = m->later;
    const followed one = l->list[l->order[run]];
    const size_t steps = m->request.steps - one.begin;
    const void *at = NULL, *records = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_note_next(reader, sizeof(run_note), &at));
    SPW_TRY(spw_note_next(reader, records_of(m, &one) * sizeof(spw_reserved_record), &records));
    const run_note *note = at;
    const spw_reserved_record *record = records;
    for (int v = of.first; v < of.end; v++) {
        for (size_t s = 0; s < m->request.steps && run == 0; s++)
            m->record[v][s] = (spw_reserved_record){.failed = false};
        for (size_t s = 0; s < steps; s++)
            merge(&m->record[v][one.begin + s], &record[s * VARIANTS + (size_t)v]);
        merge(&l->again[v], &record[steps * VARIANTS + (size_t)v]);
        if (note->stranded[v] > l->stranded[v]) l->stranded[v] = note->stranded[v];
        if (note->died[v] < l->died[v]) l->died[v] = note->died[v], l->death[v] = note->death[v];
    }
    if (run + 1 == l->count && of.end == m->variants) complete(m);

cleanup:
    return status;
}
