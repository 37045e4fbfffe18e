#include "sim/print/table.h"

#include "base/memory.h"
#include "sim/print/json_values.h"
#include "sim/print/table_internal.h"
#include "sim/print/wrap.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local size_t most_characters = SPW_LINE_CHARACTERS;

void spw_table_lines_at(size_t most) { most_characters = most; }

spw_status spw_format_parse(const char *text, spw_format *out) {
    static const char *const names[] = {"table", "json", "csv"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *out = (spw_format)i;
        return SPW_OK;
    }
    return spw_fail(SPW_EARG, "--format '%s' is unknown; use table, json or csv", text);
}

spw_status spw_table_create(const spw_column *columns, spw_table **out) {
    spw_status status = SPW_ALLOC(1, out);
    if (status != SPW_OK) return status;
    (*out)->columns = columns;
    (*out)->open = columns == NULL;
    if (columns == NULL) return SPW_OK;
    while (columns[(*out)->width].key != NULL) (*out)->width++;
    if ((*out)->width == 0) {
        spw_table_destroy(*out);
        *out = NULL;
        return spw_fail(SPW_EARG, "a table without columns");
    }
    return SPW_OK;
}

void spw_table_destroy(spw_table *table) {
    if (table == NULL) return;
    spw_table_empty(table);
    spw_free(table->named);
    spw_free(table->cells);
    spw_free(table);
}

void spw_table_empty(spw_table *table) {
    for (size_t i = 0; i < table->used; i++) free(table->cells[i].text);
    table->used = 0;
    table->open = false;
}

static void name_column(spw_table *table, const char *key, const char *heading) {
    if (table->width == table->names) {
        spw_column *larger = NULL;
        table->names = table->names == 0 ? 64 : 2 * table->names;
        table->failed = table->failed || SPW_ALLOC(table->names, &larger) != SPW_OK;
        if (table->failed) return;
        if (table->width > 0) memcpy(larger, table->named, table->width * sizeof *larger);
        spw_free(table->named);
        table->columns = table->named = larger;
    }
    table->named[table->width++] = (spw_column){key, heading};
}

spw_table *spw_table_in(spw_table *table, const char *key, const char *heading) {
    if (table->failed) return table;
    if (table->width > 0 && strcmp(key, table->columns[0].key) == 0) table->open = false;
    if (table->open)
        name_column(table, key, heading);
    else if (table->width == 0 || strcmp(key, table->columns[table->used % table->width].key) != 0)
        table->astray = key;
    return table;
}

static void table_add(spw_table *table, cell_kind kind, const char *text, uint64_t count, double real) {
    if (table->used == table->capacity && !table->failed) {
        cell *larger = NULL;
        size_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
        table->failed = SPW_ALLOC(capacity, &larger) != SPW_OK;
        if (!table->failed) {
            if (table->used > 0) memcpy(larger, table->cells, table->used * sizeof *larger);
            spw_free(table->cells);
            table->cells = larger;
            table->capacity = capacity;
        }
    }
    char *copy = table->failed ? NULL : strdup(text);
    if (copy == NULL) {
        table->failed = true;
        return;
    }
    table->cells[table->used++] = (cell){kind, copy, count, real};
}

void spw_table_text(spw_table *table, const char *text) {
    char plain[1024]; /* a cell may hold what a file says */
    spw_plain_text(text, plain, sizeof plain);
    table_add(table, CELL_TEXT, plain, 0, 0.0);
}

void spw_table_none(spw_table *table) { table_add(table, CELL_NONE, "-", 0, 0.0); }

void spw_table_count(spw_table *table, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    table_add(table, CELL_COUNT, text, value, 0.0);
}

