#include "sim/report/charts/chart.h"

#include "sim/report/html.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_NODES = 16, MOST_PANELS = 12 };

/* The bytes of one result from part to part of its GPUs; levels are sevenths of the largest, 0 is nothing. */
typedef struct matrix {
    const double *links;
    size_t parts;
    double most;
} matrix;

static size_t level_at(const void *context, size_t from, size_t to) {
    const matrix *m = context;
    const double bytes = m->links[from * m->parts + to];
    const double level = ceil((SPW_CHART_LEVELS - 1) * bytes / m->most - 1e-9);
    return bytes > 0.0 ? (size_t)fmin(fmax(level, 1.0), SPW_CHART_LEVELS - 1) : 0;
}

static bool same_links(const spw_report *report, size_t a, size_t b) {
    const size_t parts = report->pictures.link_parts;
    const spw_report_row *x = &report->row[a], *y = &report->row[b];
    return x->sequences >= y->sequences && x->sequences <= y->sequences &&
           memcmp(x->picture->links, y->picture->links, parts * parts * sizeof *x->picture->links) == 0;
}

static bool is_first(const spw_report *report, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (same_links(report, i, index)) return false;
    }
    return true;
}

/* GPUs of a node, where parts are GPUs or divide a node's, else 0. */
static size_t parts_of_node(const spw_report *report) {
    const spw_result_pictures *p = &report->pictures;
    const double gpus = json_number_value(json_object_get(report->settings, "gpus_per_node"));
    const double parts = gpus * (double)p->link_parts / (double)p->ranks;
    return gpus >= 1.0 && parts >= 1.0 && fabs(parts - round(parts)) < 1e-9 ? (size_t)parts : 0;
}

/* Bytes from node a to node b. */
static double node_bytes(const matrix *m, size_t each, size_t a, size_t b) {
    double bytes = 0.0;
    for (size_t i = a * each; i < (a + 1) * each && i < m->parts; i++) {
        for (size_t k = b * each; k < (b + 1) * each && k < m->parts; k++)
            bytes += m->links[i * m->parts + k];
    }
    return bytes;
}

/* From node to node, where there are several and a person can read them. */
static void write_nodes(const matrix *m, size_t each, FILE *out) {
    const size_t nodes = each > 0 ? (m->parts + each - 1) / each : 0;
    double between = 0.0;
    for (size_t i = 0; i < nodes * nodes; i++)
        between += i / nodes == i % nodes ? 0.0 : node_bytes(m, each, i / nodes, i % nodes);
    if (nodes > 1 && !(between > 0.0))
        (void)fputs("<p class=\"note\">Nothing crosses from node to node.</p>", out);
    if (nodes < 2 || nodes > MOST_NODES || !(between > 0.0)) return;
    (void)fputs("<p class=\"note\">MB from node to node:</p><div class=\"wide\"><table "
                "class=\"nodes\"><thead><tr><th></th>",
                out);
    for (size_t n = 0; n < nodes; n++) (void)fprintf(out, "<th class=\"number\">to %zu</th>", n);
    (void)fputs("</tr></thead><tbody>", out);
    for (size_t a = 0; a < nodes; a++) {
        (void)fprintf(out, "<tr><th class=\"number\">%zu</th>", a);
        for (size_t b = 0; b < nodes; b++) {
            const double bytes = node_bytes(m, each, a, b);
            (void)fputs("<td class=\"number\">", out);
            spw_html_number(out, bytes, bytes > 0.0 && bytes < 1e9 ? "%.1f" : "%.0f", bytes / 1e6);
            (void)fputs("</td>", out);
        }
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div>", out);
}

static void write_panel(const spw_report *report, size_t index, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    matrix m = {report->row[index].picture->links, p->link_parts, 0.0};
    const double side = (SPW_PANEL_RIGHT - SPW_PANEL_LEFT) / (double)m.parts,
                 plot = SPW_PANEL_RIGHT - SPW_PANEL_LEFT, foot = SPW_PANEL_TOP + plot;
    for (size_t i = 0; i < m.parts * m.parts; i++) m.most = fmax(m.most, m.links[i]);
    (void)fputs("<figure><figcaption><b>", out);
    for (size_t i = index; i < report->rows; i++) {
        if (!same_links(report, i, index)) continue;
        if (i > index) (void)fputs(", ", out);
        spw_html_text(out, report->row[i].scheme);
    }
    spw_chart_batch(report, &report->row[index], out);
    (void)fputs("</b><br>the strongest colour: ", out);
    spw_html_number(out, m.most, "%.2f MB", m.most / 1e6);
    (void)fputs("</figcaption>", out);
    spw_panel_open(out, plot, "bytes of one dispatch from GPU to GPU");
    spw_panel_cells(out, &(spw_cells){m.parts, m.parts, side, side, level_at, &m});
    spw_panel_text(out, SPW_PANEL_LEFT - 6.0, SPW_PANEL_TOP + 10.0, "end", "0");
    spw_panel_integer(out, SPW_PANEL_LEFT - 6.0, foot, "end", (int64_t)p->ranks - 1);
    spw_panel_text(out, 0.0, SPW_PANEL_TOP + plot / 2.0, "start", "from");
    spw_panel_text(out, SPW_PANEL_LEFT, foot + 16.0, "start", "0");
    spw_panel_integer(out, SPW_PANEL_RIGHT, foot + 16.0, "end", (int64_t)p->ranks - 1);
    spw_panel_text(out, (SPW_PANEL_LEFT + SPW_PANEL_RIGHT) / 2.0, foot + 30.0, "middle", "to GPU");
    (void)fputs("</svg>", out);
    write_nodes(&m, parts_of_node(report), out);
    (void)fputs("</figure>", out);
}

void spw_chart_links(const spw_report *report, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    size_t panels = 0;
    if (p->link_parts == 0) return;
    (void)fputs(
        "<section><h2>Who sends to whom</h2><p class=\"note\">Bytes of one dispatch from the GPU that has a "
        "token "
        "to the GPU that has its expert, mean over layers and steps; the stronger the colour, the more, in "
        "sevenths of "
        "the largest. Schemes with the same bytes share a picture.",
        out);
    if (p->ranks > p->link_parts)
        (void)fprintf(out, " %zu GPUs are drawn as %zu parts, summed.", p->ranks, p->link_parts);
    (void)fputs("</p><div class=\"panels\">", out);
    for (size_t i = 0; i < report->rows && panels < MOST_PANELS; i++) {
        if (!is_first(report, i)) continue;
        write_panel(report, i, out);
        panels++;
    }
    (void)fputs("</div></section>", out);
}
