/* Which places are followed: what a rank allocates is made when it begins to be, and goes when nothing asks for it any more. */
#include "base/memory.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/reserved_parts.h"

/* What a rank of the stage allocates: one for all where they are alike and every step is the same. */
static spw_status create_memory(spw_reserved_memory *m, size_t place) {
    spw_reserved_stage *stage = &m->stage[spw_reserved_stage_of(m, place)];
    spw_step_memory *memory = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_step_memory_create(m->request.point,
                                   &m->request.footprint[m->first_stage + spw_reserved_stage_of(m, place)],
                                   m->recorded, &memory));
    m->place[place].memory = memory;
    SPW_TRY(spw_step_memory_begin(memory, &stage->begin));
    SPW_TRY(spw_step_memory_optimizer(memory, &stage->moments));
    stage->begin_bytes = (uint64_t)spw_event_list_peak(&stage->begin).after_forward_bytes;
    stage->moment_bytes = (uint64_t)spw_event_list_peak(&stage->moments).after_forward_bytes;
    stage->slots = spw_step_memory_slots(memory);
    if (spw_reserved_is_steady(m) && !m->request.every && spw_step_memory_is_alike(memory))
        stage->memory = memory;

cleanup:
    return status;
}

spw_status spw_reserved_follow(spw_reserved_memory *m, size_t place) {
    spw_reserved_rank *rank = &m->place[place];
    const spw_reserved_stage *stage = &m->stage[spw_reserved_stage_of(m, place)];
    spw_status status = SPW_OK;
    if (rank->memory != NULL) return SPW_OK;
    rank->memory = stage->memory;
    if (rank->memory == NULL) SPW_TRY(create_memory(m, place));
    if (rank->now == NULL) SPW_TRY(SPW_ALLOC(1, &rank->now));
    for (int v = m->first; v < m->variants; v++)
        SPW_TRY(SPW_RESIZE(stage->slots, &rank->now->process[v].live)); /* written when it begins */
    if (spw_reserved_is_steady(m) && rank->turn == NULL) SPW_TRY(SPW_ALLOC(STEADY, &rank->turn));
    m->followed++;

cleanup:
    return status;
}

void spw_reserved_forget(spw_reserved_memory *m, size_t place) {
    spw_reserved_rank *rank = &m->place[place];
    if (rank->memory != m->stage[spw_reserved_stage_of(m, place)].memory)
        spw_step_memory_destroy(rank->memory);
    rank->memory = NULL;
}

void spw_reserved_drop(spw_reserved_memory *m, size_t place) {
    spw_reserved_rank *rank = &m->place[place];
    if (m->stage != NULL) spw_reserved_forget(m, place);
    for (int v = 0; v < VARIANTS && rank->now != NULL; v++) {
        spw_reserved_process *p = &rank->now->process[v];
        spw_allocator_destroy(p->allocator);
        spw_free(p->live);
        *p = (spw_reserved_process){.allocator = NULL};
    }
    rank->ran = false;
}
