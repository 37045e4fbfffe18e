/* Steps of the ranks of one stage: the same events, in which only the bytes of what follows the routing differ. */
#include "base/memory.h"
#include "base/saturate.h"
#include "sim/memory/step/step_memory.h"
#include "sim/memory/step/step_parts.h"

#include <string.h>

enum { MOST_TENSORS = 256 };

enum { COUNT_HELD, COUNT_RECEIVED, COUNT_SENT };

bool spw_step_memory_is_alike(const spw_step_memory *m) {
    if (m->bare != NULL || m->listed != NULL || m->recorded != NULL || m->units.listed) return false;
    for (size_t t = 0; t < m->layer.tensors; t++)
        if (m->layer.tensor[t].by_rank) return false; /* as many events as pieces have rows */
    return m->layer.tensors <= MOST_TENSORS;
}

static const spw_rank_rows *rows_at(const spw_step_rows *rows, size_t layer, size_t micro_batch) {
    return &rows->rows[layer % rows->layers * rows->micro_batches + micro_batch];
}

/* Events before `at` that are dropped. drop [drops]: rising. */
static size_t dropped_before(const size_t *drop, size_t drops, size_t at) {
    size_t before = 0;
    while (before < drops && drop[before] < at) before++;
    return before;
}

static void drop_events(spw_event_list *list, const size_t *drop, size_t drops) {
    for (size_t d = 0; d < drops; d++) {
        const size_t begin = drop[d] + 1, end = d + 1 < drops ? drop[d + 1] : list->events;
        memmove(list->event + begin - d - 1, list->event + begin, (end - begin) * sizeof *list->event);
    }
    for (size_t k = 0; k < list->marks; k++) list->mark[k] -= dropped_before(drop, drops, list->mark[k]);
    for (size_t k = 0; k < list->repeats; k++) {
        list->repeat[k].begin -= dropped_before(drop, drops, list->repeat[k].begin);
        list->repeat[k].of -= dropped_before(drop, drops, list->repeat[k].of);
    }
    list->events -= drops;
}

/* Of what nothing is left behind the step nothing was there before it. */
static void drop_earlier(spw_step_memory *m, spw_event_list *list) {
    const size_t layers = m->stages.begin[m->pipeline.chunks], first = spw_step_left_slot(m);
    size_t drops = 0;
    for (size_t i = 0; i < m->earliers; i++) {
        const size_t left = list->event[m->earlier[i]].slot - first;
        if (!(left < layers ? m->left[left] : m->made[left - layers])) m->earlier[drops++] = m->earlier[i];
    }
    if (drops > 0) drop_events(list, m->earlier, drops);
}

/* What a step leaves depends on what it does alone, but for what it does not touch; no layer's tensors are left. */
spw_status spw_step_memory_every_step(spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    const size_t layers = m->stages.begin[m->pipeline.chunks], cells = 2 * layers + ENDS;
    spw_status status = SPW_OK;
    SPW_TRY(spw_event_list_reserve(list, m->pipeline.micro_batches * layers * (m->layer.events + KEPT)));
    SPW_TRY(SPW_ALLOC(cells, &m->untouched));
    SPW_TRY(SPW_ALLOC(cells, &m->earlier));
    m->earliers = 0;
    memset(m->untouched, true, cells * sizeof *m->untouched);
    memset(m->written, 0, sizeof m->written);
    SPW_TRY(spw_step_memory_step(m, rows, list));
    drop_earlier(m, list);

cleanup:
    spw_free(m->untouched);
    spw_free(m->earlier);
    m->untouched = NULL;
    m->earlier = NULL;
    return status;
}

static uint8_t count_of(spw_rows rows) {
    if (!spw_rows_follow_routing(rows)) return SPW_NO_COUNT;
    return rows == SPW_ROWS_RECEIVED ? COUNT_RECEIVED : rows == SPW_ROWS_SENT ? COUNT_SENT : COUNT_HELD;
}

/* Of single experts there are no rows. */
static void find_laws(const spw_step_memory *m, spw_size_law law[MOST_TENSORS]) {
    for (size_t t = 0; t < m->layer.tensors; t++) {
        const spw_layer_tensor *tensor = &m->layer.tensor[t];
        law[t] = (spw_size_law){tensor->rows == SPW_ROWS_EXPERT ? 0 : tensor->bytes, count_of(tensor->rows)};
    }
}

spw_status spw_step_memory_find_visits(const spw_step_memory *m, spw_event_list *list) {
    spw_size_law law[MOST_TENSORS];
    find_laws(m, law);
    return spw_event_list_find_visits(list, law, m->layer.tensors);
}

void spw_step_memory_refill(const spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    for (size_t i = 0; i < list->visits; i++) {
        spw_event_visit *v = &list->visit[i];
        if (v->layer == SPW_NO_MOE_LAYER) continue;
        const spw_rank_rows *of = rows_at(rows, v->layer, v->micro_batch);
        v->count[COUNT_HELD] = of->held;
        v->count[COUNT_RECEIVED] = of->received;
        v->count[COUNT_SENT] = of->sent;
    }
    for (size_t i = 0; i < list->owns; i++) {
        const spw_own_event *own = &list->own[i];
        list->event[own->event].bytes =
            spw_layer_bytes(&m->layer.tensor[own->kind], rows_at(rows, own->layer, own->micro_batch));
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
