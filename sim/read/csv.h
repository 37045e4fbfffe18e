/* Tables of published figures: comma-separated values with a header line (RFC 4180). Quoted fields may hold
 * commas, doubled quotes and line ends. Text is hostile until proven: a limit on its size, every row as
 * wide as the header, no zero bytes, no stray quotes. */
#ifndef SPW_SIM_READ_CSV_H
#define SPW_SIM_READ_CSV_H

#include "base/status.h"

#include <stddef.h>

enum { SPW_CSV_BYTES = 1 << 24, SPW_CSV_COLUMNS = 256, SPW_CSV_CELLS = 1 << 20 };

typedef struct spw_csv spw_csv;

/* SPW_EIO when the file cannot be read; SPW_EFORMAT with "file:line: what; what would be right". Closed by
 * spw_csv_close. */
SPW_MUST_CHECK spw_status spw_csv_read(const char *path, spw_csv **out);
/* The same from text; `where` names it in messages and must live as long as *out. */
SPW_MUST_CHECK spw_status spw_csv_parse(const char *where, const char *text, size_t length, spw_csv **out);
void spw_csv_close(spw_csv *csv); /* NULL is fine */

size_t spw_csv_rows(const spw_csv *csv);             /* without the header and blank lines */
size_t spw_csv_line(const spw_csv *csv, size_t row); /* where the row begins, from 1 */
const char *spw_csv_where(const spw_csv *csv);
/* The field of a column in a row; NULL when there is no such column. Lives as long as `csv`. */
const char *spw_csv_field(const spw_csv *csv, size_t row, const char *column);
/* The same of a column that must be there. SPW_EFORMAT. */
SPW_MUST_CHECK spw_status spw_csv_text(const spw_csv *csv, size_t row, const char *column, const char **out);

#endif