/* The formats come from our own tables, never from input. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
void spw_table_scaled(spw_table *table, double value, double unit, const char *shown_format) {
    char text[64];
    if (!isfinite(value)) {
        spw_table_none(table);
        return;
    }
    snprintf(text, sizeof text, shown_format, value / unit);
    table_add(table, CELL_REAL, text, 0, value);
}

void spw_table_count_of(spw_table *table, bool there, uint64_t value, double unit, const char *shown_format) {
    char text[64] = "-";
    if (there) snprintf(text, sizeof text, shown_format, (double)value / unit);
    table_add(table, there ? CELL_COUNT : CELL_NONE, text, value, 0.0);
}
#pragma GCC diagnostic pop

void spw_table_whole(spw_table *table, int64_t value) {
    if (value >= 0) {
        spw_table_count(table, (uint64_t)value);
    } else {
        spw_table_real(table, (double)value, "%.0f");
    }
}

void spw_table_real(spw_table *table, double value, const char *shown_format) {
    spw_table_scaled(table, value, 1.0, shown_format != NULL ? shown_format : "%g");
}

void spw_table_shown(spw_table *table, uint64_t value, const char *shown) {
    table_add(table, CELL_COUNT, shown, value, 0.0);
}

void spw_table_real_shown(spw_table *table, double value, const char *shown) {
    table_add(table, isfinite(value) ? CELL_REAL : CELL_NONE, shown, 0, value);
}

const char *spw_figure_text(double value, char out[SPW_SPAN_TEXT]) {
    const double size = fabs(value);
    if (size < 0.9995) {
        (void)snprintf(out, SPW_SPAN_TEXT, "%#.3g", value);
    } else {
        (void)snprintf(out, SPW_SPAN_TEXT, "%.*f", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, value);
    }
    return out;
}

const char *spw_amount_text(double value, char out[SPW_SPAN_TEXT]) {
    static const struct {
        double from;
        char letter;
    } units[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e4, 'k'}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        char digits[SPW_SPAN_TEXT];
        const double from = units[i].from >= 1e6 ? units[i].from : 1e3;
        if (value < units[i].from) continue;
        (void)snprintf(out, SPW_SPAN_TEXT, "%.20s %c", spw_figure_text(value / from, digits),
                       units[i].letter);
        return out;
    }
    return spw_figure_text(value, out);
}

const char *spw_span_text(double low, double high, const char *between, char out[SPW_SPAN_TEXT]) {
    char ends[2][SPW_SPAN_TEXT];
    (void)snprintf(out, SPW_SPAN_TEXT, "%.20s%s%.20s", spw_figure_text(low, ends[0]), between,
                   spw_figure_text(high, ends[1]));
    return out;
}

void spw_table_amount(spw_table *table, double value) {
    char text[SPW_SPAN_TEXT];
    spw_table_real_shown(table, value, isfinite(value) ? spw_amount_text(value, text) : "-");
}

void spw_table_figure(spw_table *table, double value) {
    char text[SPW_SPAN_TEXT];
    spw_table_real_shown(table, value, isfinite(value) ? spw_figure_text(value, text) : "-");
}

void spw_table_interval(spw_table *table, spw_column low, const char *high, double from, double to) {
    char text[SPW_SPAN_TEXT];
    spw_table_real_shown(spw_table_in(table, low.key, low.heading), from,
                         isfinite(from) ? spw_span_text(from, to, "-", text) : "-");
    spw_table_real_shown(spw_table_in(table, high, NULL), to, "");
}

void spw_table_flag(spw_table *table, bool value) {
    table_add(table, CELL_FLAG, value ? "yes" : "no", value, 0.0);
}

/* What a spreadsheet would compute when it opens the file; a number is none. */
static bool is_formula(const char *text) {
    char *end = NULL;
    if (text[0] == '\0' || strchr("=+-@\t\r", text[0]) == NULL || strcmp(text, "-") == 0) return false;
    (void)strtod(text, &end);
    return *end != '\0' || end == text;
}

static void print_csv_text(const char *text, FILE *out) {
    const bool formula = is_formula(text);
    if (!formula && strpbrk(text, ",\"\n\r") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    if (formula) fputc('\'', out); /* which spreadsheets take for the mark of a text */
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void print_csv(const spw_table *table, FILE *out) {
    for (size_t c = 0; c < table->width; c++)
        fprintf(out, "%s%s", table->columns[c].key, c + 1 < table->width ? "," : "\n");
    for (size_t i = 0; i < table->used; i++) {
        const cell *c = &table->cells[i];
        switch (c->kind) {
        case CELL_NONE: break;
        case CELL_TEXT:
        case CELL_FLAG: print_csv_text(c->text, out); break;
        case CELL_COUNT: fprintf(out, "%" PRIu64, c->count); break;
        case CELL_REAL: fprintf(out, "%.17g", c->real); break;
        }
        fputs((i + 1) % table->width == 0 ? "\n" : ",", out);
    }
}

static json_t *cell_json(const cell *c) {
    switch (c->kind) {
    case CELL_NONE: break;
    case CELL_TEXT: return spw_json_text(c->text);
    case CELL_COUNT: return spw_json_count(c->count);
    case CELL_REAL: return spw_json_real(c->real);
    case CELL_FLAG: return json_boolean(c->count != 0);
    }
    return json_null();
}

void spw_table_put(const spw_table *table, const char *keys, spw_json *json, json_t *object) {
    for (const char *key = keys; *key != '\0' && !table->failed;) {
        char of[64], as[64];
        const int known = sscanf(key, "%63[^:,]:%63[^,]", of, as);
        size_t c = 0;
        while (c < table->width && strcmp(table->columns[c].key, of) != 0) c++;
        spw_json_put(json, object, known == 2 ? as : of,
                     c < table->width ? cell_json(&table->cells[table->used - table->width + c]) : NULL);
        key += strcspn(key, ",");
        key += *key == ',';
    }
    json->failed = json->failed || table->failed;
}

static spw_status print_json(const spw_table *table, FILE *out) {
    spw_json json = {.failed = false};
    json_t *rows = json_array();
    for (size_t i = 0; table->width > 0 && i < table->used; i++) {
        const cell *c = &table->cells[i];
        if (i % table->width == 0) spw_json_add(&json, rows, json_object());
        spw_json_put(&json, json_array_get(rows, i / table->width), table->columns[i % table->width].key,
                     cell_json(c));
    }
    return spw_json_print(&json, rows, JSON_INDENT(1), "the table", out);
}

spw_status spw_table_print(const spw_table *table, spw_format format, FILE *out) {
    if (table->failed) return spw_fail(SPW_ENOMEM, "cannot allocate a table");
    if (table->width == 0) return format == SPW_FORMAT_JSON ? print_json(table, out) : SPW_OK; /* no row */
    if (table->astray != NULL || table->used % table->width != 0)
        return spw_fail(SPW_EMISMATCH,
                        "a row of a table with other columns than the first, at %s; please report it",
                        table->astray != NULL ? table->astray : "its end");
    switch (format) {
    case SPW_FORMAT_TABLE: return spw_table_print_folded(table, most_characters, out);
    case SPW_FORMAT_CSV: print_csv(table, out); break;
    case SPW_FORMAT_JSON: return print_json(table, out);
    }
    return SPW_OK;
}
