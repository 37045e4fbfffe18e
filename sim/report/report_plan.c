#include "sim/report/report_page.h"

#include "sim/print/plural.h"
#include "sim/print/table.h"
#include "sim/report/charts/chart.h"
#include "sim/report/html.h"
#include "sim/report/report_found.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* " (237,541 to 261,003)" */
static void write_ends(const spw_report_figure *f, FILE *out) {
    if (isnan(f->low) || isnan(f->high)) return;
    (void)fputs(" (", out);
    spw_html_amount(out, f->low);
    (void)fputs(" to ", out);
    spw_html_amount(out, f->high);
    (void)fputs(")", out);
}

static void write_training(const spw_report_cost *c, const spw_report_training *training, FILE *out) {
    char text[SPW_SPAN_TEXT];
    if (isnan(c->days.value) || !(training->tokens > 0.0)) return;
    (void)fputs(" Training on ", out);
    spw_html_amount(out, training->tokens);
    (void)fprintf(out, " tokens%s takes ", training->tokens_unsaid ? SPW_TOKENS_UNSAID : "");
    spw_html_number(out, c->days.value, c->days.value < 100.0 ? "%.1f days" : "%.0f days", c->days.value);
    (void)fprintf(out, " (%s), ", spw_span_text(c->days.low, c->days.high, " to ", text));
    spw_html_amount(out, c->gpu_hours.value);
    (void)fputs(" GPU-hours", out);
    write_ends(&c->gpu_hours, out);
    if (!isnan(c->money.value)) {
        (void)fputs(", which cost <b>", out);
        spw_html_amount(out, c->money.value);
        (void)fputs("</b>", out);
        write_ends(&c->money, out);
        if (training->price > 0.0) (void)fprintf(out, " at %.2f a GPU-hour", training->price);
    }
    (void)fputs(".", out);
}

void spw_report_write_costs(const spw_report_cost *c, const spw_report_training *training, FILE *out) {
    static const double TERA = 1e12;
    if (isnan(c->tokens_per_day.value)) return;
    (void)fputs("<p>", out);
    if (!isnan(c->mfu.value)) {
        (void)fputs("It runs at ", out);
        spw_html_number(out, c->mfu.value, "%.1f&nbsp;%% of the GPUs&#39; peak in bf16",
                        100.0 * c->mfu.value);
        (void)fprintf(out, " (MFU; %.1f to %.1f), ", 100.0 * c->mfu.low, 100.0 * c->mfu.high);
        if (!isnan(c->flops.value)) (void)fprintf(out, "%.0f TFLOP/s a GPU, ", c->flops.value / TERA);
        (void)fputs("and a", out);
    } else {
        (void)fputs("A", out);
    }
    (void)fputs(" day trains ", out);
    spw_html_amount(out, c->tokens_per_day.value);
    (void)fputs(" tokens", out);
    write_ends(&c->tokens_per_day, out);
    (void)fputs(".", out);
    write_training(c, training, out);
    (void)fputs("</p>", out);
}

/* What so many tokens take, and what of the GPUs' peak is used; money where there is a price. */
void spw_report_write_cost(const spw_report *report, const spw_report_row *row, FILE *out) {
    const spw_report_training training = {
        report->tokens, json_is_true(json_object_get(report->plan, "tokens_unsaid")),
        json_number_value(json_object_get(report->settings, "price_per_gpu_hour"))};
    spw_report_write_costs(&row->cost, &training, out);
}

