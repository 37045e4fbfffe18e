#include "sim/report/charts/chart.h"

#include "sim/report/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

typedef struct picture {
    const spw_result_pictures *p;
    size_t step;
} picture;

static double cell_at(const picture *c, size_t layer, size_t bin) {
    return c->p->chosen[(c->step * c->p->expert_layers + layer) * c->p->expert_bins + bin];
}

static size_t level_at(const void *context, size_t layer, size_t bin) {
    return spw_chart_level(cell_at(context, layer, bin));
}

static void step_panel(const spw_result_pictures *p, size_t step, FILE *out) {
    const picture c = {p, step};
    const double wide = (SPW_PANEL_RIGHT - SPW_PANEL_LEFT) / (double)p->expert_bins,
                 high = fmin(fmax(180.0 / (double)p->expert_layers, 4.0), 24.0),
                 plot = high * (double)p->expert_layers, foot = SPW_PANEL_TOP + plot;
    double most = 0.0;
    for (size_t l = 0; l < p->expert_layers; l++) {
        for (size_t x = 0; x < p->expert_bins; x++) most = fmax(most, cell_at(&c, l, x));
    }
    (void)fprintf(out, "<figure><figcaption><b>step %" PRId64 "</b>%s: at most <strong>",
                  p->expert_step[step], p->steps > p->expert_steps ? " and those that follow" : "");
    spw_html_number(out, most, "%.2f", most);
    (void)fputs("</strong> times the mean</figcaption>", out);
    spw_panel_open(out, plot, "choices of the experts over the mean, by layer");
    spw_panel_cells(out, &(spw_cells){p->expert_bins, p->expert_layers, wide, high, level_at, &c});
    spw_panel_integer(out, SPW_PANEL_LEFT - 6.0, SPW_PANEL_TOP + 10.0, "end", p->layer[0]);
    if (plot > 24.0) spw_panel_integer(out, SPW_PANEL_LEFT - 6.0, foot, "end", p->last_layer);
    spw_panel_text(out, 0.0, SPW_PANEL_TOP + fmax(plot / 2.0 + 4.0, 10.0), "start", "layer");
    spw_panel_text(out, SPW_PANEL_LEFT, foot + 16.0, "start", "0");
    spw_panel_integer(out, SPW_PANEL_RIGHT, foot + 16.0, "end", (int64_t)p->experts - 1);
    spw_panel_text(out, (SPW_PANEL_LEFT + SPW_PANEL_RIGHT) / 2.0, foot + 30.0, "middle", "expert");
    (void)fputs("</svg></figure>", out);
}

void spw_chart_experts(const spw_report *report, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    if (p->expert_steps == 0) return;
    (void)fprintf(out, "<section id=\"experts%s\">", report->mark != NULL ? report->mark : "");
    (void)fputs("<h2>Which experts are chosen</h2><p class=\"note\">Choices of an "
                "expert by all tokens over "
                "the mean of its layer, before anything is dropped.",
                out);
    if (p->steps > p->expert_steps || p->layers > p->expert_layers || p->experts > p->expert_bins)
        (void)fprintf(
            out,
            " %zu steps &times; %zu layers &times; %zu experts are drawn as %zu &times; %zu &times; %zu, "
            "each as its largest.",
            p->steps, p->layers, p->experts, p->expert_steps, p->expert_layers, p->expert_bins);
    (void)fputs("</p>", out);
    if (p->hot_ratio > 0.0)
        (void)fprintf(
            out, "<p>The most: expert %zu of layer %" PRId32 " in step %" PRId64 ", %.2f times the mean.</p>",
            p->hot_expert, p->hot_layer, p->hot_step, p->hot_ratio);
    spw_chart_levels(out);
    (void)fputs("<div class=\"panels\">", out);
    for (size_t s = 0; s < p->expert_steps; s++) step_panel(p, s, out);
    (void)fputs("</div></section>", out);
}
