/* The runs of a step: every rank that is followed by itself, one run after the other. */
#include "base/failure.h"
#include "base/memory.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/reserved_parts.h"

#include <string.h>

/* One run of one setting. */
typedef struct turn {
    int variant;
    bool starts;   /* the job's first step */
    bool ends;     /* no run follows it */
    uint64_t sure; /* bytes that its list is to have live at once; 0: perhaps it has not */
} turn;

/* --- Processes --- */

static void process_end(spw_reserved_process *p) {
    spw_allocator_destroy(p->allocator);
    p->allocator = NULL;
    p->known = false;
}

/* As it is now. To find it takes long, so that it is found when somebody asks. */
static uint64_t state_of(spw_reserved_process *p, size_t slots) {
    if (!p->known) p->state = p->allocator != NULL ? spw_allocator_state(p->allocator, p->live, slots) : 1;
    p->known = true;
    return p->state;
}

static uint64_t glance_of(const spw_reserved_process *p) {
    return p->allocator != NULL ? spw_allocator_glance(p->allocator) : 0;
}

static void process_destroy(spw_reserved_process *p) {
    process_end(p);
    spw_free(p->live);
    p->live = NULL;
}

/* With what a process allocates first. */
static spw_status process_create(const spw_reserved_memory *m, const spw_reserved_stage *stage, int variant,
                                 spw_reserved_process *p) {
    spw_list_replay replay;
    const spw_status status = spw_allocator_create(&m->settings[variant], &p->allocator);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < stage->slots; i++) p->live[i].block = SPW_ALLOCATION_EMPTY;
    return spw_event_list_replay(&stage->begin, p->allocator, p->live, &replay);
}

/* Of a job that goes on: with its moments. */
static spw_status process_begin(const spw_reserved_memory *m, const spw_reserved_stage *stage, turn at,
                                spw_reserved_process *p) {
    const spw_reserved_process *begun = &stage->begun[at.variant];
    spw_list_replay replay;
    spw_status status = SPW_OK;
    if (begun->allocator == NULL) {
        SPW_TRY(process_create(m, stage, at.variant, p));
    } else {
        SPW_TRY(spw_allocator_copy(begun->allocator, &p->allocator));
        memcpy(p->live, begun->live, stage->slots * sizeof *p->live);
    }
    if (!at.starts && spw_allocator_get_stats(p->allocator).refused == 0)
        SPW_TRY(spw_event_list_replay(&stage->moments, p->allocator, p->live, &replay));

cleanup:
    return status;
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
static spw_status process_step(const spw_reserved_memory *m, const spw_reserved_stage *stage, turn at,
                               const spw_event_list *list, spw_reserved_process *p,
                               spw_memory_event *refused) {
    spw_status status = SPW_OK;
    p->began = at.ends ? 0 : state_of(p, stage->slots);
    p->glance = at.ends ? 0 : glance_of(p);
    p->known = false;
    if (p->allocator == NULL) SPW_TRY(process_begin(m, stage, at, p));
    if (m->request.every)
        SPW_TRY(spw_event_list_replay(list, p->allocator, p->live, &p->last));
    else
        SPW_TRY(spw_event_list_replay_cycles(list, p->allocator, p->live, stage->slots, at.sure, &p->last));
    p->unsure = p->last.unsure;
    if (p->last.refused) {
        if (list->event != NULL) *refused = list->event[p->last.refused_event];
    } else if (at.starts && p->last.before.refused == 0) {
        SPW_TRY(take_moments(stage, p, refused));
    }
    p->failed = p->last.refused || p->last.before.refused > 0;
    p->retries = p->last.after.retries - p->last.before.retries;
    p->stranded = spw_allocator_stranded_bytes(p->allocator);
    if (p->failed) process_end(p);

cleanup:
    return status;
}

/* --- Lists --- */

/* That of a thread. Of a stage whose ranks are alike it is kept. */
typedef struct lists {
    spw_event_list list;
    size_t stage, place; /* of what it is; place SIZE_MAX: of none */
    spw_list_tops tops;
} lists;

static spw_step_rows rows_of(const spw_reserved_memory *m, size_t place) {
    return (spw_step_rows){m->rows + spw_reserved_rank_of(m, place) * spw_reserved_cells(m),
                           m->request.layers, m->micro_batches};
}

static void note_peak(const spw_event_list *list, spw_list_top top, spw_reserved_rank *rank) {
    rank->now->at = top.event < list->events ? list->event[top.event] : (spw_memory_event){.slot = 0};
    rank->now->peak_bytes = (uint64_t)top.bytes;
}

/* That of the stage with the rank's rows. */
static spw_status alike_list(spw_reserved_memory *m, size_t place, int run, lists *l) {
    const size_t s = spw_reserved_stage_of(m, place);
    const spw_reserved_stage *stage = &m->stage[s];
    const spw_step_rows rows = rows_of(m, place);
    spw_status status = SPW_OK;
    if (l->place != place) {
        if (l->place == SIZE_MAX || l->stage != s) {
            l->place = SIZE_MAX;
            SPW_TRY(spw_event_list_copy(&stage->list, &l->list));
            SPW_TRY(spw_event_list_remember(&l->list));
        }
        l->place = place;
        l->stage = s;
        spw_step_memory_refill(stage->memory, &rows, &l->list);
        SPW_TRY(spw_event_list_find_again(&l->list));
        SPW_TRY(spw_event_list_outline(&l->list));
        l->tops = spw_event_list_tops(&l->list);
    }
    note_peak(&l->list, run == 0 ? l->tops.first : l->tops.later, &m->place[place]);

cleanup:
    return status;
}

/* To look for visits in each step's list pays where they are much of it, as they are then of the next one's. */
static spw_status find_visits(spw_reserved_rank *rank, spw_event_list *list) {
    size_t inside = 0;
    if (rank->unvisited) return SPW_OK;
    spw_status status = spw_event_list_find_visits(list, NULL, 0);
    if (status == SPW_OK) status = spw_event_list_outline(list);
    if (status == SPW_OK) status = spw_event_list_remember(list);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < list->visits; i++) inside += list->visit[i].end - list->visit[i].begin;
    rank->unvisited = 2 * inside < list->events;
    return SPW_OK;
}

