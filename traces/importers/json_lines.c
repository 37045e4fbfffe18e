#include "traces/importers/json_lines.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct spw_json_lines {
    const char *path;
    FILE *file;
    char *text; /* the line */
    size_t length, capacity, number;
    json_t *object;
};

const char *spw_json_lines_path(const spw_json_lines *lines) { return lines->path; }

size_t spw_json_lines_number(const spw_json_lines *lines) { return lines->number; }

spw_status spw_json_lines_fail(const spw_json_lines *lines, const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args); /* NOLINT(clang-analyzer-valist*) */
    va_end(args);
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s", lines->path, lines->number, text);
}

static spw_status put(spw_json_lines *lines, int c) {
    if (lines->length == SPW_JSON_LINE_BYTES)
        return spw_json_lines_fail(lines,
                                   "a line of more than %d bytes; one JSON object a line would be right",
                                   SPW_JSON_LINE_BYTES);
    if (lines->length == lines->capacity) {
        char *larger = NULL;
        const size_t capacity = lines->capacity * 2 + 4096;
        const spw_status status = SPW_ALLOC(capacity, &larger);
        if (status != SPW_OK) return status;
        if (lines->length > 0) memcpy(larger, lines->text, lines->length);
        spw_free(lines->text);
        lines->text = larger;
        lines->capacity = capacity;
    }
    lines->text[lines->length++] = (char)c;
    return SPW_OK;
}

/* The next line that is not blank; *end: there is none. */
static spw_status read_line(spw_json_lines *lines, bool *end) {
    bool blank = true;
    lines->length = 0;
    lines->number++;
    for (;;) {
        const int c = getc_unlocked(lines->file);
        if (c == EOF && ferror(lines->file)) return spw_fail(SPW_EIO, "%s: %s", lines->path, strerror(errno));
        if (c == EOF || c == '\n') {
            *end = c == EOF && blank;
            if (!blank || c == EOF) return SPW_OK;
            lines->length = 0;
            lines->number++;
            continue;
        }
        blank = blank && (c == ' ' || c == '\t' || c == '\r');
        const spw_status status = put(lines, c);
        if (status != SPW_OK) return status;
    }
}

static spw_status json_lines_parse(spw_json_lines *lines) {
    json_error_t error;
    char plain[JSON_ERROR_TEXT_LENGTH];
    size_t length = lines->length;
    const char *text = lines->number > 1 ? lines->text : spw_text_skip_mark(lines->text, &length);
    lines->object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (lines->object == NULL) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return spw_fail(SPW_ENOMEM, "%s:%zu: out of memory", lines->path, lines->number);
        spw_plain_text(error.text, plain, sizeof plain);
        return spw_json_lines_fail(lines, "column %d: %s (cut short?)", error.column, plain);
    }
    return json_is_object(lines->object) ? SPW_OK : spw_json_lines_fail(lines, "must be a JSON object");
}

spw_status spw_json_lines_read(const char *path,
                               spw_status (*record)(void *context, spw_json_lines *lines, json_t *object),
                               void *context) {
    spw_status status = SPW_OK;
    spw_json_lines lines = {.path = path};
    bool end = false;
    SPW_TRY(spw_file_open(path, &lines.file));
    for (;;) {
        SPW_TRY(read_line(&lines, &end));
        if (end) break;
        SPW_TRY(json_lines_parse(&lines));
        SPW_TRY(record(context, &lines, lines.object));
        json_decref(lines.object);
        lines.object = NULL;
    }

cleanup:
    json_decref(lines.object);
    if (lines.file != NULL) (void)fclose(lines.file);
    spw_free(lines.text);
    return status;
}

spw_status spw_json_check_keys(const spw_json_lines *lines, json_t *object, const char *const *known) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(object, key, value) {
        size_t i = 0;
        char plain[64];
        while (known[i] != NULL && strcmp(known[i], key) != 0) i++;
        if (known[i] != NULL) continue;
        spw_plain_text(key, plain, sizeof plain);
        return spw_json_lines_fail(lines, "key '%s' is not known to this format", plain);
    }
    return SPW_OK;
}

