#include "sim/report/charts/chart_bar.h"

#include "sim/report/html.h"

#include <math.h>

static const double WIDE = 1000.0;

spw_bar_scale spw_bar_scale_of(const char *unit, double most) {
    spw_bar_scale scale = {.unit = unit, .end = most > 0.0 ? 1.02 * most : 1.0};
    scale.ticks = spw_chart_ticks(scale.end, 8, scale.tick);
    while (scale.tick[scale.ticks - 1] > scale.end) scale.ticks--;
    return scale;
}

void spw_bar_part(const spw_bar_scale *scale, const char *class, double from, double to, int top, int bottom,
                  FILE *out) {
    const double left = WIDE * fmin(from / scale->end, 1.0), right = WIDE * fmin(to / scale->end, 1.0);
    if (right > left)
        (void)fprintf(out, "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"/>", class,
                      left, top, right - left, bottom - top);
}

void spw_bar_mark(const spw_bar_scale *scale, const char *class, double at, int top, int bottom, FILE *out) {
    const double x = WIDE * at / scale->end;
    if (at <= scale->end)
        (void)fprintf(out, "<line class=\"%s\" x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\"/>", class, x, x,
                      top, bottom);
}

static void open_bar(const spw_bar_scale *scale, FILE *out) {
    (void)fprintf(out,
                  "</th><td><svg class=\"bar\" viewBox=\"0 0 %.0f %d\" preserveAspectRatio=\"none\" "
                  "aria-hidden=\"true\">",
                  WIDE, SPW_BAR_HIGH);
    for (size_t i = 0; i < scale->ticks; i++)
        spw_bar_mark(scale, "grid", scale->tick[i], 0, SPW_BAR_HIGH, out);
}

void spw_bar_open(const spw_bar_scale *scale, const spw_report *report, const spw_report_row *row,
                  FILE *out) {
    (void)fputs("<tr><th scope=\"row\">", out);
    spw_chart_label(report, row, out);
    open_bar(scale, out);
}

void spw_bar_open_name(const spw_bar_scale *scale, const char *name, FILE *out) {
    (void)fputs("<tr><th scope=\"row\">", out);
    spw_html_name(out, name);
    open_bar(scale, out);
}

void spw_bar_close(const spw_bar_scale *scale, double length, FILE *out) {
    if (length > scale->end)
        (void)fprintf(out, "<path class=\"cut\" d=\"M%.0f 2L%.0f 15L%.0f 28\"/>", WIDE - 9.0, WIDE - 3.0,
                      WIDE - 9.0);
    (void)fputs("</svg></td>", out);
}

void spw_bar_axis(const spw_bar_scale *scale, FILE *out) {
    (void)fputs("<tfoot><tr><td></td><td class=\"axis\"><div>", out);
    for (size_t i = 0; i < scale->ticks; i++)
        (void)fprintf(out, "<span style=\"left:%.3f%%\">%.*f</span>", 100.0 * scale->tick[i] / scale->end,
                      spw_chart_digits(scale->tick[1]), scale->tick[i]);
    (void)fprintf(out, "</div></td><td class=\"unit\">%s</td></tr></tfoot>", scale->unit);
}
