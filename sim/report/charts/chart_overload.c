#include "sim/report/charts/chart_bar.h"
#include "sim/report/html.h"

#include <math.h>

enum { TOP = 6, BOTTOM = 24 };

/* The factor that step time follows, and what it costs beyond balanced routing. */
static void write_number(const spw_report_row *row, FILE *out) {
    const double percent = 100.0 * (row->overload_s / row->balanced_s - 1.0);
    (void)fputs("<td class=\"number\">", out);
    spw_html_number(out, row->slowest_by_layer, "%.2f", row->slowest_by_layer);
    if (row->timed && row->balanced_s > 0.0) {
        (void)fputs(": ", out);
        spw_html_number(out, percent, "%+.1f %%", percent);
    }
    (void)fputs("</td></tr>", out);
}

static void write_bar(const spw_report *report, const spw_report_row *row, const spw_bar_scale *scale,
                      FILE *out) {
    spw_bar_open(scale, report, row, out);
    spw_bar_part(scale, "c0", 0.0, row->slowest_rank, TOP, BOTTOM, out);
    spw_bar_part(scale, "c1", row->slowest_rank, row->slowest_by_layer, TOP, BOTTOM, out);
    spw_bar_part(scale, "c2", row->slowest_by_layer, row->overload_max, TOP, BOTTOM, out);
    spw_bar_mark(scale, "whisker", row->overload_worst, TOP, BOTTOM, out);
    spw_bar_close(scale, row->overload_worst, out);
    write_number(row, out);
}

void spw_chart_overload(const spw_report *report, FILE *out) {
    double most = 0.0;
    for (size_t i = 0; i < report->rows; i++) {
        if (report->row[i].overloaded) most = fmax(most, report->row[i].overload_worst);
    }
    if (!(most > 0.0)) return;
    const spw_bar_scale scale = spw_bar_scale_of("x mean", most);
    (void)fputs("<section><h2>What uneven rows cost</h2><p class=\"note\">Overload factors: rows of the "
                "fullest GPU of an expert-parallel group over the mean, means over the steps. The number is "
                "the factor layer by layer and, where there is a step time, how much longer than with "
                "balanced routing a step takes in which every layer is that uneven.</p>"
                "<ul class=\"legend\"><li><i class=\"key c0\"></i>slowest rank of a step, all layers "
                "together</li><li><i class=\"key c1\"></i>slowest rank layer by layer, which step time "
                "follows</li><li><i class=\"key c2\"></i>fullest layer</li>"
                "<li><i class=\"key whisker\"></i>fullest layer of any step</li></ul>"
                "<table class=\"bars\"><tbody>",
                out);
    for (size_t i = 0; i < report->rows; i++) {
        if (report->row[i].overloaded) write_bar(report, &report->row[i], &scale, out);
    }
    (void)fputs("</tbody>", out);
    spw_bar_axis(&scale, out);
    (void)fputs("</table></section>", out);
}
