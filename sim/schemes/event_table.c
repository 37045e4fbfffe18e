#include "sim/schemes/event_table.h"

#include <assert.h>

static size_t fill(const spw_event_table *table, unsigned conditions, spw_event *out) {
    static const struct {
        unsigned pass;
        spw_phase phase;
    } passes[] = {{SPW_IN_FORWARD, SPW_PHASE_FORWARD},
                  {SPW_IN_RECOMPUTE, SPW_PHASE_RECOMPUTE},
                  {SPW_IN_BACKWARD, SPW_PHASE_BACKWARD}};
    size_t events = 0;
    for (size_t p = 0; p < SPW_COUNT_OF(passes); p++) {
        for (size_t i = 0; i < table->row_count; i++) {
            const spw_event_row *row = &table->rows[i];
            if ((row->passes & passes[p].pass) == 0) continue;
            if ((conditions & row->when) != row->when || (conditions & row->unless) != 0) continue;
            assert(events < SPW_EVENT_TABLE_EVENTS);
            out[events++] = (spw_event){passes[p].phase, row->step, (size_t)row->tensor, row->sign};
        }
    }
    return events;
}

const spw_layer_list *spw_event_table_list(const spw_event_table *table, spw_event_lists *lists,
                                           unsigned conditions) {
    spw_layer_list *list = &lists->list[conditions];
#pragma omp critical(spw_event_table)
    if (list->event_count == 0) {
        *list = (spw_layer_list){table->tensors, lists->event[conditions], table->tensor_count,
                                 fill(table, conditions, lists->event[conditions])};
    }
    return list;
}
