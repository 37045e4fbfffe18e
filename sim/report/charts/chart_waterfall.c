#include "sim/report/charts/chart_bar.h"

#include "base/memory.h"
#include "sim/report/html.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 12, MOST_PIECES = 1024, TOP = 6, BOTTOM = 24 };
static const double GIB = 1024.0 * 1024.0 * 1024.0;

typedef struct piece {
    const char *name;
    double gib;
} piece;

static int by_size(const void *left, const void *right) {
    const piece *a = left, *b = right;
    return a->gib < b->gib ? 1 : a->gib > b->gib ? -1 : strcmp(a->name, b->name);
}

static void write_bar(const spw_bar_scale *scale, const char *name, const char *class, double from, double to,
                      double budget, FILE *out) {
    spw_bar_open_name(scale, name, out);
    spw_bar_part(scale, class, from, to, TOP, BOTTOM, out);
    spw_bar_mark(scale, "budget", budget, 0, SPW_BAR_HIGH, out);
    spw_bar_close(scale, to, out);
    (void)fputs("<td class=\"number\">", out);
    spw_html_number(out, (to - from) * GIB, "%.2f GiB", to - from);
    (void)fputs("</td></tr>", out);
}

/* The pieces from the largest on, each where the one before ended, then all together. */
static void write_bars(const spw_report_row *row, const piece *pieces, size_t count, FILE *out) {
    const double budget = row->budget / GIB;
    const size_t shown = count > PIECES ? PIECES - 1 : count;
    char rest[64];
    double at = 0.0, sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += pieces[i].gib;
    const spw_bar_scale scale = spw_bar_scale_of("GiB", sum > budget || sum < budget / 4.0 ? sum : budget);
    (void)fputs("<table class=\"bars\"><tbody>", out);
    for (size_t i = 0; i < shown; i++) {
        write_bar(&scale, pieces[i].name, strcmp(pieces[i].name, "arguments") == 0 ? "state" : "c0", at,
                  at + pieces[i].gib, budget, out);
        at += pieces[i].gib;
    }
    (void)snprintf(rest, sizeof rest, "%zu smaller ones", count - shown);
    if (shown < count) write_bar(&scale, rest, "c4", at, sum, budget, out);
    write_bar(&scale, "together", spw_report_row_fits(row) ? "held" : "over", 0.0, sum, budget, out);
    (void)fputs("</tbody>", out);
    spw_bar_axis(&scale, out);
    (void)fputs("</table>", out);
}

spw_status spw_chart_waterfall(const spw_report *report, const spw_report_row *row, FILE *out) {
    spw_status status = SPW_OK;
    piece *pieces = NULL;
    size_t count = 0;
    const char *name;
    json_t *value;
    SPW_TRY(SPW_ALLOC(MOST_PIECES, &pieces));
    json_object_foreach(row->components[SPW_SHARES_MEMORY], name, value) {
        if (json_number_value(value) > 0.0 && count < MOST_PIECES)
            pieces[count++] = (piece){name, json_number_value(value) / GIB};
    }
    if (count == 0) goto cleanup;
    qsort(pieces, count, sizeof *pieces, by_size);
    (void)fputs(
        "<section><h2>The peak, piece by piece</h2><p class=\"note\">What lies in the memory of one GPU "
        "when it holds most, of <b>",
        out);
    spw_chart_label(report, row, out);
    (void)fputs("</b>", out);
    if (row->moment[0] != '\0') {
        (void)fputs(": ", out);
        spw_html_text(out, row->moment);
    }
    (void)fprintf(out, ". It may use %.1f GiB: the red line, where it is near.</p>", row->budget / GIB);
    write_bars(row, pieces, count, out);
    (void)fputs("</section>", out);

cleanup:
    spw_free(pieces);
    return status;
}