static spw_status list_of(spw_reserved_memory *m, size_t place, int run, lists *l) {
    const spw_step_rows rows = rows_of(m, place);
    spw_reserved_rank *rank = &m->place[place];
    spw_status status = SPW_OK;
    if (m->stage[spw_reserved_stage_of(m, place)].memory != NULL) return alike_list(m, place, run, l);
    l->place = SIZE_MAX;
    SPW_TRY(spw_step_memory_step(rank->memory, &rows, &l->list));
    if (!m->request.every) {
        SPW_TRY(spw_event_list_find_again(&l->list));
        SPW_TRY(find_visits(rank, &l->list));
    }
    const spw_list_peak peak = spw_event_list_peak(&l->list);
    note_peak(&l->list, (spw_list_top){peak.peak_bytes, peak.peak_event}, rank);

cleanup:
    return status;
}

/* Of a stage whose ranks are alike, by the first that is followed. */
static spw_status make_stage_list(spw_reserved_memory *m, size_t s) {
    const size_t end = (s + 1) * m->request.ranks;
    spw_reserved_stage *stage = &m->stage[s];
    size_t place = s * m->request.ranks;
    spw_status status = SPW_OK;
    while (place < end && m->place[place].memory == NULL) place++;
    if (place == end || stage->memory == NULL) return SPW_OK;
    const spw_step_rows rows = rows_of(m, place);
    SPW_TRY(spw_step_memory_every_step(stage->memory, &rows, &stage->list));
    SPW_TRY(spw_step_memory_find_visits(stage->memory, &stage->list));

cleanup:
    return status;
}

/* Several threads make them, each those of a stage. */
static spw_status make_lists(spw_reserved_memory *m) {
    spw_failure failure = SPW_NO_FAILURE;
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t s = 0; s < m->stages; s++) spw_failure_note(&failure, s, make_stage_list(m, s));
    return spw_failure_tell(&failure);
}

