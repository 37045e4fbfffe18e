/* A whole number of a table, which must be there. */
#ifndef SPW_TESTS_CSV_NUMBER_H
#define SPW_TESTS_CSV_NUMBER_H

#include "sim/read/csv.h"
#include "tests/unit/check.h"

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t number(const spw_csv *csv, size_t row, const char *column) {
    const char *text = NULL;
    CHECK_OK(spw_csv_text(csv, row, column, &text));
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

#endif
