/* A point of a search as its JSON has it, read by both parts of its page. */
#ifndef SPW_SIM_REPORT_SEARCH_POINT_H
#define SPW_SIM_REPORT_SEARCH_POINT_H

#include "sim/report/html.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* NAN where there is no number, "" where there is no text. */
static inline double spw_point_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static inline const char *spw_point_words(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static inline void spw_point_write(FILE *out, const json_t *object, const char *key) {
    spw_html_text(out, spw_point_words(object, key));
}

static inline bool spw_point_is_live_lower_bound(const json_t *point) {
    return strcmp(spw_point_words(point, "memory_kind"), "live") == 0;
}

static inline bool spw_point_is_sure(const json_t *point) {
    return json_is_true(json_object_get(point, "surely_fits"));
}

#endif
