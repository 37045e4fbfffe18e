/* A table that prints itself for a person, as JSON or as CSV. Cells are text; a number keeps its full
 * precision in JSON and CSV and is shown rounded to a person. */
#ifndef SPW_SIM_PRINT_TABLE_H
#define SPW_SIM_PRINT_TABLE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum spw_format { SPW_FORMAT_TABLE, SPW_FORMAT_JSON, SPW_FORMAT_CSV } spw_format;
/* "table", "json" or "csv"; SPW_EARG with the three otherwise. */
SPW_MUST_CHECK spw_status spw_format_parse(const char *text, spw_format *out);

typedef struct spw_table spw_table;

enum { SPW_SPAN_TEXT = 64 };
/* A positive number with three digits that count or all before the point. Returns `out`. */
const char *spw_figure_text(double value, char out[SPW_SPAN_TEXT]);
/* The same with a letter from ten thousand on: 21.3, 210, 192 k, 6.79 B. */
const char *spw_amount_text(double value, char out[SPW_SPAN_TEXT]);
/* Two of them with `between` in the middle. */
const char *spw_span_text(double low, double high, const char *between, char out[SPW_SPAN_TEXT]);

/* One column: the key of JSON and CSV, the heading a person sees (NULL: not shown to a person). Text columns
 * are set flush left, numbers flush right. */
typedef struct spw_column {
    const char *key, *heading;
} spw_column;

/* `columns` ends with a NULL key and must outlive the table. NULL: the cells of the first row name them, by spw_table_in();
 * without a row nothing is printed. */
SPW_MUST_CHECK spw_status spw_table_create(const spw_column *columns, spw_table **out);
void spw_table_destroy(spw_table *table); /* NULL is fine */

/* Cells are added from left to right; a full row starts the next. Adding never fails: a table that ran out of
 * memory says so when it is printed. `shown` = what a person sees (NULL: the value in %g). */
void spw_table_text(spw_table *table, const char *text);
void spw_table_count(spw_table *table, uint64_t value);
void spw_table_whole(spw_table *table, int64_t value);                         /* may be below 0 */
void spw_table_real(spw_table *table, double value, const char *shown_format); /* e.g. "%.2f" */
void spw_table_scaled(spw_table *table, double value, double unit,
                      const char *shown_format); /* shown / unit */
/* A person sees `shown`; a real that is not finite is none. */
void spw_table_shown(spw_table *table, uint64_t value, const char *shown);
void spw_table_real_shown(spw_table *table, double value, const char *shown);
/* A count where it is `there`, of which a person sees value / unit; none otherwise. */
void spw_table_count_of(spw_table *table, bool there, uint64_t value, double unit, const char *shown_format);
/* As spw_amount_text() and spw_figure_text() have them; what is not finite is none. */
void spw_table_amount(spw_table *table, double value);
void spw_table_figure(spw_table *table, double value);
/* Two cells, the ends of an interval; a person sees both in the first, "6.12-6.98". In columns that the cells name. */
void spw_table_interval(spw_table *table, spw_column low, const char *high, double from, double to);
void spw_table_flag(spw_table *table, bool value); /* true or false, "yes" or "no" */
void spw_table_none(spw_table *table);             /* null, empty, "-" */

/* The column of the next cell: `spw_table_count(spw_table_in(t, "gpus", "GPUs"), 8)`. Key and heading must outlive the table; every row
 * has the columns of the first, in their order, and begins with its first. Returns `table`. */
spw_table *spw_table_in(spw_table *table, const char *key, const char *heading);

/* Forgets the rows; columns that cells named stay. */
void spw_table_empty(spw_table *table);

/* JSON: an array of objects; CSV: a header line and rows, quoted where needed, with ' before a text that a spreadsheet would
 * take for a formula; table: headings and rows, folded where a line would be too long (table_internal.h). */
SPW_MUST_CHECK spw_status spw_table_print(const spw_table *table, spw_format format, FILE *out);
/* Characters of a line of this thread's tables for a person; 120 unless said. SIZE_MAX: no table is folded. */
void spw_table_lines_at(size_t most);

#endif
