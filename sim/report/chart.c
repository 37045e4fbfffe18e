#include "sim/report/chart.h"

#include "sim/report/html.h"

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
