/* Files of one JSON object a line, as programs append them. Text is hostile: a limit on a line, no doubled keys, no keys that
 * are not known, every number in its range; messages name file and line. */
#ifndef SPW_TRACES_IMPORTERS_JSON_LINES_H
#define SPW_TRACES_IMPORTERS_JSON_LINES_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPW_JSON_LINE_BYTES = 1 << 26 };

typedef struct spw_json_lines spw_json_lines;

/* Calls record(context, lines, object) for every line that is not blank; object lives until it returns. Stops at its first
 * failure. */
SPW_MUST_CHECK spw_status spw_json_lines_read(const char *path,
                                              spw_status (*record)(void *context, spw_json_lines *lines,
                                                                   json_t *object),
                                              void *context);
const char *spw_json_lines_path(const spw_json_lines *lines);
size_t spw_json_lines_number(const spw_json_lines *lines); /* of the line read last, from 1 */

/* Fails with "FILE:LINE: " before the text. */
spw_status spw_json_lines_fail(const spw_json_lines *lines, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Refuses keys that are not in `known`, which ends with NULL. */
SPW_MUST_CHECK spw_status spw_json_check_keys(const spw_json_lines *lines, json_t *object,
                                              const char *const *known);
SPW_MUST_CHECK spw_status spw_json_whole(const spw_json_lines *lines, const json_t *object, const char *key,
                                         int64_t least, int64_t most, int64_t *out);
/* *out lives as long as the object. */
SPW_MUST_CHECK spw_status spw_json_word(const spw_json_lines *lines, const json_t *object, const char *key,
                                        const char **out);

/* value [rows][columns]; grows and is used again. */
typedef struct spw_json_table {
    uint32_t *value;
    size_t rows, columns, capacity;
} spw_json_table;

/* The rows of a list of lists of whole numbers from 0 to `most`; all as long as the first. A list of no rows has no columns. */
SPW_MUST_CHECK spw_status spw_json_read_table(const spw_json_lines *lines, const json_t *object,
                                              const char *key, uint32_t most, spw_json_table *table);
/* The same for a plain list: one row. */
SPW_MUST_CHECK spw_status spw_json_read_list(const spw_json_lines *lines, const json_t *object,
                                             const char *key, uint32_t most, spw_json_table *table);
void spw_json_table_clear(spw_json_table *table);

/* Rows and columns must be these. */
SPW_MUST_CHECK spw_status spw_json_check_table(const spw_json_lines *lines, const char *key,
                                               const spw_json_table *table, size_t rows, size_t columns);

#endif
