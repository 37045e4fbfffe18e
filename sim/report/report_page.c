#include "sim/report/report_page.h"

#include "sim/input/preset.h"
#include "sim/report/chart.h"
#include "sim/report/html.h"

#include <inttypes.h>

/* Nothing is fetched and nothing runs: the page forbids both to itself. */
static void write_head(const spw_report *report, FILE *out) {
    (void)fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                "'unsafe-inline'\">"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
                "<meta name=\"color-scheme\" content=\"light dark\"><title>",
                out);
    spw_html_text(out, report->model);
    (void)fputs(" on ", out);
    spw_html_text(out, report->cluster);
    (void)fputs("</title><style>\n", out);
    (void)fwrite(spw_report_files[0].text, 1, spw_report_files[0].length, out);
    (void)fputs("</style></head><body><main>", out);
}

static void write_heading(const spw_report *report, const char *name, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    (void)fputs("<header><h1>", out);
    spw_html_text(out, report->model);
    (void)fputs(" on ", out);
    spw_html_text(out, report->cluster);
    (void)fprintf(out, "</h1><p>%.0f GPUs: expert %.0f &times; fsdp %.0f", report->gpus, report->expert,
                  report->fsdp);
    if (report->pipeline > 1.0) (void)fprintf(out, " &times; pipeline %.0f", report->pipeline);
    (void)fputs("; ", out);
    (void)fprintf(out, spw_report_has_batches(report) ? "%.0f to %.0f" : "%.0f", report->least_sequences,
                  report->most_sequences);
    (void)fprintf(out, " &times; %.0f tokens a GPU, remat ", report->sequence_length);
    spw_html_text(out, report->remat);
    (void)fprintf(out, ". Routing of %zu step%s", p->steps, p->steps == 1 ? "" : "s");
    if (p->steps > 1) (void)fprintf(out, " (%" PRId64 " to %" PRId64 ")", p->step[0], p->last_step);
    (void)fprintf(out, " &times; %zu layer%s", p->layers, p->layers == 1 ? "" : "s");
    const char *trace = json_string_value(json_object_get(report->trace, "file"));
    if (trace != NULL) {
        (void)fputs(" of ", out);
        spw_html_text(out, trace);
    }
    (void)fputs(", replayed by spillway into ", out);
    spw_html_text(out, name);
    (void)fputs(".</p></header>", out);
}

static spw_status write_memory(const spw_report *report, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    (void)fputs("<section><h2>Memory against the budget</h2>", out);
    const spw_status status = spw_chart_memory_bars(report, out);
    if (status != SPW_OK) return status;
    if (p->steps > 1) {
        (void)fputs("<h3>By step, of the GPU that needs most</h3>", out);
        if (p->steps > p->step_bins)
            (void)fprintf(out, "<p class=\"note\">%zu steps in %zu bins, each as its largest.</p>", p->steps,
                          p->step_bins);
        spw_chart_memory_steps(report, out);
    } else {
        (void)fputs("<p class=\"note\">One step was replayed: memory by step is the bar.</p>", out);
    }
    (void)fputs("</section>", out);
    return SPW_OK;
}

static void write_routing(const spw_report *report, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    (void)fputs(
        "<section><h2>Where rows pile up</h2><p class=\"note\">Rows of the fullest GPU over the mean of all, "
        "by layer and "
        "step. Every layer waits for its fullest GPU. Schemes that hold the same rows share a picture.",
        out);
    if (p->steps > p->step_bins || p->layers > p->layer_bins)
        (void)fprintf(out, " %zu layers &times; %zu steps are drawn as %zu &times; %zu, each as its largest.",
                      p->layers, p->steps, p->layer_bins, p->step_bins);
    (void)fputs("</p>", out);
    spw_chart_imbalance(report, out);
    (void)fputs("</section><section><h2>The worst step, GPU by GPU</h2><p class=\"note\">The layer and step "
                "in which one GPU holds "
                "most.",
                out);
    if (p->ranks > p->rank_bins)
        (void)fprintf(out, " %zu GPUs in %zu bins, each as its fullest.", p->ranks, p->rank_bins);
    (void)fputs("</p>", out);
    spw_chart_ranks(report, out);
    (void)fputs("</section>", out);
}

static spw_status write_shares(const spw_report *report, FILE *out) {
    static const struct {
        const char *head, *note;
        spw_shares which;
    } parts[] = {{"What fills the memory", "By component, at the moment of the peak.", SPW_SHARES_MEMORY},
                 {"What crosses the links",
                  "Bytes out of one GPU in one step, by component: exchanges as replayed, the other "
                  "collectives as they follow from the job.",
                  SPW_SHARES_TRAFFIC},
                 {"What a step waits for",
                  "Seconds of a step by component, without what hides behind another.", SPW_SHARES_TIME}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        bool any = false;
        for (size_t r = 0; r < report->rows; r++)
            any = any || report->row[r].components[parts[i].which] != NULL;
        if (!any) continue;
        (void)fprintf(out, "<section><h2>%s</h2><p class=\"note\">%s</p>", parts[i].head, parts[i].note);
        const spw_status status = spw_chart_shares(report, parts[i].which, out);
        if (status != SPW_OK) return status;
        (void)fputs("</section>", out);
    }
    return SPW_OK;
}

spw_status spw_report_write(const spw_report *report, const char *name, FILE *out) {
    spw_status status = SPW_OK;
    write_head(report, out);
    write_heading(report, name, out);
    spw_report_write_answer(report, out);
    (void)fputs("<section><h2>Scheme by scheme</h2>", out);
    spw_report_write_table(report, out);
    (void)fputs("</section>", out);
    SPW_TRY(write_memory(report, out));
    write_routing(report, out);
    spw_chart_overload(report, out);
    SPW_TRY(write_shares(report, out));
    SPW_TRY(spw_report_write_basis(report, out));
    (void)fputs("</main></body></html>\n", out);

cleanup:
    return status;
}