spw_status spw_json_whole(const spw_json_lines *lines, const json_t *object, const char *key, int64_t least,
                          int64_t most, int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL) return spw_json_lines_fail(lines, "key '%s' is missing", key);
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
        return spw_json_lines_fail(lines, "'%s' must be a whole number from %" PRId64 " to %" PRId64, key,
                                   least, most);
    *out = json_integer_value(value);
    return SPW_OK;
}

spw_status spw_json_word(const spw_json_lines *lines, const json_t *object, const char *key,
                         const char **out) {
    const json_t *value = json_object_get(object, key);
    if (value == NULL) return spw_json_lines_fail(lines, "key '%s' is missing", key);
    if (!json_is_string(value)) return spw_json_lines_fail(lines, "'%s' must be a text", key);
    *out = json_string_value(value);
    return SPW_OK;
}

/* --- Tables --- */

/* Room for `count`, and for one where there are none: rows are then found, though empty. */
static spw_status reserve(spw_json_table *table, size_t count) {
    if (count < 1) count = 1;
    if (count <= table->capacity) return SPW_OK;
    spw_free(table->value);
    table->capacity = 0;
    const spw_status status = SPW_ALLOC(count, &table->value);
    if (status == SPW_OK) table->capacity = count;
    return status;
}

static spw_status read_row(const spw_json_lines *lines, const json_t *row, const char *key, uint32_t most,
                           uint32_t *out) {
    for (size_t i = 0; i < json_array_size(row); i++) {
        const json_t *value = json_array_get(row, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > most)
            return spw_json_lines_fail(lines, "'%s', element %zu: must be a whole number from 0 to %u", key,
                                       i, most);
        out[i] = (uint32_t)json_integer_value(value);
    }
    return SPW_OK;
}

spw_status spw_json_read_table(const spw_json_lines *lines, const json_t *object, const char *key,
                               uint32_t most, spw_json_table *table) {
    spw_status status = SPW_OK;
    const json_t *list = json_object_get(object, key);
    size_t cells = 0;
    if (list == NULL) return spw_json_lines_fail(lines, "key '%s' is missing", key);
    if (!json_is_array(list)) return spw_json_lines_fail(lines, "'%s' must be a list of lists", key);
    table->rows = json_array_size(list);
    table->columns = table->rows > 0 ? json_array_size(json_array_get(list, 0)) : 0;
    for (size_t i = 0; i < table->rows; i++) {
        const json_t *row = json_array_get(list, i);
        if (!json_is_array(row))
            return spw_json_lines_fail(lines, "'%s', row %zu: must be a list of whole numbers", key, i);
        if (json_array_size(row) != table->columns)
            return spw_json_lines_fail(lines, "'%s', row %zu: has %zu elements, the first row %zu", key, i,
                                       json_array_size(row), table->columns);
    }
    if (!spw_mul_size(table->rows, table->columns, &cells))
        return spw_fail(SPW_ENOMEM, "%zu x %zu numbers", table->rows, table->columns);
    SPW_TRY(reserve(table, cells));
    for (size_t i = 0; i < table->rows; i++)
        SPW_TRY(read_row(lines, json_array_get(list, i), key, most, table->value + i * table->columns));

cleanup:
    return status;
}

spw_status spw_json_read_list(const spw_json_lines *lines, const json_t *object, const char *key,
                              uint32_t most, spw_json_table *table) {
    const json_t *list = json_object_get(object, key);
    if (list == NULL) return spw_json_lines_fail(lines, "key '%s' is missing", key);
    if (!json_is_array(list)) return spw_json_lines_fail(lines, "'%s' must be a list of whole numbers", key);
    table->rows = 1;
    table->columns = json_array_size(list);
    const spw_status status = reserve(table, table->columns);
    return status != SPW_OK ? status : read_row(lines, list, key, most, table->value);
}

void spw_json_table_clear(spw_json_table *table) {
    spw_free(table->value);
    *table = (spw_json_table){NULL, 0, 0, 0};
}

spw_status spw_json_check_table(const spw_json_lines *lines, const char *key, const spw_json_table *table,
                                size_t rows, size_t columns) {
    if (table->rows == rows && (table->columns == columns || rows == 0)) return SPW_OK;
    return spw_json_lines_fail(lines, "'%s' has %zu rows of %zu elements; %zu of %zu would be right", key,
                               table->rows, table->columns, rows, columns);
}