/* Where several ranks of a stage begin, they do it by one. */
static spw_status begin_stages(spw_reserved_memory *m) {
    spw_status status = SPW_OK;
    for (size_t s = 0; s < m->stages && m->starts; s++) {
        spw_reserved_stage *stage = &m->stage[s];
        size_t followed = 0;
        for (size_t r = 0; r < m->request.ranks; r++)
            followed += m->place[s * m->request.ranks + r].memory != NULL;
        for (int v = m->first; v < m->variants && followed > 1; v++) {
            SPW_TRY(SPW_ALLOC(stage->slots, &stage->begun[v].live));
            SPW_TRY(process_create(m, stage, v, &stage->begun[v]));
        }
    }

cleanup:
    return status;
}

/* What stages have for one run. */
static void drop_shared(spw_reserved_memory *m) {
    for (size_t s = 0; s < m->stages; s++) {
        spw_event_list_destroy(&m->stage[s].list);
        for (int v = 0; v < VARIANTS; v++) process_destroy(&m->stage[s].begun[v]);
    }
}

/* --- Ranks --- */

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

/* A step with the rows of the one before, which left every process as it found it, does the same again. */
static bool is_repeated(spw_reserved_memory *m, size_t place, uint64_t number) {
    const size_t slots = m->stage[spw_reserved_stage_of(m, place)].slots;
    spw_reserved_rank *rank = &m->place[place];
    bool same = rank->ran && rank->rows == number && m->recorded == NULL && !m->request.every;
    for (int v = m->first; v < m->variants && same; v++) {
        spw_reserved_process *p = &rank->now->process[v];
        same = p->began != 0 && p->glance == glance_of(p) && p->began == state_of(p, slots);
    }
    return same;
}

/* sure: every list is thought to come to its peak. */
static spw_status rank_run(spw_reserved_memory *m, size_t place, int run, bool sure, lists *l) {
    spw_reserved_rank *rank = &m->place[place];
    const spw_reserved_stage *stage = &m->stage[spw_reserved_stage_of(m, place)];
    const bool starts = m->starts && run == 0;
    spw_status status = list_of(m, place, run, l);
    rank->ran = true;
    rank->now->first = starts;
    for (int v = m->first; v < m->variants && status == SPW_OK; v++) {
        const turn at = {v, starts, spw_reserved_is_steady(m) && run + 1 == STEADY,
                         sure ? rank->now->peak_bytes : 0};
        status = process_step(m, stage, at, &l->list, &rank->now->process[v], &rank->now->refused[v]);
    }
    return status;
}

/* What is held now stays. */
static void show_turn(const spw_reserved_turn *kept, spw_reserved_rank *rank) {
    const spw_reserved_turn last = *rank->now;
    *rank->now = *kept;
    for (int v = 0; v < VARIANTS; v++) {
        rank->now->process[v].allocator = last.process[v].allocator;
        rank->now->process[v].live = last.process[v].live;
    }
}

static bool is_unsure(const spw_reserved_memory *m, const spw_reserved_turn *t) {
    bool unsure = false;
    for (int v = m->first; v < m->variants; v++) unsure = unsure || t->process[v].unsure;
    return unsure;
}

/* *sure: as in rank_run(); false behind it: a list did not, and it stopped there. */
static spw_status run_in_turn(spw_reserved_memory *m, size_t place, int runs, bool *sure, lists *l) {
    spw_reserved_rank *rank = &m->place[place];
    const uint64_t number = rows_number(m, spw_reserved_rank_of(m, place));
    const bool thought = *sure;
    spw_status status = SPW_OK;
    for (int run = 0; run < runs && status == SPW_OK && *sure == thought; run++) {
        if (!is_repeated(m, place, number)) status = rank_run(m, place, run, thought, l);
        rank->rows = number;
        if (runs > 1) rank->turn[run] = *rank->now;
        *sure = thought && !is_unsure(m, rank->now);
    }
    for (int v = 0; v < VARIANTS && runs > 1; v++)
        process_end(&rank->now->process[v]); /* it does not go on */
    return status;
}

