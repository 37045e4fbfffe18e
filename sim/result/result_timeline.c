#include "sim/result/result_json.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/memory/step/memory_timeline.h"
#include "sim/replay/result_answers.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"

#include <math.h>

/* The first of the order that drops little enough, else the first, else the one that needs least: as a report has it. */
static size_t row_of(const spw_result *result) {
    const spw_result_answers *a = &result->answers;
    for (size_t i = 0; i < a->fits; i++) {
        const spw_result_row *row = &result->row[a->order[i]];
        if (a->drop_most > 0.0 ? row->drops.fraction <= a->drop_most : !spw_point_drops(row))
            return a->order[i];
    }
    return a->fits > 0 ? a->order[0] : a->least_memory;
}

static json_t *range_json(spw_json *json, double from, double to) {
    json_t *range = json_array();
    spw_json_add(json, range, spw_json_real(from));
    spw_json_add(json, range, spw_json_real(to));
    return range;
}

static void put_points(spw_json *json, json_t *object, const spw_memory_timeline *t) {
    json_t *at = json_array(), *bytes = json_array();
    for (size_t i = 0; i < t->points; i++) {
        spw_json_add(json, at, spw_json_real(round(1e4 * t->at[i]) / 1e4));
        spw_json_add(json, bytes, spw_json_count(t->bytes[i]));
    }
    spw_json_put(json, object, "at", at);
    spw_json_put(json, object, "bytes", bytes);
}

static json_t *phases_json(spw_json *json, const spw_memory_timeline *t) {
    json_t *phases = json_object();
    spw_json_put(json, phases, "forward", range_json(json, 0.0, t->forward_end));
    spw_json_put(json, phases, "loss", range_json(json, t->forward_end, t->loss_end));
    spw_json_put(json, phases, "backward", range_json(json, t->loss_end, t->backward_end));
    spw_json_put(json, phases, "optimizer", range_json(json, t->backward_end, t->end));
    return phases;
}

static json_t *layers_json(spw_json *json, const spw_point *point, const spw_stage *stage, size_t count) {
    json_t *list = json_array();
    size_t *layer = NULL;
    if (SPW_ALLOC(count > 0 ? count : 1, &layer) != SPW_OK) {
        json_decref(list);
        return NULL;
    }
    count = spw_memory_timeline_layers(point->job, stage, count, layer);
    for (size_t i = 0; i < count; i++) spw_json_add(json, list, spw_json_count(layer[i]));
    spw_free(layer);
    return list;
}

/* With balanced routing, where the memory follows it. */
static json_t *balanced_json(spw_json *json, const spw_point *point, const spw_result_row *row,
                             spw_memory_timeline *t) {
    spw_footprint balanced;
    if (row->worst_rows == NULL) return json_null();
    if (spw_footprint_of_stage(point, row->footprint.stage.index, NULL, &balanced) != SPW_OK ||
        spw_memory_timeline_live(point, &balanced, NULL, 0, t) != SPW_OK)
        return NULL;
    json_t *object = json_object();
    spw_json_put(json, object, "peak_bytes", spw_json_count(balanced.peak_bytes));
    put_points(json, object, t);
    return object;
}

/* NULL without memory. */
static json_t *timeline_json(spw_json *json, const spw_point *point, const spw_result_row *row, size_t index,
                             const spw_stack *stack) {
    spw_memory_timeline t;
    const spw_footprint *f = &row->footprint;
    const spw_status status = row->memory_kind == SPW_MEMORY_ARENA
                                  ? spw_memory_timeline_arena(stack, point, f, &t)
                                  : spw_memory_timeline_live(point, f, row->worst_rows, row->layers, &t);
    if (status != SPW_OK) return NULL;
    json_t *object = json_object();
    spw_json_put(json, object, "row", spw_json_count(index));
    spw_json_put(json, object, "stage", spw_json_count(f->stage.index));
    spw_json_put(json, object, "peak_bytes", spw_json_count(f->peak_bytes));
    spw_json_put(json, object, "phases", phases_json(json, &t));
    spw_json_put(json, object, "layers", layers_json(json, point, &f->stage, t.layers));
    spw_json_put(json, object, "moments", spw_json_count(t.moments));
    put_points(json, object, &t);
    spw_json_put(json, object, "balanced", balanced_json(json, point, row, &t));
    return object;
}

void spw_result_put_timeline(spw_json *json, json_t *object, const spw_result *result,
                             const spw_run_settings *settings) {
    const size_t index = result->answers.there && result->rows > 0 ? row_of(result) : SPW_NO_ROW;
    if (index == SPW_NO_ROW) return;
    const spw_result_row *row = &result->row[index];
    spw_job job = *settings->job;
    if (row->memory.max_bytes != row->footprint.peak_bytes) return;
    if (row->memory_kind == SPW_MEMORY_ARENA && settings->memory_fit == NULL) return;
    job.expert = row->expert;
    job.fsdp = row->fsdp;
    const spw_point point = spw_point_of(&job, &row->scheme, row->sequences);
    spw_json_put(json, object, "memory_timeline",
                 timeline_json(json, &point, row, index, settings->memory_fit));
}
