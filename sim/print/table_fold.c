#include "base/memory.h"
#include "sim/print/table_internal.h"
#include "sim/print/wrap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 2, LEAST_TEXT = 40 }; /* a column of texts is broken where it still has so much room */

/* A column that a person sees. */
typedef struct form {
    size_t column, width; /* characters; of a column of texts as many as it may have */
    bool text;
} form;

typedef struct sheet {
    const spw_table *table;
    form *form;
    const char **rest; /* of the cells of the row that is printed */
    size_t *block;     /* the columns that are printed beside each other */
    size_t *row;       /* rows in the order of their names */
    size_t columns, rows, names, shown, most;
    FILE *out;
} sheet;

static const char *cell_text(const sheet *s, size_t row, size_t column) {
    return s->table->cells[row * s->table->width + s->form[column].column].text;
}

static bool is_text(const spw_table *table, size_t column) {
    for (size_t i = column; i < table->used; i += table->width) {
        if (table->cells[i].kind == CELL_COUNT || table->cells[i].kind == CELL_REAL) return false;
    }
    return true;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* The width of a heading on two lines, of which the first is no shorter than need be. */
static size_t stacked(const char *heading) {
    const size_t whole = spw_characters(heading);
    size_t least = whole;
    for (size_t i = 0; heading[i] != '\0'; i++) {
        if (heading[i] == ' ') least = larger(i, whole - i - 1) < least ? larger(i, whole - i - 1) : least;
    }
    return least;
}

static size_t width_of(const sheet *s) {
    size_t width = 0;
    for (size_t c = 0; c < s->columns; c++) width += s->form[c].width + (c > 0 ? GAP : 0);
    return width;
}

/* As wide as the widest cell, and as the heading: on one line if that fits, otherwise on two. */
static void set_widths(sheet *s) {
    for (int lines = 1; lines <= 2 && (lines == 1 || width_of(s) > s->most); lines++) {
        for (size_t c = 0; c < s->columns; c++) {
            const char *heading = s->table->columns[s->form[c].column].heading;
            s->form[c].width = lines == 1 ? spw_characters(heading) : stacked(heading);
            for (size_t r = 0; r < s->rows; r++)
                s->form[c].width = larger(s->form[c].width, spw_characters(cell_text(s, r, c)));
        }
    }
}

/* --- The columns that name a row --- */

static int compare_rows(const void *a, const void *b, void *state) {
    const sheet *s = state;
    int order = 0;
    for (size_t c = 0; c < s->names && order == 0; c++)
        order = strcmp(cell_text(s, *(const size_t *)a, c), cell_text(s, *(const size_t *)b, c));
    return order;
}

/* The first columns that tell every row from every other, as far as they leave half of a line to the rest. */
static void choose_names(sheet *s) {
    size_t width = s->form[0].width;
    if (s->columns == 1) return;
    if (s->form[0].text && width > s->most / 2) s->form[0].width = width = s->most / 2;
    for (size_t r = 0; r < s->rows; r++) s->row[r] = r;
    for (s->names = 1; s->names + 1 < s->columns; s->names++) {
        qsort_r(s->row, s->rows, sizeof *s->row, compare_rows, s);
        bool same = false;
        for (size_t r = 1; r < s->rows && !same; r++) same = compare_rows(&s->row[r - 1], &s->row[r], s) == 0;
        width += GAP + s->form[s->names].width;
        if (!same || width > s->most / 2) break;
    }
}

/* --- Blocks --- */

/* The next line of the cells of one row; false: nothing is left of it. */
static bool print_line(sheet *s) {
    size_t pending = 0; /* blanks that are printed before the next text, never at an end */
    bool left = false;
    for (size_t i = 0; i < s->shown; i++) left = left || *s->rest[i] != '\0';
    for (size_t i = 0; i < s->shown && left; i++) {
        const form *f = &s->form[s->block[i]];
        const char *const part = s->rest[i];
        const size_t bytes = spw_wrap_next(&s->rest[i], f->width);
        size_t length = 0;
        for (size_t b = 0; b < bytes; b++) length += spw_begins_character(part[b]);
        const size_t pad = f->width > length ? f->width - length : 0;
        if (!f->text) pending += pad;
        if (bytes > 0) {
            fprintf(s->out, "%*s%.*s", (int)pending, "", (int)bytes, part);
            pending = 0;
        }
        pending += GAP + (f->text ? pad : 0);
    }
    if (left) fputc('\n', s->out);
    return left;
}

/* Headings of one line stand beside the second line of the others. */
static void print_headings(sheet *s) {
    bool higher = false;
    for (int line = 0; line < 2; line++) {
        for (size_t i = 0; i < s->shown; i++) {
            const form *f = &s->form[s->block[i]];
            const char *const heading = s->table->columns[f->column].heading;
            const bool whole = spw_characters(heading) <= f->width;
            higher = higher || !whole;
            if (line == 0) s->rest[i] = whole ? "" : heading;
            if (line == 1 && whole) s->rest[i] = heading;
        }
        if (line == 1 || higher) (void)print_line(s);
    }
}

static void print_block(sheet *s) {
    print_headings(s);
    for (size_t r = 0; r < s->rows; r++) {
        for (size_t i = 0; i < s->shown; i++) s->rest[i] = cell_text(s, r, s->block[i]);
        do {
        } while (print_line(s));
    }
}

/* Says something of the column before it, and stands beside it. */
static bool goes_with_the_last(const sheet *s, size_t column) {
    const char *const heading = s->table->columns[s->form[column].column].heading;
    bool same = strcmp(heading, "low-high") == 0;
    for (size_t c = 0; c < s->columns && !same; c++)
        same = c != column && strcmp(heading, s->table->columns[s->form[c].column].heading) == 0;
    return same;
}

/* The columns from `at` on for which there is room beside the names; returns the first that is left. */
static size_t choose_block(sheet *s, size_t at) {
    const size_t first = at;
    size_t used = 0;
    for (s->shown = 0; s->shown < s->names; s->shown++) {
        s->block[s->shown] = s->shown;
        used += s->form[s->shown].width + GAP;
    }
    for (; at < s->columns; at++) {
        form *f = &s->form[at];
        const size_t room = used < s->most ? s->most - used : 0;
        if (f->width > room && at > first && !(f->text && room >= LEAST_TEXT)) break;
        if (f->width > room && f->text) f->width = larger(room, LEAST_TEXT);
        s->block[s->shown++] = at;
        used += f->width + GAP;
    }
    while (at < s->columns && at > first + 1 && goes_with_the_last(s, at)) {
        used -= s->form[--at].width + GAP;
        s->shown--;
    }
    for (size_t i = 0; i < s->shown; i++) { /* a heading on one line, where there is room after all */
        form *f = &s->form[s->block[i]];
        const size_t whole = spw_characters(s->table->columns[f->column].heading);
        if (whole <= f->width || used + whole - f->width > s->most + GAP) continue;
        used += whole - f->width;
        f->width = whole;
    }
    return at;
}

static void print_blocks(sheet *s) {
    if (width_of(s) <= s->most) {
        s->names = s->columns;
        (void)choose_block(s, s->columns);
        print_block(s);
        return;
    }
    choose_names(s);
    for (size_t at = s->names; at < s->columns;) {
        if (at > s->names) fputc('\n', s->out);
        at = choose_block(s, at);
        print_block(s);
    }
}

spw_status spw_table_print_folded(const spw_table *table, size_t most, FILE *out) {
    sheet s = {.table = table, .rows = table->used / table->width, .most = most, .out = out};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(table->width, &s.form));
    SPW_TRY(SPW_ALLOC(table->width, &s.block));
    SPW_TRY(spw_alloc(table->width, sizeof *s.rest, (void **)&s.rest));
    SPW_TRY(SPW_ALLOC(s.rows, &s.row));
    for (size_t c = 0; c < table->width; c++) {
        if (table->columns[c].heading != NULL) s.form[s.columns++] = (form){c, 0, is_text(table, c)};
    }
    set_widths(&s);
    if (s.columns > 0) print_blocks(&s);

cleanup:
    spw_free(s.form);
    spw_free(s.block);
    spw_free((void *)s.rest);
    spw_free(s.row);
    return status;
}
