#include "sim/memory/event_list.h"

#include "base/memory.h"

#include <string.h>

spw_status spw_event_list_append(spw_event_list *list, spw_memory_event event) {
    if (list->events == list->capacity) {
        spw_memory_event *larger = NULL;
        const size_t capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
        spw_status status = SPW_ALLOC(capacity, &larger);
        if (status != SPW_OK) return status;
        if (list->events > 0) memcpy(larger, list->event, list->events * sizeof *larger);
        spw_free(list->event);
        list->event = larger;
        list->capacity = capacity;
    }
    list->event[list->events++] = event;
    return SPW_OK;
}

void spw_event_list_clear(spw_event_list *list) { list->events = 0; }

void spw_event_list_destroy(spw_event_list *list) {
    spw_free(list->event);
    *list = (spw_event_list){.events = 0};
}

static int64_t change_of(const spw_memory_event *event) {
    return event->born ? (int64_t)event->bytes : -(int64_t)event->bytes;
}

spw_list_peak spw_event_list_peak(const spw_event_list *list) {
    spw_list_peak peak = {.peak_event = SIZE_MAX};
    int64_t live = 0;
    for (size_t i = 0; i < list->events; i++) {
        const spw_memory_event *event = &list->event[i];
        live += change_of(event);
        int64_t *most = event->backward ? &peak.backward_bytes : &peak.forward_bytes;
        if (live > *most) *most = live;
        if (!event->backward) peak.after_forward_bytes = live;
        if (live > peak.peak_bytes) {
            peak.peak_bytes = live;
            peak.peak_event = i;
        }
    }
    return peak;
}

void spw_event_list_waterfall(const spw_event_list *list, const spw_list_peak *peak,
                              int64_t bytes[SPW_TENSOR_KINDS]) {
    memset(bytes, 0, SPW_TENSOR_KINDS * sizeof *bytes);
    if (peak->peak_event == SIZE_MAX) return;
    for (size_t i = 0; i <= peak->peak_event; i++) bytes[list->event[i].kind] += change_of(&list->event[i]);
}

spw_status spw_event_list_replay(const spw_event_list *list, spw_allocator *allocator, spw_allocation *live,
                                 spw_list_replay *out) {
    *out = (spw_list_replay){.refused = false};
    spw_allocator_reset_peaks(allocator);
    out->before = out->after_forward = spw_allocator_get_stats(allocator);
    for (size_t i = 0; i < list->events && !out->refused; i++) {
        const spw_memory_event *event = &list->event[i];
        spw_allocation *held = &live[event->slot];
        spw_status status = SPW_OK;
        if (event->born) {
            status = spw_allocator_allocate(allocator, 0, event->bytes, held);
            out->refused = status == SPW_OK && held->block == SPW_ALLOCATION_REFUSED;
        } else {
            status = spw_allocator_free(allocator, *held);
            held->block = SPW_ALLOCATION_EMPTY;
        }
        if (status != SPW_OK) return status;
        if (!event->backward) out->after_forward = spw_allocator_get_stats(allocator);
    }
    out->after = spw_allocator_get_stats(allocator);
    return SPW_OK;
}
