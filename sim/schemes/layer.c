#include "sim/schemes/layer.h"

#include "base/memory.h"
#include "base/saturate.h"
#include "sim/print/formula.h"

#include <string.h>

const char *spw_phase_name(spw_phase phase) {
    static const char *const names[SPW_PHASE_COUNT] = {"forward", "recompute", "backward"};
    return names[phase];
}

void spw_layer_destroy(spw_layer *layer) {
    for (size_t i = 0; i < layer->texts; i++) spw_free(layer->text[i]);
    spw_free(layer->text);
    spw_free(layer->tensor);
    spw_free(layer->event);
    *layer = (spw_layer){.tensors = 0};
}

bool spw_layer_is_dynamic(const spw_layer *layer) {
    for (size_t i = 0; i < layer->tensors; i++) {
        if (spw_rows_follow_routing(layer->tensor[i].rows)) return true;
    }
    return false;
}

/* --- Its tensors --- */

size_t spw_layer_find(const spw_layer *layer, const char *name) {
    for (size_t i = 0; i < layer->tensors; i++) {
        if (strcmp(layer->tensor[i].name, name) == 0) return i;
    }
    return SIZE_MAX;
}

spw_formula spw_layer_formula(const spw_layer_tensor *t, const spw_rank_rows *routed) {
    spw_formula out = {.words = t->times > 1 ? "[n]" : "[]"};
    for (size_t i = 0; i < t->dims; i++) {
        const bool follows = i == 0 && spw_rows_follow_routing(t->rows);
        const uint64_t count = follows ? spw_routed_rows(t->rows, routed) : t->dim[i].count;
        out.term[out.terms++] = (spw_term){t->dim[i].symbol, (double)count};
    }
    if (t->times > 1) out.term[out.terms++] = (spw_term)TERM("times", t->times);
    out.term[out.terms++] = (spw_term)TERM("B", t->element_bytes);
    return out;
}

/* --- Live sets --- */

/* Is an event left out, as its tensor has too few bytes? */
static bool is_left_out(const spw_layer *layer, const spw_rank_rows *rows, size_t i) {
    const spw_event *event = &layer->event[i];
    return event->least_bytes > 0 &&
           spw_layer_bytes(&layer->tensor[event->tensor], rows) < event->least_bytes;
}

uint64_t spw_layer_live_after(const spw_layer *layer, const spw_rank_rows *rows, size_t i, uint64_t before) {
    const spw_event *event = &layer->event[i];
    const uint64_t bytes = spw_layer_bytes(&layer->tensor[event->tensor], rows);
    const bool anew = i > 0 && event->phase != SPW_PHASE_FORWARD && event[-1].phase == SPW_PHASE_FORWARD;
    const uint64_t rest = anew ? 0 : before; /* the forward pass leaves nothing */
    if (event->sign == 0 || bytes < event->least_bytes) return rest;
    return event->sign > 0 ? spw_saturated_sum(rest, bytes) : rest - bytes;
}

spw_live_set spw_layer_live_set(const spw_layer *layer, const spw_rank_rows *rows) {
    spw_live_set set = {.forward_event = SIZE_MAX, .backward_event = SIZE_MAX};
    uint64_t live = 0;
    for (size_t i = 0; i < layer->events; i++) {
        const spw_event *event = &layer->event[i];
        const bool backward = event->phase == SPW_PHASE_BACKWARD,
                   begins = i == 0 || event[-1].phase != event->phase;
        if (backward && begins && i > 0 && event[-1].phase == SPW_PHASE_RECOMPUTE) set.saved_bytes = live;
        live = spw_layer_live_after(layer, rows, i, live);
        if (event->to_host && !is_left_out(layer, rows, i))
            set.to_host_bytes =
                spw_saturated_sum(set.to_host_bytes, spw_layer_bytes(&layer->tensor[event->tensor], rows));
        if (event->phase == SPW_PHASE_FORWARD && live > set.forward_bytes) {
            set.forward_bytes = live;
            set.forward_event = i;
        } else if (event->phase != SPW_PHASE_FORWARD && live > set.backward_bytes) {
            set.backward_bytes = live;
            set.backward_event = i;
        }
    }
    return set;
}

const char *spw_layer_step(const spw_layer *layer, size_t event) {
    return event < layer->events ? layer->event[event].step : "";
}

bool spw_layer_is_live(const spw_layer *layer, const spw_rank_rows *rows, size_t tensor, size_t event) {
    if (event >= layer->events) return false; /* a layer that holds nothing has no fullest event */
    const bool forward = layer->event[event].phase == SPW_PHASE_FORWARD;
    for (size_t i = event + 1; i-- > 0;) {
        if (!forward && layer->event[i].phase == SPW_PHASE_FORWARD) return false;
        if (layer->event[i].tensor == tensor && !is_left_out(layer, rows, i))
            return layer->event[i].sign >= 0;
    }
    return false;
}

static size_t note_moment(spw_layer_moment moment, spw_layer_moment *out, size_t count, size_t most) {
    size_t place = count;
    while (place > 0 && out[place - 1].bytes < moment.bytes) place--;
    if (place >= most) return count;
    const size_t moved = (count < most ? count : most - 1) - place;
    memmove(out + place + 1, out + place, moved * sizeof *out);
    out[place] = moment;
    return count < most ? count + 1 : most;
}

size_t spw_layer_moments(const spw_layer *layer, const spw_rank_rows *rows, spw_layer_moment *out,
                         size_t most) {
    spw_layer_moment last = {.bytes = 0};
    size_t count = 0;
    uint64_t live = 0;
    for (size_t i = 0; i < layer->events; i++) {
        const uint64_t before = live;
        live = spw_layer_live_after(layer, rows, i, live);
        if (live > before) last = (spw_layer_moment){i, live};
        if (live >= before || last.bytes == 0) continue;
        count = note_moment(last, out, count, most);
        last.bytes = 0;
    }
    return last.bytes > 0 ? note_moment(last, out, count, most) : count;
}

size_t spw_layer_live_tensors(const spw_layer *layer, const spw_rank_rows *rows, size_t event,
                              size_t *tensor) {
    size_t count = 0;
    for (size_t t = 0; t < layer->tensors; t++) {
        if (!spw_layer_is_live(layer, rows, t, event)) continue;
        const uint64_t bytes = spw_layer_bytes(&layer->tensor[t], rows);
        size_t place = count++;
        for (; place > 0 && spw_layer_bytes(&layer->tensor[tensor[place - 1]], rows) < bytes; place--)
            tensor[place] = tensor[place - 1];
        tensor[place] = t;
    }
    return count;
}
