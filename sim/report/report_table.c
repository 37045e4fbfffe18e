#include "sim/report/report_page.h"

#include "sim/print/table.h"
#include "sim/report/charts/chart.h"
#include "sim/report/html.h"

#include <math.h>
#include <stdbool.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* Which columns some row has anything to say in. */
typedef struct shown {
    bool reserved, timed;
} shown;

/* With the interval below it, where it is known. */
static void cell_of(FILE *out, bool there, double exact, const char *format, double value, double low,
                    double high) {
    char interval[SPW_SPAN_TEXT];
    (void)fputs("<td class=\"number\">", out);
    if (there) {
        spw_html_number(out, exact, format, value);
    } else {
        (void)fputs("&#8211;", out);
    }
    if (there && low > 0.0)
        (void)fprintf(out, "<br><small>%s</small>", spw_span_text(low, high, " to ", interval));
    (void)fputs("</td>", out);
}

static void cell(FILE *out, bool there, double exact, const char *format, double value) {
    cell_of(out, there, exact, format, value, 0.0, 0.0);
}

/* Over balanced: as many digits for its ends as for itself. */
static void cell_ratio(FILE *out, const spw_report_figure *ratio) {
    (void)fputs("<td class=\"number\">", out);
    if (isfinite(ratio->value)) {
        spw_html_number(out, ratio->value, "%.3f&times;", ratio->value);
        if (ratio->low > 0.0) (void)fprintf(out, "<br><small>%.3f to %.3f</small>", ratio->low, ratio->high);
    } else {
        (void)fputs("&#8211;", out);
    }
    (void)fputs("</td>", out);
}

/* `at_least`: of steps that ran out, which would have gone on. */
static void quantiles(FILE *out, bool there, bool at_least, const spw_report_quantiles *q) {
    const char *const format = at_least ? "&ge;%.2f" : "%.2f";
    cell(out, there, q->p50, format, q->p50 / GIB);
    cell(out, there, q->p99, format, q->p99 / GIB);
    cell(out, there, q->most, format, q->most / GIB);
}

/* The batch heads its rows where there are several; the table has fewer columns. Points of a plan stand in another order. */
static void write_batch(const spw_report *report, size_t index, FILE *out) {
    const spw_report_row *row = &report->row[index];
    const bool same = index > 0 && row[-1].sequences >= row->sequences && row[-1].sequences <= row->sequences;
    if (!spw_report_has_batches(report) || report->planned || same) return;
    (void)fprintf(out, "<tr class=\"batch\"><td colspan=\"20\">%.0f sequence%s a GPU</td></tr>",
                  row->sequences, row->sequences > 1.0 ? "s" : "");
}

static void write_head(const shown *s, FILE *out) {
    (void)fputs(
        "<thead><tr><th rowspan=\"2\">scheme</th><th rowspan=\"2\">memory</th>"
        "<th class=\"number\" rowspan=\"2\">steps that run&nbsp;out</th><th colspan=\"3\">GiB a GPU</th>",
        out);
    (void)fputs("<th class=\"number\" rowspan=\"2\">of the budget</th>", out);
    if (s->reserved) (void)fputs("<th colspan=\"3\">reserved GiB</th>", out);
    (void)fputs(
        "<th class=\"number\" rowspan=\"2\">dropped</th><th class=\"number\" rowspan=\"2\">rows max/mean</th>"
        "<th class=\"number\" rowspan=\"2\">busiest port MB</th><th class=\"number\" rowspan=\"2\">step "
        "GB</th>",
        out);
    if (s->timed)
        (void)fputs("<th class=\"number\" rowspan=\"2\">step s</th><th class=\"number\" rowspan=\"2\">over "
                    "balanced</th>"
                    "<th class=\"number\" rowspan=\"2\">tokens/s a GPU</th>",
                    out);
    (void)fputs("</tr><tr>", out);
    for (int i = 0; i < (s->reserved ? 2 : 1); i++) (void)fputs("<th>p50</th><th>p99</th><th>max</th>", out);
    (void)fputs("</tr></thead>", out);
}

static void write_probability(const spw_report_row *row, FILE *out) {
    (void)fputs("<td class=\"number\">", out);
    spw_html_percent(out, row->oom);
    if (row->oom_high > row->oom_low && row->oom_high - row->oom_low <= 0.5) /* else: too few steps */
        (void)fprintf(out, "<br><small>95&nbsp;%%: %.*f to %.*f</small>", spw_percent_digits(row->oom_low),
                      100.0 * row->oom_low, spw_percent_digits(row->oom_high), 100.0 * row->oom_high);
    (void)fputs("</td>", out);
}

/* Of the budget; the interval of a fit below it. */
static void write_share(const spw_report_row *row, FILE *out) {
    (void)fputs("<td class=\"number\">", out);
    if (row->budget > 0.0)
        spw_html_number(out, row->held.most / row->budget, "%.0f&nbsp;%%",
                        100.0 * row->held.most / row->budget);
    if (row->budget > 0.0 && row->high > row->low)
        (void)fprintf(out, "<br><small>%.0f to %.0f</small>", 100.0 * row->low / row->budget,
                      100.0 * row->high / row->budget);
    (void)fputs("</td>", out);
}

