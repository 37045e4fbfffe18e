#include "sim/report/charts/chart.h"

#include "sim/report/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

size_t spw_chart_ticks(double most, size_t wanted, double tick[SPW_CHART_TICKS]) {
    static const double round[] = {1.0, 2.0, 2.5, 5.0, 10.0};
    if (!(most > 0.0)) most = 1.0;
    const double raw = most / (double)wanted, power = pow(10.0, floor(log10(raw)));
    double step = 10.0 * power;
    for (size_t i = sizeof round / sizeof round[0]; i-- > 0;) {
        if (round[i] * power >= raw) step = round[i] * power;
    }
    size_t count = 0;
    while (count < SPW_CHART_TICKS && (count == 0 || tick[count - 1] < most)) {
        tick[count] = (double)count * step;
        count++;
    }
    return count;
}

static int by_size(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double spw_chart_end(double *value, size_t count, double limit, double least) {
    qsort(value, count, sizeof *value, by_size);
    return fmin(value[count - 1], fmax(limit * value[(count - 1) / 2], least));
}

int spw_chart_digits(double step) {
    for (int digits = 0; digits < 6; digits++) {
        const double shown = step * pow(10.0, digits);
        if (fabs(shown - round(shown)) < 1e-6 * shown) return digits;
    }
    return 6;
}

void spw_chart_batch(const spw_report *report, const spw_report_row *row, FILE *out) {
    if (!spw_report_has_batches(report) && !report->splits) return;
    (void)fputs(" <small>", out);
    if (spw_report_has_batches(report)) (void)fprintf(out, "%.0f seq/GPU", row->sequences);
    if (spw_report_has_batches(report) && report->splits) (void)fputs(", ", out);
    if (report->splits) (void)fprintf(out, "expert %.0f &times; fsdp %.0f", row->expert, row->fsdp);
    (void)fputs("</small>", out);
}

void spw_chart_label(const spw_report *report, const spw_report_row *row, FILE *out) {
    spw_html_text(out, row->scheme);
    spw_chart_batch(report, row, out);
}

/* Over the mean: from so much on. */
static const double level_from[SPW_CHART_LEVELS] = {0.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0};

size_t spw_chart_level(double ratio) {
    size_t level = 0;
    while (level + 1 < SPW_CHART_LEVELS && ratio >= level_from[level + 1]) level++;
    return level;
}

void spw_chart_levels(FILE *out) {
    (void)fputs("<ul class=\"legend\">", out);
    for (size_t level = 0; level < SPW_CHART_LEVELS; level++) {
        (void)fprintf(out, "<li><i class=\"key h%zu\"></i>", level);
        if (level == 0) {
            (void)fprintf(out, "below %g", level_from[1]);
        } else if (level + 1 < SPW_CHART_LEVELS) {
            (void)fprintf(out, "%g to %g", level_from[level], level_from[level + 1]);
        } else {
            (void)fprintf(out, "%g and more", level_from[level]);
        }
        (void)fputs("</li>", out);
    }
    (void)fputs("</ul>", out);
}

void spw_panel_open(FILE *out, double plot, const char *label) {
    (void)fprintf(out, "<svg class=\"panel\" viewBox=\"0 0 360 %.0f\" role=\"img\" aria-label=\"%s\">",
                  SPW_PANEL_TOP + plot + 34.0, label);
}

void spw_panel_text(FILE *out, double x, double y, const char *anchor, const char *text) {
    (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>", x, y, anchor, text);
}

void spw_panel_integer(FILE *out, double x, double y, const char *anchor, int64_t value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    spw_panel_text(out, x, y, anchor, text);
}

void spw_panel_cells(FILE *out, const spw_cells *c) {
    for (size_t level = 0; level < SPW_CHART_LEVELS; level++) {
        bool any = false;
        for (size_t y = 0; y < c->down; y++) {
            for (size_t x = 0, end = 0; x < c->across; x = end + 1) {
                while (x < c->across && c->level(c->context, y, x) != level) x++;
                for (end = x; end < c->across && c->level(c->context, y, end) == level;) end++;
                if (end == x) break;
                if (!any) (void)fprintf(out, "<path class=\"h%zu\" d=\"", level);
                any = true;
                const double wide = (double)(end - x) * c->wide;
                (void)fprintf(out, "M%.2f %.2fh%.2fv%.2fh-%.2fz", SPW_PANEL_LEFT + (double)x * c->wide,
                              SPW_PANEL_TOP + (double)y * c->high, wide, c->high, wide);
            }
        }
        if (any) (void)fputs("\"/>", out);
    }
}
