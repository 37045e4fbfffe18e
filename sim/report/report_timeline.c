#include "sim/report/report_timeline.h"

#include "base/memory.h"
#include "sim/report/report_fields.h"

#include <math.h>

static const char where[] = "memory_timeline";
static const double MOST = 9e18;

/* The numbers of a list, from 0 to `most`. */
static spw_status take_numbers(json_t *object, const char *key, double most, size_t room, double *out,
                               size_t *count) {
    json_t *list = json_object_get(object, key), *item;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > room)
        return spw_fail(SPW_EFORMAT, "%s.%s: must be a list of 1 to %zu numbers", where, key, room);
    json_array_foreach(list, i, item) {
        out[i] = json_number_value(item);
        if (!json_is_number(item) || !spw_field_in_range(out[i], most))
            return spw_fail(SPW_EFORMAT, "%s.%s: must be numbers from 0 to %g", where, key, most);
    }
    *count = json_array_size(list);
    return SPW_OK;
}

static spw_status take_line(json_t *object, double end, spw_report_line *out) {
    spw_status status = SPW_OK;
    size_t heights = 0;
    SPW_TRY(take_numbers(object, "at", end, SPW_MEMORY_TIMELINE_POINTS, out->at, &out->points));
    for (size_t i = 1; i < out->points; i++)
        if (out->at[i] < out->at[i - 1])
            SPW_TRY(spw_fail(SPW_EFORMAT, "%s.at: number %zu goes back", where, i));
    SPW_TRY(take_numbers(object, "bytes", MOST, SPW_MEMORY_TIMELINE_POINTS, out->bytes, &heights));
    if (heights != out->points)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s.bytes: %zu numbers; must be %zu as in at", where, heights,
                         out->points));
    for (size_t i = 0; i < out->points; i++) out->peak = fmax(out->peak, out->bytes[i]);

cleanup:
    return status;
}

static spw_status take_phases(json_t *object, spw_report_timeline *out) {
    static const char *const names[SPW_PHASE_ENDS] = {"forward", "loss", "backward", "optimizer"};
    json_t *phases = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_field_object(object, where, "phases", &phases));
    for (size_t i = 0; i < SPW_PHASE_ENDS; i++) {
        double pair[2] = {0.0, 0.0};
        size_t count = 0;
        SPW_TRY(take_numbers(phases, names[i], 1e6, 2, pair, &count));
        if (count != 2 || pair[1] < pair[0] || (i > 0 && pair[0] < out->end[i - 1]))
            SPW_TRY(spw_fail(SPW_EFORMAT, "%s.phases.%s: must be two numbers that rise", where, names[i]));
        out->end[i] = pair[1];
    }
    if (!(out->end[SPW_PHASE_ENDS - 1] > 0.0))
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s.phases: must end behind 0", where));

cleanup:
    return status;
}

static spw_status take_layers(json_t *object, spw_report_timeline *out) {
    const size_t most = 1 << 16, count = json_array_size(json_object_get(object, "layers"));
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(count > 0 && count <= most ? count : 1, &out->layer));
    SPW_TRY(take_numbers(object, "layers", 1e6, count > 0 && count <= most ? count : 1, out->layer,
                         &out->layers));

cleanup:
    return status;
}

spw_status spw_report_take_timeline(spw_report *report) {
    json_t *object = json_object_get(report->root, where), *balanced = json_object_get(object, "balanced");
    const json_t *row = json_object_get(object, "row");
    spw_report_timeline *t = NULL;
    spw_status status = SPW_OK;
    if (object == NULL) return SPW_OK;
    if (!json_is_integer(row) || json_integer_value(row) < 0 ||
        (size_t)json_integer_value(row) >= report->rows)
        return spw_fail(SPW_EFORMAT, "%s.row: must be a row from 0 to %zu", where, report->rows - 1);
    SPW_TRY(SPW_ALLOC(1, &t));
    report->timeline = t;
    t->row = &report->row[json_integer_value(row)];
    const spw_field_number numbers[] = {{"stage", &t->stage, 1e6}};
    SPW_TRY(SPW_FIELD_NUMBERS(object, where, numbers));
    SPW_TRY(take_phases(object, t));
    SPW_TRY(take_layers(object, t));
    SPW_TRY(take_line(object, t->end[SPW_PHASE_ENDS - 1], &t->real));
    if (json_is_object(balanced)) SPW_TRY(take_line(balanced, t->end[SPW_PHASE_ENDS - 1], &t->balanced));

cleanup:
    return status;
}

void spw_report_timeline_destroy(spw_report_timeline *t) {
    if (t != NULL) spw_free(t->layer);
    spw_free(t);
}
