#include "sim/score/score_tables.h"

#include "base/text.h"

#include <math.h>

spw_status spw_score_read_tables(const char *const *tables, size_t count, spw_csv **csv, size_t *opened,
                                 size_t *rows) {
    *rows = 0;
    for (size_t t = 0; t < count; t++) {
        const spw_status status = spw_csv_read(tables[t], &csv[t]);
        if (status != SPW_OK) return status;
        ++*opened;
        *rows += spw_csv_rows(csv[t]);
    }
    return SPW_OK;
}

spw_status spw_score_figure(const spw_csv *csv, size_t row, const char *column, double unit, const char *was,
                            double *out) {
    const char *text = spw_csv_field(csv, row, column);
    char *end = NULL, shown[48];
    *out = NAN;
    if (text == NULL || text[0] == '\0') return SPW_OK;
    const double value = spw_text_number(text, &end);
    if (end == text || *end != '\0' || !(value > 0.0) || isinf(value)) {
        spw_plain_text(text, shown, sizeof shown);
        return spw_fail(SPW_ECONFIG, "%s:%zu: %s '%s' is no number above 0; leave it empty where none was %s",
                        spw_csv_where(csv), spw_csv_line(csv, row), column, shown, was);
    }
    *out = value * unit;
    return SPW_OK;
}

double spw_score_share(size_t part, size_t whole) { return whole > 0 ? (double)part / (double)whole : NAN; }
