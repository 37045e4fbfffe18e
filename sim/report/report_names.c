/* Names of rows and points on a page. */
#include "sim/report/charts/chart.h"
#include "sim/report/report_found.h"
#include "sim/report/search_point.h"

void spw_report_write_name(const spw_report *report, const spw_report_row *row, FILE *out) {
    (void)fputs("<b>", out);
    spw_chart_label(report, row, out);
    (void)fputs("</b>", out);
}

void spw_report_write_point_name(const json_t *p, FILE *out) {
    static const struct {
        const char *key, *text;
        double least;
    } parts[] = {{"expert_parallel", ", EP %.0f", 0.0},
                 {"fsdp", " &times; FSDP %.0f", 0.0},
                 {"pipeline", " &times; pipeline %.0f", 2.0},
                 {"virtual_stages", " (virtual stages %.0f)", 1.0},
                 {"tensor", ", tensor %.0f", 2.0},
                 {"context", ", context %.0f", 2.0},
                 {"expert_tensor", ", expert tensor %.0f", 2.0},
                 {"gpus", " on %.0f GPUs", 0.0},
                 {"sequences_per_gpu", ", %.0f sequences", 0.0},
                 {"micro_batches", " in %.0f micro-batches", 2.0}};
    (void)fputs("<b>", out);
    spw_point_write(out, p, "scheme");
    (void)fputs("</b>", out);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (spw_point_number(p, parts[i].key) >= parts[i].least)
            (void)fprintf(out, parts[i].text, spw_point_number(p, parts[i].key));
    (void)fputs(", remat ", out);
    spw_point_write(out, p, "remat");
}
