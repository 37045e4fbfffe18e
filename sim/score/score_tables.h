/* What the scorers of tables of runs share. */
#ifndef SPW_SIM_SCORE_SCORE_TABLES_H
#define SPW_SIM_SCORE_SCORE_TABLES_H

#include "sim/read/csv.h"

#include <stddef.h>

/* Opens all of them: csv [count], empty; *opened: how many there are to close, also of a failure; *rows: of all together. */
SPW_MUST_CHECK spw_status spw_score_read_tables(const char *const *tables, size_t count, spw_csv **csv,
                                                size_t *opened, size_t *rows);

/* A figure above 0, times `unit`; NAN of an empty cell. SPW_ECONFIG of another text, which says to leave it empty where none `was`,
 * as in "measured". */
SPW_MUST_CHECK spw_status spw_score_figure(const spw_csv *csv, size_t row, const char *column, double unit,
                                           const char *was, double *out);

/* part / whole; NAN of nothing. */
double spw_score_share(size_t part, size_t whole);

#endif
