#include "sim/command/trace/id_counts.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/read/csv.h"
#include "traces/generate/hash_routing.h"

#include <math.h>
#include <string.h>

/* A number that is the whole text. */
static bool read_number(const char *text, double *out) {
    char *end = NULL;
    *out = spw_text_number(text, &end);
    return end != text && *end == '\0';
}

static spw_status read_row(const spw_csv *csv, size_t row, bool *seen, double *weight, size_t *ids) {
    const char *id_text = NULL, *count_text = NULL;
    double id = 0.0, count = 0.0;
    spw_status status = spw_csv_text(csv, row, "id", &id_text);
    if (status == SPW_OK) status = spw_csv_text(csv, row, "count", &count_text);
    if (status != SPW_OK) return status;
    if (!read_number(id_text, &id) || id < 0.0 || id >= SPW_HASH_VOCABULARY || id != floor(id))
        return spw_fail(SPW_EFORMAT, "%s:%zu: id '%.40s'; must be a whole number of 0 to %d",
                        spw_csv_where(csv), spw_csv_line(csv, row), id_text, SPW_HASH_VOCABULARY - 1);
    if (!read_number(count_text, &count) || !(count >= 0.0 && count < INFINITY))
        return spw_fail(SPW_EFORMAT, "%s:%zu: count '%.40s'; must be a number of 0 or more",
                        spw_csv_where(csv), spw_csv_line(csv, row), count_text);
    if (seen[(size_t)id])
        return spw_fail(SPW_EFORMAT, "%s:%zu: id %.0f stands there twice; keep one line of it",
                        spw_csv_where(csv), spw_csv_line(csv, row), id);
    seen[(size_t)id] = true;
    weight[(size_t)id] = count;
    if ((size_t)id + 1 > *ids) *ids = (size_t)id + 1;
    return SPW_OK;
}

spw_status spw_id_counts_read(const char *path, double **weight, size_t *ids) {
    spw_status status = SPW_OK;
    spw_csv *csv = NULL;
    bool *seen = NULL;
    double *made = NULL;
    *weight = NULL;
    *ids = 0;
    SPW_TRY(spw_csv_read(path, &csv));
    SPW_TRY(SPW_ALLOC(SPW_HASH_VOCABULARY, &seen));
    SPW_TRY(SPW_ALLOC(SPW_HASH_VOCABULARY, &made));
    for (size_t row = 0; row < spw_csv_rows(csv); row++) SPW_TRY(read_row(csv, row, seen, made, ids));
    if (*ids == 0) SPW_TRY(spw_fail(SPW_EFORMAT, "%s: no ids; write a line a token's id: id,count", path));
    *weight = made;
    made = NULL;

cleanup:
    spw_csv_close(csv);
    spw_free(seen);
    spw_free(made);
    return status;
}