void spw_report_write_verdict(const spw_report_row *row, FILE *out) {
    const char *verdict = spw_verdict_name(row->verdict), *doubt = spw_report_row_doubt(row);
    (void)fprintf(out, "%s<span class=\"verdict %s\">%s</span>",
                  spw_report_row_live(row) && spw_report_row_fits(row) ? "live " : "", verdict, verdict);
    if (doubt[0] != '\0') (void)fprintf(out, "<br><small>%s</small>", doubt);
}

static void write_row(const spw_report *report, const spw_report_row *row, const shown *s, FILE *out) {
    (void)fputs("<tr><th scope=\"row\">", out);
    spw_html_text(out, row->scheme);
    if (report->planned) spw_chart_batch(report, row, out);
    (void)fputs("</th><td>", out);
    spw_report_write_verdict(row, out);
    if (spw_newest_arena_differs(&row->newest, row->verdict)) {
        (void)fputs("<br><small>", out);
        spw_html_text(out, row->newest.stack);
        (void)fprintf(out, ": %s, %.0f GiB</small>", spw_verdict_name(row->newest.verdict),
                      (double)row->newest.peak_bytes / GIB);
    }
    (void)fputs("</td>", out);
    write_probability(row, out);
    quantiles(out, true, false, &row->held);
    write_share(row, out);
    if (s->reserved) quantiles(out, row->replayed, row->oom > 0.0, &row->reserved);
    cell(out, true, row->fraction, "%.2f&nbsp;%%", 100.0 * row->fraction);
    const double uneven = row->rows_mean > 0.0 ? row->rows_max / row->rows_mean : NAN;
    cell(out, !isnan(uneven), uneven, "%.2f", uneven);
    cell(out, true, row->port, "%.2f", row->port / 1e6);
    cell(out, true, row->step_bytes, "%.3f", row->step_bytes / 1e9);
    if (s->timed) {
        cell_of(out, row->timed, row->step_s, "%.3f", row->step_s, row->low_s, row->high_s);
        cell_ratio(out, &row->over_balanced);
        cell_of(out, row->timed, row->tokens, "%.0f", row->tokens, row->tokens_low, row->tokens_high);
    }
    (void)fputs("</tr>", out);
}

static void write_rows(const spw_report *report, const shown *s, FILE *out) {
    (void)fputs("<div class=\"wide\"><table class=\"schemes\">", out);
    write_head(s, out);
    (void)fputs("<tbody>", out);
    for (size_t i = 0; i < report->rows; i++) {
        write_batch(report, i, out);
        write_row(report, &report->row[i], s, out);
    }
    (void)fputs("</tbody></table></div>", out);
}

/* What of the GPU the budget is: a share that was said, or what a table has outside, with its doubt. */
static void write_budget(const spw_report *report, const spw_report_row *row, FILE *out) {
    if (row->outside_high > row->outside_low)
        (void)fprintf(out, "%.2f less %.2f outside of PyTorch's allocator (%.2f to %.2f)", report->hbm_gib,
                      row->outside / GIB, row->outside_low / GIB, row->outside_high / GIB);
    else
        (void)fprintf(out, "%g of %.2f", report->memory_fraction, report->hbm_gib);
    if (row->resident > 0.0)
        (void)fprintf(out, ", less %.2f that stay beside the process", row->resident / GIB);
    (void)fputs(". ", out);
}

void spw_report_write_table(const spw_report *report, const spw_report *more, FILE *out) {
    const spw_report *const parts[] = {report, more};
    shown s = {.timed = false};
    for (size_t p = 0; p < 2; p++) {
        for (size_t i = 0; i < parts[p]->rows; i++) {
            s.reserved = s.reserved || parts[p]->row[i].replayed;
            s.timed = s.timed || parts[p]->row[i].timed;
        }
    }
    write_rows(report, &s, out);
    if (more->rows > 0) {
        (void)fprintf(out, "<details><summary>%zu more</summary>", more->rows);
        write_rows(more, &s, out);
        (void)fputs("</details>", out);
    }
    if (report->left_out > 0)
        (void)fprintf(out, "<p class=\"note\">%zu more are in the file.</p>", report->left_out);
    (void)fprintf(
        out,
        "<p class=\"note\">fits: the larger end of the interval is within the budget; tight: the figure "
        "alone is; oom: does not fit; live: a lower bound, of what must be live alone, and tight above 95 %% "
        "of the budget; may not fit: the interval, or what "
        "an allocator may add to a lower bound, reaches over the budget, or is not known. The budget is "
        "%.2f GiB a GPU: ",
        report->row[0].budget / GIB);
    write_budget(report, &report->row[0], out);
    (void)fputs("GiB: of the GPU that needs most, over the steps. Of the budget: the most of it, and below "
                "it the interval of the fit. Dropped: share of all assignments. Rows: "
                "assignments that a GPU "
                "holds for its experts. Busiest port: most that one GPU sends or receives in one dispatch. "
                "Step GB: all "
                "exchanges of all MoE layers, forward to backward, out of one GPU.",
                out);
    if (s.timed)
        (void)fputs(
            " Below a step, over balanced and a speed: the interval of each. Over balanced: the step over "
            "the same step with every expert chosen alike; what slows both alike is not in its interval.",
            out);
    (void)fputs("</p>", out);
    for (size_t i = 0; i < report->rows; i++) {
        if (report->row[i].advice[0] == '\0') continue;
        (void)fputs("<p><b>", out);
        spw_chart_label(report, &report->row[i], out);
        (void)fputs("</b>: ", out);
        spw_html_text(out, report->row[i].advice);
        (void)fputs("</p>", out);
    }
}
