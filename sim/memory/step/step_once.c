/* Parts of passes that are made once in a list, and repeated from then on. */
#include "sim/memory/step/step_parts.h"

/* Where experts' tensors are kept they are there from then on, until the backward pass. */
static void note_live(spw_step_memory *m, spw_step_place at, size_t cell) {
    bool *live = m->live + cell * m->layer.tensors;
    for (size_t t = 0; t < m->layer.tensors; t++) live[t] = !at.backward && m->layer.tensor[t].needed;
}

/* Layers of a kind do the same in slots of their own. */
spw_status spw_step_once(spw_step_memory *m, spw_step_place at, const spw_rank_rows *rows,
                         spw_step_part *part) {
    const bool other = m->at_work == SPW_NO_MOE_LAYER;
    const size_t cell = at.set * m->stages.most + at.local;
    spw_step_written *w = &m->written[at.backward][at.experts][other];
    spw_list_shift shift = {SPW_COMPONENTS, 0, (uint32_t)m->micro_batch, (uint16_t)m->at_work};
    if (m->untouched == NULL) return part(m, at, rows);
    if (w->there) {
        if (m->saves && at.experts) note_live(m, at, cell);
        shift.slots = (uint32_t)((cell - w->cell) * m->layer.tensors);
        return spw_event_list_repeat(m->out, w->begin, w->end, &shift);
    }
    *w = (spw_step_written){.there = true, .cell = cell, .begin = m->out->events};
    const spw_status status = part(m, at, rows);
    w->end = m->out->events;
    return status;
}
