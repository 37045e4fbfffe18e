#include "sim/report/charts/chart_bar.h"

#include "base/memory.h"
#include "sim/report/html.h"

#include <math.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { HIGH = SPW_BAR_HIGH };

static double longest(const spw_report_row *row) {
    return fmax(fmax(row->held.most, row->high), row->replayed ? row->reserved.most : 0.0) / GIB;
}

static void write_bar(const spw_report *report, const spw_report_row *row, const spw_bar_scale *s,
                      FILE *out) {
    const double most = row->held.most / GIB, low = row->low / GIB, high = row->high / GIB;
    spw_bar_open(s, report, row, out);
    if (row->replayed) spw_bar_part(s, "reserved", 0.0, row->reserved.most / GIB, 3, 27, out);
    spw_bar_part(s, spw_report_row_fits(row) ? "held" : "over", 0.0, most, 8, 22, out);
    spw_bar_part(s, "state", 0.0, fmin(row->argument / GIB, most), 8, 22, out);
    if (row->held.p50 < row->held.most) spw_bar_mark(s, "median", row->held.p50 / GIB, 8, 22, out);
    if (high > low) {
        spw_bar_part(s, "interval", low, high, 14, 16, out);
        spw_bar_mark(s, "whisker", low, 10, 20, out);
        spw_bar_mark(s, "whisker", high, 10, 20, out);
    }
    spw_bar_mark(s, "budget", row->budget / GIB, 0, HIGH, out);
    spw_bar_close(s, longest(row), out);
    (void)fputs("<td class=\"number\">", out);
    /* of what is reserved on top; of what must be live alone */
    const bool more = (row->replayed && row->oom > 0.0 && most <= row->budget / GIB) ||
                      (spw_report_row_live(row) && !spw_report_row_fits(row));
    spw_html_number(out, row->held.most, more ? "&ge;%.2f GiB" : "%.2f GiB", most);
    (void)fputs("</td></tr>", out);
}

/* Only what some bar has. */
static void write_legend(const spw_report *report, FILE *out) {
    bool over = false, interval = false, reserved = false, median = false;
    for (size_t i = 0; i < report->rows; i++) {
        const spw_report_row *row = &report->row[i];
        over = over || !spw_report_row_fits(row);
        interval = interval || row->high > row->low;
        reserved = reserved || row->replayed;
        median = median || row->held.p50 < row->held.most;
    }
    const struct {
        bool there;
        const char *class, *text;
    } keys[] = {{true, "state", "weights, optimizer and other state"},
                {true, "held", "all else at the peak"},
                {over, "over", "the same, does not fit"},
                {median, "median", "half of the steps need no more"},
                {interval, "whisker", "interval of the fit"},
                {reserved, "reserved", "reserved by PyTorch's allocator"},
                {true, "budget", "what a GPU may use"}};
    (void)fputs("<ul class=\"legend\">", out);
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        if (keys[k].there)
            (void)fprintf(out, "<li><i class=\"key %s\"></i>%s</li>", keys[k].class, keys[k].text);
    }
    (void)fputs("</ul>", out);
}

spw_status spw_chart_memory_bars(const spw_report *report, FILE *out) {
    double *length = NULL, budget = 0.0;
    const spw_status status = SPW_ALLOC(report->rows, &length);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < report->rows; i++) {
        budget = fmax(budget, report->row[i].budget / GIB);
        length[i] = fmax(longest(&report->row[i]), budget);
    }
    const spw_bar_scale scale =
        spw_bar_scale_of("GiB", spw_chart_end(length, report->rows, 0.0, 2.0 * budget));
    spw_free(length);
    write_legend(report, out);
    (void)fputs("<table class=\"bars\"><tbody>", out);
    for (size_t i = 0; i < report->rows; i++) write_bar(report, &report->row[i], &scale, out);
    (void)fputs("</tbody>", out);
    spw_bar_axis(&scale, out);
    (void)fputs("</table>", out);
    return SPW_OK;
}
