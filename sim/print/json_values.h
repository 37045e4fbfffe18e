/* The JSON that this program writes. Adding never fails: what could not be added, for want of memory, is remembered by the
 * writer, and a document that lacks anything is not printed. What is no number is null; what is not UTF-8 is
 * written as spw_plain_text() writes it. Printed in ASCII: other characters are escaped. */
#ifndef SPW_SIM_PRINT_JSON_VALUES_H
#define SPW_SIM_PRINT_JSON_VALUES_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One document under way; begins zeroed. */
typedef struct spw_json {
    bool failed; /* something is missing */
} spw_json;

/* Both take the value; a NULL value, or a NULL object or array, is one that could not be made. */
void spw_json_put(spw_json *json, json_t *object, const char *key, json_t *value);
void spw_json_add(spw_json *json, json_t *array, json_t *value);

/* NULL without memory. */
json_t *spw_json_real(double value);
json_t *spw_json_count(uint64_t value);
json_t *spw_json_text(const char *value); /* NULL: null */

/* Puts cells of a table's last row (table.h) into an object, by their keys between commas: "gpus,low_s:step_s_low" is low_s by another
 * name there. */
struct spw_table;
void spw_table_put(const struct spw_table *table, const char *keys, spw_json *json, json_t *object);

/* Prints the document and a line end, and takes it. `flags` are those of jansson. SPW_ENOMEM when anything is missing, SPW_EIO
 * when `out` cannot be written; `what` is what the message calls the document. */
SPW_MUST_CHECK spw_status spw_json_print(const spw_json *json, json_t *document, size_t flags,
                                         const char *what, FILE *out);

/* The same as text, which the caller frees with free(). */
SPW_MUST_CHECK spw_status spw_json_string(const spw_json *json, json_t *document, size_t flags,
                                          const char *what, char **out);

#endif
