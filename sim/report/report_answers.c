#include "sim/report/report_take.h"

#include "base/memory.h"
#include "sim/report/report_fields.h"

/* A position of a row; SPW_EFORMAT when it is none. */
static spw_status take_position(const spw_report *r, const json_t *value, const char *key, size_t *out) {
    const json_int_t position = json_integer_value(value);
    if (!json_is_integer(value) || position < 0 || (size_t)position >= r->rows)
        return spw_fail(SPW_EFORMAT, "answers.%s: must be a row from 0 to %zu", key, r->rows - 1);
    *out = (size_t)position;
    return SPW_OK;
}

/* The rows that no other beats. */
static spw_status take_front(spw_report *r, const json_t *front) {
    size_t i, row = 0;
    json_t *item;
    json_array_foreach(front, i, item) {
        const spw_status status = take_position(r, item, "front", &row);
        if (status != SPW_OK) return status;
        r->row[row].front = true;
    }
    return SPW_OK;
}

/* Lists whose items name a point, with texts that the page shows. */
static spw_status check_points(const spw_report *r, const char *list, const char *text) {
    size_t i, row = 0;
    json_t *item;
    const char *shown = NULL;
    json_array_foreach(json_object_get(r->plan, list), i, item) {
        spw_status status = take_position(r, json_object_get(item, "point"), list, &row);
        if (status == SPW_OK) status = spw_field_text(item, list, text, &shown);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

static spw_status check_plan(const spw_report *r) {
    const spw_status status = check_points(r, "does_not_fit", "advice");
    return status == SPW_OK ? check_points(r, "drops_too_much", "option") : status;
}

/* The order names every row that fits once, and no other. */
spw_status spw_report_take_answers(spw_report *r) {
    json_t *answers = json_object_get(r->root, "answers"), *order = json_object_get(answers, "order"), *item;
    size_t i, fit = 0;
    bool *seen = NULL;
    spw_status status = SPW_OK;
    if (!r->answered) return SPW_OK;
    SPW_TRY(SPW_ALLOC(r->rows, &r->order));
    SPW_TRY(SPW_ALLOC(r->rows, &seen));
    for (i = 0; i < r->rows; i++) fit += spw_report_row_fits(&r->row[i]);
    if (json_array_size(order) != fit)
        SPW_TRY(spw_fail(SPW_EFORMAT, "answers.order: must list the %zu rows that fit", fit));
    json_array_foreach(order, i, item) {
        size_t row = 0;
        SPW_TRY(take_position(r, item, "order", &row));
        if (seen[row] || !spw_report_row_fits(&r->row[row]))
            SPW_TRY(spw_fail(SPW_EFORMAT, "answers.order: row %zu stands twice, or does not fit", row));
        seen[row] = true;
        r->order[r->fits++] = row;
    }
    SPW_TRY(take_position(r, json_object_get(answers, "least_memory"), "least_memory", &r->least_memory));
    SPW_TRY(take_front(r, json_object_get(answers, "front")));
    if (r->planned) SPW_TRY(check_plan(r));

cleanup:
    spw_free(seen);
    return status;
}
