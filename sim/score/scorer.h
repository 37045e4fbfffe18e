/* Scorers: one a kind of table. A scorer is a row of the table in scorer.c and a folder beside it. */
#ifndef SPW_SIM_SCORE_SCORER_H
#define SPW_SIM_SCORE_SCORER_H

#include "sim/print/table.h"

#include <stdio.h>

enum { SPW_SCORE_TABLES = 64 };

typedef struct spw_score_request {
    const char *const *table;
    size_t tables; /* 1 ... SPW_SCORE_TABLES */
    const char *stack,
        *time_stack;     /* presets or files that take the place of those that the rows name; or NULL */
    const char *traces;  /* the folder of the traces of measured runs, or NULL */
    const char *cluster; /* preset or file, for tables whose rows name no cluster; or NULL */
    spw_format format;
    FILE *out;
} spw_score_request;

/* Scores all tables with the scorer of their kind and prints the result. SPW_EARG for tables of different kinds, or for
 * several of a kind whose tables are scored one by one. */
SPW_MUST_CHECK spw_status spw_score_tables(const spw_score_request *request);

#endif
