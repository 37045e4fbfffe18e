#include "sim/report/report_rows.h"

#include "base/memory.h"

#include <string.h>

enum { MOST_DRAWN = 48, MOST_LISTED = 40, MOST_MORE = 400 };

/* A report of some of the rows; the rest is borrowed. */
static spw_status begin(const spw_report *report, size_t most, spw_report *out) {
    *out = *report;
    out->row = NULL;
    out->rows = 0;
    return SPW_ALLOC(report->rows < most ? report->rows : most, &out->row);
}

static void take(const spw_report_row *row, spw_report *out) { out->row[out->rows++] = *row; }

/* The rows that fit in the order of the replay, then the others: position i. */
static size_t best_first(const spw_report *report, size_t *position) {
    size_t count = 0;
    for (; count < report->fits; count++) position[count] = report->order[count];
    for (size_t i = 0; i < report->rows; i++) {
        if (!report->answered || !spw_report_row_fits(&report->row[i])) position[count++] = i;
    }
    return count;
}

/* The first of each scheme in that order, the schemes as they come. */
static void draw(const spw_report *report, const size_t *position, spw_report *out) {
    for (size_t i = 0; i < report->rows && out->rows < MOST_DRAWN; i++) {
        const spw_report_row *row = &report->row[position[i]];
        size_t same = 0;
        while (same < out->rows && strcmp(out->row[same].scheme, row->scheme) != 0) same++;
        if (!report->planned || same == out->rows) take(row, out);
    }
}

spw_status spw_report_select(const spw_report *report, spw_report *drawn, spw_report *listed,
                             spw_report *more) {
    spw_status status = SPW_OK;
    size_t *position = NULL;
    SPW_TRY(SPW_ALLOC(report->rows, &position));
    SPW_TRY(begin(report, MOST_DRAWN, drawn));
    SPW_TRY(begin(report, MOST_DRAWN, listed));
    SPW_TRY(begin(report, MOST_MORE, more));
    const bool all = !report->planned && report->rows <= MOST_DRAWN;
    if (!all) (void)best_first(report, position);
    for (size_t i = 0; i < report->rows; i++) {
        const spw_report_row *row = &report->row[all ? i : position[i]];
        const bool first =
            all || ((!report->planned || row->front || report->rows <= 12) && listed->rows < MOST_LISTED);
        if (all) take(row, drawn);
        if (first || more->rows < MOST_MORE) take(row, first ? listed : more);
    }
    if (!all) draw(report, position, drawn);
    listed->left_out = report->rows - listed->rows - more->rows;

cleanup:
    spw_free(position);
    return status;
}
