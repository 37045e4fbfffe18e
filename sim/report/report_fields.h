/* Fields of a JSON text that may be anybody's: what is missing or of another kind is named. */
#ifndef SPW_SIM_REPORT_REPORT_FIELDS_H
#define SPW_SIM_REPORT_REPORT_FIELDS_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

#define SPW_FIELD_LARGEST 1e24

/* A number: its key, where it goes, and the largest that it can be; from 0 on. */
typedef struct spw_field_number {
    const char *key;
    double *value, most;
} spw_field_number;

bool spw_field_in_range(double value, double most);

/* Of an object at `where`. SPW_EFORMAT: one is missing, or is no number from 0 to its largest. */
SPW_MUST_CHECK spw_status spw_field_numbers(json_t *object, const char *where,
                                            const spw_field_number *numbers, size_t count);
#define SPW_FIELD_NUMBERS(object, where, list) \
    spw_field_numbers(object, where, list, sizeof(list) / sizeof((list)[0]))

/* SPW_EFORMAT: missing, or no text; no object. *out lives as long as `object`. */
SPW_MUST_CHECK spw_status spw_field_text(json_t *object, const char *where, const char *key,
                                         const char **out);
SPW_MUST_CHECK spw_status spw_field_object(json_t *object, const char *where, const char *key, json_t **out);

#endif
