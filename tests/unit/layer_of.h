/* A scheme's layer for a test: built, asked, checked. */
#ifndef SPW_TESTS_LAYER_OF_H
#define SPW_TESTS_LAYER_OF_H

#include "sim/print/formula.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"

#include <string.h>

/* spw_layer_destroy() it. */
static inline spw_layer layer_of(const spw_scheme *scheme, const spw_layer_shape *shape) {
    spw_layer layer = {.tensors = 0};
    CHECK_OK(spw_layer_build(scheme, shape, SPW_FLAVOUR_LIVE, &layer));
    return layer;
}

static inline spw_live_set live_set_of(const spw_scheme *scheme, const spw_layer_shape *shape,
                                       const spw_rank_rows *rows) {
    spw_layer layer = layer_of(scheme, shape);
    const spw_live_set set = spw_layer_live_set(&layer, rows);
    spw_layer_destroy(&layer);
    return set;
}

static inline bool follows_routing(const spw_scheme *scheme, const spw_layer_shape *shape) {
    spw_layer layer = layer_of(scheme, shape);
    const bool dynamic = spw_layer_is_dynamic(&layer);
    spw_layer_destroy(&layer);
    return dynamic;
}

/* formula NULL: not wanted. */
static inline uint64_t bytes_of_tensor(const spw_scheme *scheme, const spw_layer_shape *shape,
                                       const spw_rank_rows *rows, const char *name, char *formula,
                                       size_t size) {
    spw_layer layer = layer_of(scheme, shape);
    uint64_t bytes = 0;
    size_t found = 0;
    for (size_t i = 0; i < layer.tensors; i++) {
        if (strcmp(layer.tensor[i].name, name) != 0) continue;
        found++;
        bytes = spw_layer_bytes(&layer.tensor[i], rows);
        const spw_formula words = spw_layer_formula(&layer.tensor[i], rows);
        if (formula != NULL) spw_formula_print(&words, formula, size);
    }
    CHECK(found == 1);
    spw_layer_destroy(&layer);
    return bytes;
}

/* It can be executed: passes in order, a tensor is born dead and dies or is kept alive, none is left over when a forward
 * pass or the layer ends, some wait for the backward pass. */
static inline void check_layer(const spw_layer *layer) {
    size_t living = 0, first = 0; /* event of the pass under way from which tensors are looked for */
    for (size_t i = 0; i < layer->events; i++) {
        const spw_event *event = &layer->event[i];
        CHECK(event->tensor < layer->tensors && event->sign >= -1 && event->sign <= 1);
        if (i > 0 && event->phase != event[-1].phase) {
            CHECK(event->phase > event[-1].phase);
            CHECK((living == 0) == (event[-1].phase == SPW_PHASE_FORWARD));
            if (event[-1].phase == SPW_PHASE_FORWARD) first = i;
        }
        bool alive = false;
        for (size_t j = first; j < i; j++) {
            if (layer->event[j].tensor == event->tensor && layer->event[j].expert == event->expert)
                alive = layer->event[j].sign > 0;
        }
        CHECK(alive == (event->sign <= 0));
        living = event->sign > 0 ? living + 1 : living - 1;
    }
    CHECK(layer->events > 0 && living == 0);
    CHECK(layer->events > 0 && layer->event[layer->events - 1].phase == SPW_PHASE_BACKWARD);
    for (size_t i = 0; i < layer->tensors; i++) CHECK(layer->tensor[i].name[0] != '\0');
}

#endif
