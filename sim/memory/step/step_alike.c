/* Steps of the ranks of one stage: the same events, in which only the bytes of what follows the routing differ. */
#include "base/memory.h"
#include "base/saturate.h"
#include "sim/memory/step/step_memory.h"
#include "sim/memory/step/step_parts.h"

#include <string.h>

enum { MOST_TENSORS = 256 };

bool spw_step_memory_is_alike(const spw_step_memory *m) {
    if (m->bare != NULL || m->listed != NULL || m->recorded != NULL || m->units.listed) return false;
    for (size_t t = 0; t < m->layer.tensors; t++)
        if (m->layer.tensor[t].by_rank) return false; /* as many events as pieces have rows */
    return m->layer.tensors <= MOST_TENSORS;
}

static const spw_rank_rows *rows_at(const spw_step_rows *rows, size_t layer, size_t micro_batch) {
    return &rows->rows[layer % rows->layers * rows->micro_batches + micro_batch];
}

/* Of what nothing is left behind the step nothing was there before it. */
static void drop_earlier(const spw_step_memory *m, spw_event_list *list) {
    const size_t layers = m->stages.begin[m->pipeline.chunks], first = spw_step_left_slot(m);
    size_t kept = 0, mark = 0;
    for (size_t i = 0; i < list->events; i++) {
        const size_t left = list->event[i].slot - first;
        for (; mark < list->marks && list->mark[mark] == i; mark++) list->mark[mark] = kept;
        if (list->event[i].earlier && !(left < layers ? m->left[left] : m->made[left - layers])) continue;
        if (kept < i) list->event[kept] = list->event[i];
        kept++;
    }
    for (; mark < list->marks; mark++) list->mark[mark] = kept;
    list->events = kept;
}

/* What a step leaves depends on what it does alone, but for what it does not touch; no layer's tensors are left. */
spw_status spw_step_memory_every_step(spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    const size_t layers = m->stages.begin[m->pipeline.chunks], cells = 2 * layers + ENDS;
    spw_status status = SPW_OK;
    SPW_TRY(spw_event_list_reserve(list, m->pipeline.micro_batches * layers * (m->layer.events + KEPT)));
    SPW_TRY(SPW_ALLOC(cells, &m->untouched));
    memset(m->untouched, true, cells * sizeof *m->untouched);
    SPW_TRY(spw_step_memory_step(m, rows, list));
    drop_earlier(m, list);

cleanup:
    spw_free(m->untouched);
    m->untouched = NULL;
    return status;
}

spw_status spw_step_memory_find_visits(const spw_step_memory *m, spw_event_list *list) {
    uint16_t law[MOST_TENSORS];
    for (size_t t = 0; t < m->layer.tensors; t++) {
        const spw_layer_tensor *tensor = m->layer.tensor;
        size_t first = 0;
        while (tensor[first].rows != tensor[t].rows || tensor[first].bytes != tensor[t].bytes) first++;
        law[t] = spw_rows_follow_routing(tensor[t].rows) ? (uint16_t)first : SPW_NO_LAW;
    }
    const spw_status status = spw_event_list_find_visits(list, law, m->layer.tensors);
    return status == SPW_OK ? spw_event_list_find_own(list, law, m->layer.tensors) : status;
}

/* All of a cell at once, and of tensors what is asked for alone: there are far more events than of either. */
void spw_step_memory_refill(const spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    uint64_t row_bytes[MOST_TENSORS], count[SPW_ROWS_COUNT] = {0};
    uint8_t which[MOST_TENSORS];
    size_t layer = SIZE_MAX, micro_batch = SIZE_MAX;
    for (size_t t = 0; t < m->layer.tensors; t++) {
        row_bytes[t] = spw_layer_row_bytes(&m->layer.tensor[t], 1);
        which[t] = (uint8_t)m->layer.tensor[t].rows;
    }
    for (size_t i = 0; i < list->owns; i++) {
        spw_own_event *event = &list->own[i];
        if (event->layer != layer || event->micro_batch != micro_batch) {
            layer = event->layer;
            micro_batch = event->micro_batch;
            for (unsigned r = 0; r < SPW_ROWS_COUNT; r++)
                if (spw_rows_follow_routing((spw_rows)r))
                    count[r] = spw_routed_rows((spw_rows)r, rows_at(rows, layer, micro_batch));
        }
        event->bytes = spw_saturated_product(row_bytes[event->kind], count[which[event->kind]]);
    }
}

/* Of two cells, in what any tensor has as many rows of. */
static bool are_same(const spw_step_memory *m, const spw_rank_rows *a, const spw_rank_rows *b) {
    for (size_t t = 0; t < m->layer.tensors; t++) {
        const spw_rows rows = m->layer.tensor[t].rows;
        if ((rows == SPW_ROWS_HELD && a->held != b->held) ||
            (rows == SPW_ROWS_RECEIVED && a->received != b->received) ||
            (rows == SPW_ROWS_SENT && a->sent != b->sent))
            return false;
    }
    return true;
}

bool spw_step_memory_same_rows(const spw_step_memory *m, const spw_step_rows *a, const spw_step_rows *b) {
    for (size_t i = 0; i < m->stages.begin[m->pipeline.chunks]; i++) {
        const size_t layer = m->stages.layer[i].moe;
        if (layer == SIZE_MAX) continue;
        for (size_t k = 0; k < a->micro_batches; k++)
            if (!are_same(m, rows_at(a, layer, k), rows_at(b, layer, k))) return false;
    }
    return true;
}
