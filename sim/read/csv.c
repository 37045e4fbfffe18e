#include "sim/read/csv.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

struct spw_csv {
    const char *where;
    char *path, *text;  /* fields lie in `text`, unquoted in place */
    const char **field; /* [rows + 1][columns], the header first */
    size_t *line;       /* [rows + 1] */
    size_t columns, rows, fields, capacity, row_capacity;
};

size_t spw_csv_rows(const spw_csv *csv) { return csv->rows - 1; }
size_t spw_csv_line(const spw_csv *csv, size_t row) { return csv->line[row + 1]; }
const char *spw_csv_where(const spw_csv *csv) { return csv->where; }

const char *spw_csv_field(const spw_csv *csv, size_t row, const char *column) {
    for (size_t i = 0; i < csv->columns; i++) {
        if (strcmp(csv->field[i], column) == 0) return csv->field[(row + 1) * csv->columns + i];
    }
    return NULL;
}

spw_status spw_csv_text(const spw_csv *csv, size_t row, const char *column, const char **out) {
    *out = spw_csv_field(csv, row, column);
    if (*out != NULL) return SPW_OK;
    return spw_fail(SPW_EFORMAT, "%s: no column \"%s\"", spw_csv_where(csv), column);
}

void spw_csv_close(spw_csv *csv) {
    if (csv == NULL) return;
    spw_free(csv->path);
    spw_free(csv->text);
    spw_free(csv->field);
    spw_free(csv->line);
    spw_free(csv);
}

/* --- Reading --- */

typedef struct reader {
    spw_csv *csv;
    char *at, *end, *write; /* read position; unquoted text is written behind it */
    size_t line, row_line, row_fields;
} reader;

/* Room for one more of `size` bytes in an array that doubles. */
static spw_status grow(void **array, size_t used, size_t size, size_t *capacity) {
    void *larger = NULL;
    if (used < *capacity) return SPW_OK;
    const size_t wanted = *capacity == 0 ? 256 : 2 * *capacity;
    spw_status status = spw_alloc(wanted, size, &larger);
    if (status != SPW_OK) return status;
    if (used > 0) memcpy(larger, *array, used * size);
    spw_free(*array);
    *array = larger;
    *capacity = wanted;
    return SPW_OK;
}

static spw_status end_field(reader *r, const char *field) {
    spw_csv *csv = r->csv;
    *r->write = '\0';
    if (csv->fields == SPW_CSV_CELLS)
        return spw_fail(SPW_EFORMAT, "%s:%zu: more than %d fields", csv->where, r->line, SPW_CSV_CELLS);
    spw_status status = grow((void **)(void *)&csv->field, csv->fields, sizeof *csv->field, &csv->capacity);
    if (status != SPW_OK) return status;
    csv->field[csv->fields++] = field;
    r->row_fields++;
    return SPW_OK;
}

static spw_status end_row(reader *r) {
    spw_csv *csv = r->csv;
    if (csv->rows == 0) {
        csv->columns = r->row_fields;
        if (csv->columns > SPW_CSV_COLUMNS)
            return spw_fail(SPW_EFORMAT, "%s:%zu: %zu columns; at most %d are read", csv->where, r->row_line,
                            csv->columns, SPW_CSV_COLUMNS);
    }
    if (r->row_fields != csv->columns)
        return spw_fail(SPW_EFORMAT, "%s:%zu: %zu fields; the header has %zu", csv->where, r->row_line,
                        r->row_fields, csv->columns);
    spw_status status = grow((void **)(void *)&csv->line, csv->rows, sizeof *csv->line, &csv->row_capacity);
    if (status != SPW_OK) return status;
    csv->line[csv->rows++] = r->row_line;
    r->row_fields = 0;
    return SPW_OK;
}

/* A field in quotes: r->at is behind the first quote. Afterwards it is behind the last. */
static spw_status read_quoted(reader *r) {
    const size_t begin = r->line;
    while (r->at < r->end) {
        if (*r->at == '"') {
            if (r->at + 1 >= r->end || r->at[1] != '"') {
                r->at++;
                return SPW_OK;
            }
            r->at++;
        }
        r->line += *r->at == '\n';
        *r->write++ = *r->at++;
    }
    return spw_fail(SPW_EFORMAT, "%s:%zu: a quote opens here and never closes", r->csv->where, begin);
}

