#include "sim/report/report_page.h"

#include "sim/report/charts/chart.h"
#include "sim/report/html.h"
#include "sim/result/doubt_parts.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static void write_number(FILE *out, const char *format, double exact, double shown) {
    (void)fputs("<td class=\"number\">", out);
    spw_html_number(out, exact, format, shown);
    (void)fputs("</td>", out);
}

/* "3 with experts, 1 of multi-token prediction, embedding" */
static void write_contents(const json_t *stage, FILE *out) {
    const bool embedding = json_is_true(json_object_get(stage, "embedding")),
               head = json_is_true(json_object_get(stage, "head"));
    (void)fprintf(out, "<td>%.0f with experts", number_of(stage, "moe_layers"));
    if (number_of(stage, "mtp_layers") > 0.0)
        (void)fprintf(out, ", %.0f of multi-token prediction beside them", number_of(stage, "mtp_layers"));
    (void)fprintf(out, "%s%s</td>", embedding ? ", embedding" : "", head ? ", head" : "");
}

void spw_report_write_stages(const spw_report *report, const spw_report_row *row, FILE *out) {
    size_t i;
    json_t *stage;
    if (json_array_size(row->stages) == 0) return;
    (void)fputs("<section><h2>Stage by stage</h2><p class=\"note\">The job says which pipeline stage has "
                "which layers. What the "
                "fullest GPU of each needs, of <b>",
                out);
    spw_chart_label(report, row, out);
    (void)fprintf(
        out,
        "</b>; %.1f GiB may be used. The stage that needs most is the one of all other pictures.</p><div "
        "class=\"wide\"><table class=\"schemes stages\"><thead><tr><th>stage</th><th "
        "class=\"number\">layers</th><th>of "
        "these</th>"
        "<th class=\"number\">state GiB</th><th class=\"number\">peak GiB</th></tr></thead><tbody>",
        row->budget / GIB);
    json_array_foreach(row->stages, i, stage) {
        (void)fprintf(out, "<tr><th scope=\"row\">%zu</th>", i);
        write_number(out, "%.0f", number_of(stage, "layers"), number_of(stage, "layers"));
        write_contents(stage, out);
        write_number(out, "%.2f", number_of(stage, "argument_bytes"),
                     number_of(stage, "argument_bytes") / GIB);
        write_number(out, "%.2f", number_of(stage, "peak_bytes"), number_of(stage, "peak_bytes") / GIB);
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div></section>", out);
}

static void write_cause(const char *name, double width, const char *text, FILE *out) {
    (void)fputs("<tr><th scope=\"row\">", out);
    spw_html_text(out, name);
    (void)fputs("</th>", out);
    write_number(out, "%.3f", width, width);
    (void)fputs("<td>", out);
    spw_html_text(out, text);
    (void)fputs("</td></tr>", out);
}

void spw_report_write_interval(const spw_report *report, const spw_report_row *row, FILE *out) {
    const char *name = NULL;
    json_t *share = NULL;
    spw_doubt_parts parts;
    if (row->doubts == NULL || !(row->low_s > 0.0) || !(row->step_s > 0.0)) return;
    spw_doubt_parts_begin(row->step_s, row->low_s, row->high_s, &parts);
    json_object_foreach(row->doubts, name, share) spw_doubt_parts_add(&parts, name, json_number_value(share));
    spw_doubt_parts_end(&parts);
    (void)fputs("<section><h2>What the interval of the step is made of</h2><p class=\"note\">The step of ",
                out);
    spw_report_write_name(report, row, out);
    (void)fprintf(out,
                  " may take %.3f times as long as %.3f s. Each cause adds its part; parts are logarithms, "
                  "and add up.</p><div class=\"wide\"><table class=\"schemes interval\"><thead><tr>"
                  "<th>cause</th><th class=\"number\">part</th><th>what it is</th></tr></thead><tbody>",
                  exp(parts.slow), row->step_s);
    for (size_t i = 0; i < parts.count; i++)
        write_cause(parts.part[i].name, parts.part[i].width, parts.part[i].text, out);
    char sum[64];
    (void)snprintf(sum, sizeof sum, "their sum: exp(%.3f) = %.3f", parts.slow, exp(parts.slow));
    write_cause("together", parts.slow, sum, out);
    (void)fputs("</tbody></table></div></section>", out);
}

void spw_report_write_levels(const spw_report *report, const spw_report_row *row, FILE *out) {
    size_t i;
    json_t *level;
    if (json_array_size(row->levels) == 0) return;
    (void)fputs("<section><h2>Level by level of the network</h2><p class=\"note\">The busiest port of each "
                "level in one dispatch of "
                "all groups, one way, of <b>",
                out);
    spw_chart_label(report, row, out);
    (void)fputs("</b>, and how long it takes by its bandwidth alone.", out);
    if (row->slowest_level[0] != '\0') {
        (void)fputs(" The slowest: <b>", out);
        spw_html_text(out, row->slowest_level);
        (void)fputs("</b>.", out);
    }
    (void)fputs("</p><div class=\"wide\"><table class=\"schemes "
                "levels\"><thead><tr><th>level</th><th class=\"number\">busiest port MB</th>"
                "<th class=\"number\">ms</th></tr></thead><tbody>",
                out);
    json_array_foreach(row->levels, i, level) {
        const char *name = json_string_value(json_object_get(level, "level"));
        (void)fputs("<tr><th scope=\"row\">", out);
        spw_html_text(out, name != NULL ? name : "");
        (void)fputs("</th>", out);
        write_number(out, "%.2f", number_of(level, "max_port_bytes"),
                     number_of(level, "max_port_bytes") / 1e6);
        write_number(out, "%.3f", number_of(level, "seconds"), number_of(level, "seconds") * 1e3);
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div></section>", out);
}
