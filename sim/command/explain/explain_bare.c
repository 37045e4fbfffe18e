#include "sim/command/explain/explain_parts.h"

#include "base/memory.h"
#include "sim/memory/kept/megatron_job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/tensors/bare_tensors.h"

#include <stdio.h>

/* Adds what the events leave, by kind. */
static void add_left(const spw_event_list *list, int64_t bytes[SPW_TENSOR_KINDS]) {
    for (size_t i = 0; i < list->events; i++) {
        const spw_memory_event *event = &list->event[i];
        bytes[event->kind] += event->born ? (int64_t)event->bytes : -(int64_t)event->bytes;
    }
}

/* bytes [SPW_TENSOR_KINDS] at the peak of the second step, reached with the event *at. */
static spw_status peak_by_kind(const spw_megatron_shape *shape, const spw_rank_rows *balanced,
                               int64_t bytes[SPW_TENSOR_KINDS], spw_memory_event *at) {
    spw_bare_layers *bare = NULL;
    spw_event_list list = {.events = 0};
    uint64_t *received = NULL, *sent = NULL;
    int64_t step[SPW_TENSOR_KINDS];
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(shape->layers, &received));
    SPW_TRY(SPW_ALLOC(shape->layers, &sent));
    for (size_t l = 0; l < shape->layers; l++) {
        received[l] = balanced->held;
        sent[l] = balanced->sent;
    }
    const spw_megatron_rows rows = {received, sent, NULL};
    SPW_TRY(spw_bare_layers_create(shape, &bare));
    SPW_TRY(spw_bare_layers_begin(bare, &list));
    add_left(&list, bytes);
    SPW_TRY(spw_bare_layers_step(bare, &rows, &list));
    add_left(&list, bytes);
    SPW_TRY(spw_bare_layers_step(bare, &rows, &list));
    const spw_list_peak peak = spw_event_list_peak(&list);
    spw_event_list_waterfall(&list, &peak, step);
    for (size_t k = 0; k < SPW_TENSOR_KINDS; k++) bytes[k] += step[k];
    *at = list.event[peak.peak_event < list.events ? peak.peak_event : 0];

cleanup:
    spw_event_list_destroy(&list);
    spw_bare_layers_destroy(bare);
    spw_free(received);
    spw_free(sent);
    return status;
}

spw_status spw_explain_bare(const spw_point *point, spw_footprint *f) {
    const spw_rank_rows balanced = spw_balanced_rows(point->scheme, &point->shape);
    int64_t bytes[SPW_TENSOR_KINDS] = {0};
    spw_megatron_shape bare;
    if (!spw_megatron_job_layers(point, &bare)) return SPW_OK;
    spw_memory_event at = {.born = false};
    const spw_status status = peak_by_kind(&bare, &balanced, bytes, &at);
    if (status != SPW_OK) return status;
    f->components = 0;
    f->argument_bytes = f->peak_bytes = 0;
    f->moment = SPW_MOMENT_MOE_LAYER;
    (void)snprintf(f->place, sizeof f->place, "%s pass of layer %u of %zu (5.9)",
                   at.backward ? "backward" : "forward", at.layer + 1u, bare.layers);
    for (size_t k = 0; spw_bare_kind(k) != NULL && f->components < SPW_COMPONENTS; k++) {
        const spw_tensor_kind *kind = spw_bare_kind(k);
        if (bytes[k] <= 0) continue;
        spw_component *c = &f->component[f->components++];
        *c = (spw_component){.bytes = (uint64_t)bytes[k],
                             .argument = spw_bare_kind_is_weight(k),
                             .live = {true, false, false},
                             .source = kind->source};
        (void)snprintf(c->name, sizeof c->name, "%s", kind->name);
        (void)snprintf(c->formula, sizeof c->formula, "%s", kind->formula);
        f->peak_bytes += c->bytes;
        f->argument_bytes += c->argument ? c->bytes : 0;
    }
    f->temporary_bytes = f->peak_bytes - f->argument_bytes;
    f->low_bytes = f->high_bytes = f->peak_bytes;
    return SPW_OK;
}