/* Several runs begin with nothing, and ranks that are alike have lists that stay: so these can be done again, where one runs out of memory
 * below the peak that it should have come to. */
static spw_status rank_runs(spw_reserved_memory *m, size_t place, int runs, lists *l) {
    spw_reserved_rank *rank = &m->place[place];
    const spw_reserved_turn begin = *rank->now;
    const bool thought = runs > 1 && m->stage[spw_reserved_stage_of(m, place)].memory != NULL;
    bool sure = thought;
    const spw_status status = run_in_turn(m, place, runs, &sure, l);
    if (status != SPW_OK || sure == thought) return status;
    *rank->now = begin;
    rank->ran = false;
    return run_in_turn(m, place, runs, &sure, l);
}

spw_status spw_reserved_run_place(spw_reserved_memory *m, size_t place, bool starts) {
    lists l = {.place = SIZE_MAX};
    m->starts = starts;
    const spw_status status = rank_runs(m, place, 1, &l);
    m->starts = false;
    spw_event_list_destroy(&l.list);
    return status;
}

/* The first rank of the stage that has the same list; the place itself. */
static size_t twin_of(const spw_reserved_memory *m, size_t place) {
    const size_t s = spw_reserved_stage_of(m, place);
    const spw_step_rows rows = rows_of(m, place);
    if (m->stage[s].memory == NULL) return place;
    for (size_t i = s * m->request.ranks; i < place; i++) {
        if (m->place[i].memory == NULL || m->place[i].twin != i) continue;
        const spw_step_rows other = rows_of(m, i);
        if (spw_step_memory_same_rows(m->stage[s].memory, &rows, &other)) return i;
    }
    return place;
}

static spw_status run_ranks(spw_reserved_memory *m, size_t step, int runs) {
    const int places = (int)spw_reserved_places(m);
    spw_failure failure = SPW_NO_FAILURE;
    spw_status status = make_lists(m);
    if (status == SPW_OK) status = begin_stages(m);
    for (size_t i = 0; i < (size_t)places; i++)
        if (m->place[i].memory != NULL) m->place[i].twin = twin_of(m, i);
#pragma omp parallel if (status == SPW_OK)
    {
        lists l = {.place = SIZE_MAX};
#pragma omp for schedule(dynamic, 1)
        for (int i = 0; i < places; i++) {
            const bool alone = m->place[i].memory != NULL && m->place[i].twin == (size_t)i;
            if (alone && !spw_failure_is_there(&failure))
                spw_failure_note(&failure, (size_t)i, rank_runs(m, (size_t)i, runs, &l));
        }
        spw_event_list_destroy(&l.list);
    }
    drop_shared(m);
    if (status == SPW_OK) status = spw_failure_tell(&failure);
    for (int i = 0; i < places && status == SPW_OK && runs > 1; i++) {
        spw_reserved_rank *rank = &m->place[i];
        if (rank->memory == NULL || rank->twin == (size_t)i) continue;
        memcpy(rank->turn, m->place[rank->twin].turn, STEADY * sizeof *rank->turn);
    }
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "the allocator's replay of step %zu", step);
}

spw_status spw_reserved_run(spw_reserved_memory *m, size_t step, int runs) {
    m->starts = step == 0;
    const spw_status status = run_ranks(m, step, runs);
    m->starts = false;
    if (status != SPW_OK) return status;
    for (int v = m->first; v < m->variants; v++) m->record[v][step] = (spw_reserved_record){.failed = false};
    for (int run = 0; run < runs; run++) {
        for (size_t i = 0; i < spw_reserved_places(m) && runs > 1; i++)
            if (m->place[i].memory != NULL) show_turn(&m->place[i].turn[run], &m->place[i]);
        for (int v = m->first; v < m->variants; v++) spw_reserved_record_run(m, v, step);
    }
    return SPW_OK;
}

spw_status spw_reserved_run_again(spw_reserved_memory *m, size_t step) {
    const spw_status status = run_ranks(m, step, 1);
    for (int v = 0; v < m->variants && status == SPW_OK; v++) spw_reserved_record_run(m, v, step);
    return status;
}
