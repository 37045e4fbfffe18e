/* What a table holds, for the files that print it. */
#ifndef SPW_SIM_PRINT_TABLE_INTERNAL_H
#define SPW_SIM_PRINT_TABLE_INTERNAL_H

#include "sim/print/table.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum cell_kind { CELL_NONE, CELL_TEXT, CELL_COUNT, CELL_REAL, CELL_FLAG } cell_kind;

typedef struct cell {
    cell_kind kind;
    char *text; /* what a person sees */
    uint64_t count;
    double real;
} cell;

struct spw_table {
    const spw_column *columns;
    spw_column *named; /* those that cells named; NULL: none did */
    size_t width, used, capacity, names;
    cell *cells;        /* [used / width][width] */
    bool open, failed;  /* open: the first row still names columns */
    const char *astray; /* the key of a cell that stands where another was due; NULL: none does */
};

/* Headings and rows, in lines of at most `most` characters. In this order, as far as needed: headings go on two lines;
 * columns that find no room are printed as further blocks below, which begin with the columns that name a row; a column of
 * texts is broken at its blanks. Only a word that is longer than its column makes a line longer. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_table_print_folded(const spw_table *table, size_t most, FILE *out);

#endif