/* What would be faster or would make points fit, and how many cannot be. */
void spw_report_write_misfits(const spw_report *report, FILE *out) {
    const json_t *list = json_object_get(report->plan, "does_not_fit"), *refused;
    size_t i;
    json_t *item;
    const json_t *beside = json_object_get(report->plan, "beside");
    if (json_is_string(beside)) {
        (void)fputs("<p class=\"doubt\">", out);
        spw_html_text(out, json_string_value(beside));
        (void)fputs(".</p>", out);
    }
    if (json_array_size(json_object_get(report->plan, "other_schemes")) > 0) {
        (void)fputs("<ul>", out);
        spw_report_write_other_schemes(report->plan, out);
        (void)fputs("</ul>", out);
    }
    if (json_array_size(list) > 0) {
        (void)fputs("<p>What would make others fit:</p><ul>", out);
        json_array_foreach(list, i, item) {
            (void)fputs("<li>", out);
            spw_report_write_name(report, &report->row[json_integer_value(json_object_get(item, "point"))],
                                  out);
            (void)fputs(": ", out);
            spw_html_text(out, json_string_value(json_object_get(item, "advice")));
            (void)fputs("</li>", out);
        }
        (void)fputs("</ul>", out);
    }
    refused = json_object_get(report->plan, "refused");
    if (json_array_size(refused) == 0) return;
    const char *reason = json_string_value(json_object_get(json_array_get(refused, 0), "reason"));
    (void)fprintf(out, "<p>%zu point%s cannot be", json_array_size(refused),
                  spw_plural(json_array_size(refused)));
    if (reason != NULL) {
        (void)fputs(", the first because ", out);
        spw_html_text(out, reason);
    }
    (void)fputs(".</p>", out);
}

static bool same_point(const spw_report_row *a, const spw_report_row *b) {
    return strcmp(a->scheme, b->scheme) == 0 && fabs(a->sequences - b->sequences) < 0.5 &&
           fabs(a->expert - b->expert) < 0.5 && fabs(a->fsdp - b->fsdp) < 0.5;
}

static void write_pair(FILE *out, const char *format, double planned, double replayed) {
    (void)fputs("<td class=\"number\">", out);
    spw_html_number(out, planned, format, planned);
    (void)fputs("</td><td class=\"number\">", out);
    spw_html_number(out, replayed, format, replayed);
    (void)fputs("</td>", out);
}

static void write_point(const spw_report *plan, const spw_report_row *a, const spw_report_row *b, FILE *out) {
    (void)fputs("<tr><th scope=\"row\">", out);
    spw_chart_label(plan, a, out);
    (void)fputs("</th><td>", out);
    spw_report_write_verdict(a, out);
    (void)fputs("</td><td>", out);
    spw_report_write_verdict(b, out);
    (void)fputs("</td>", out);
    write_pair(out, "%.2f", a->held.most / GIB, b->held.most / GIB);
    if (a->timed && b->timed) {
        write_pair(out, "%.3f", a->step_s, b->step_s);
    } else {
        (void)fputs("<td></td><td></td>", out);
    }
    write_pair(out, "%.2f&nbsp;%%", 100.0 * a->fraction, 100.0 * b->fraction);
    (void)fputs("</tr>", out);
}

/* The section begins with its first point. */
static void write_beside_head(const spw_report_beside *words, FILE *out) {
    static const char *const head[] = {"memory", "GiB a GPU", "step s", "dropped"};
    (void)fprintf(out,
                  "<section><h2>%s</h2><div class=\"wide\"><table class=\"schemes\"><thead><tr><th "
                  "rowspan=\"2\">point</th>",
                  words->heading);
    for (int h = 0; h < 4; h++) (void)fprintf(out, "<th colspan=\"2\">%s</th>", head[h]);
    (void)fputs("</tr><tr>", out);
    for (int h = 0; h < 4; h++) (void)fprintf(out, "<th>%s</th><th>%s</th>", words->first, words->second);
    (void)fputs("</tr></thead><tbody>", out);
}

void spw_report_write_beside(const spw_report *a, const spw_report *b, const spw_report_beside *words,
                             FILE *out) {
    size_t found = 0;
    for (size_t i = 0; i < b->rows; i++) {
        for (size_t k = 0; k < a->rows; k++) {
            if (!same_point(&a->row[k], &b->row[i])) continue;
            if (found++ == 0) write_beside_head(words, out);
            write_point(a, &a->row[k], &b->row[i], out);
        }
    }
    if (found > 0)
        (void)fputs("</tbody></table></div></section>", out);
    else if (words->none != NULL)
        (void)fprintf(out, "<section><h2>%s</h2><p class=\"note\">%s</p></section>", words->heading,
                      words->none);
}