/* One field and what ends it: ',' or the end of the row, which *last says. */
static spw_status read_field(reader *r, bool *last) {
    const char *field = r->write = r->at;
    spw_status status = SPW_OK;
    if (r->at < r->end && *r->at == '"') {
        r->at++;
        status = read_quoted(r);
        if (status != SPW_OK) return status;
    } else {
        while (r->at < r->end && *r->at != ',' && *r->at != '\n' && *r->at != '"') r->at++;
        r->write = r->at;
        if (r->at < r->end && *r->at == '\n' && r->at > field && r->at[-1] == '\r') r->write--;
        if (r->at == r->end && r->at > field && r->at[-1] == '\r') r->write--;
    }
    if (r->at < r->end && *r->at == '\r' && (r->at + 1 == r->end || r->at[1] == '\n')) r->at++;
    if (r->at < r->end && *r->at != ',' && *r->at != '\n')
        return spw_fail(SPW_EFORMAT,
                        "%s:%zu: a quote stands inside a field; quote the whole field and double the quote",
                        r->csv->where, r->line);
    *last = r->at >= r->end || *r->at == '\n';
    const bool newline = r->at < r->end && *r->at == '\n';
    if (r->at < r->end) r->at++;
    status = end_field(r, field);
    r->line += newline;
    return status;
}

static spw_status check_header(const spw_csv *csv) {
    if (csv->rows == 0) return spw_fail(SPW_EFORMAT, "%s: empty; a header line is needed", csv->where);
    for (size_t i = 0; i < csv->columns; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(csv->field[i], csv->field[j]) == 0)
                return spw_fail(SPW_EFORMAT, "%s:1: column '%.40s' is there twice", csv->where,
                                csv->field[i]);
        }
    }
    return SPW_OK;
}

/* csv->text is a copy of `length` bytes, ended by zero. */
static spw_status csv_parse(spw_csv *csv, size_t length) {
    reader r = {.csv = csv, .at = csv->text, .end = csv->text + length, .line = 1};
    if (memchr(csv->text, '\0', length) != NULL)
        return spw_fail(SPW_EFORMAT, "%s: holds a zero byte; a CSV file is text", csv->where);
    r.at += spw_text_skip_mark(csv->text, &length) - csv->text;
    while (r.at < r.end) {
        bool last = false;
        if (*r.at == '\n' || (*r.at == '\r' && r.at + 1 < r.end && r.at[1] == '\n')) { /* a blank line */
            r.at += *r.at == '\r' ? 2 : 1;
            r.line++;
            continue;
        }
        r.row_line = r.line;
        while (!last) {
            spw_status status = read_field(&r, &last);
            if (status != SPW_OK) return status;
        }
        spw_status status = end_row(&r);
        if (status != SPW_OK) return status;
    }
    return check_header(csv);
}

spw_status spw_csv_parse(const char *where, const char *text, size_t length, spw_csv **out) {
    spw_status status = SPW_OK;
    spw_csv *csv = NULL;
    *out = NULL;
    if (length > SPW_CSV_BYTES)
        return spw_fail(SPW_EFORMAT, "%s: %zu bytes; at most %d are read", where, length, SPW_CSV_BYTES);
    SPW_TRY(SPW_ALLOC(1, &csv));
    csv->where = where;
    SPW_TRY(SPW_ALLOC(length + 1, &csv->text));
    memcpy(csv->text, text, length);
    SPW_TRY(csv_parse(csv, length));
    *out = csv;

cleanup:
    if (status != SPW_OK) spw_csv_close(csv);
    return status;
}

spw_status spw_csv_read(const char *path, spw_csv **out) {
    spw_status status = SPW_OK;
    char *text = NULL, *copy = NULL;
    spw_csv *csv = NULL;
    size_t length = 0;
    const size_t path_size = strlen(path) + 1;
    *out = NULL;
    SPW_TRY(spw_file_read(path, SPW_CSV_BYTES, &text, &length));
    SPW_TRY(SPW_ALLOC(path_size, &copy));
    memcpy(copy, path, path_size);
    SPW_TRY(spw_csv_parse(copy, text, length, &csv));
    if (csv != NULL) { /* always, which the analyzer cannot see */
        csv->path = copy;
        copy = NULL;
        *out = csv;
    }

cleanup:
    spw_free(copy);
    spw_free(text);
    return status;
}
