#include "sim/report/report_page.h"

#include "base/memory.h"
#include "sim/read/preset.h"
#include "sim/report/charts/chart.h"
#include "sim/report/charts/chart_pareto.h"
#include "sim/report/html.h"
#include "sim/report/report_timeline.h"

#include <inttypes.h>
#include <stdbool.h>

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

/* Of a plan without a trace, where its routing comes from in words. */
static void write_routing_name(const spw_report *report, FILE *out) {
    const char *file = json_string_value(json_object_get(report->trace, "file"));
    if (file == NULL) file = json_string_value(json_object_get(report->settings, "trace_file"));
    if (file == NULL) return;
    (void)fputs(report->planned ? ": " : " of ", out);
    spw_html_text(out, file);
}

/* What else the GPUs are split by; sizes of 1 are not said. */
static void write_grid(const spw_report *report, FILE *out) {
    static const struct {
        const char *key, *text;
    } parts[] = {{"pipeline", " &times; pipeline %.0f"},
                 {"virtual_stages", " (%.0f blocks of layers a stage)"},
                 {"tensor", ", tensor %.0f"},
                 {"context", ", context %.0f"},
                 {"expert_tensor", ", expert tensor %.0f"}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const double size =
            json_number_value(json_object_get(json_object_get(report->settings, "parallel"), parts[i].key));
        if (size > 1.0) (void)fprintf(out, parts[i].text, size);
    }
}

static void write_heading(const spw_report *report, const char *name, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    (void)fputs("<header><h1>", out);
    spw_html_text(out, report->model);
    (void)fputs(" on ", out);
    spw_html_text(out, report->cluster);
    char words[SPW_CLUSTER_WORDS];
    if (spw_cluster_name_words(report->cluster, words)[0] != '\0')
        (void)fprintf(out, "</h1><p>%s: ", words);
    else
        (void)fprintf(out, "</h1><p>%.0f GPUs: ", report->gpus);
    if (report->splits) {
        (void)fputs("expert &times; fsdp split in several ways", out);
    } else {
        (void)fprintf(out, "expert %.0f &times; fsdp %.0f", report->row[0].expert, report->row[0].fsdp);
    }
    write_grid(report, out);
    (void)fputs("; ", out);
    (void)fprintf(out, spw_report_has_batches(report) ? "%.0f to %.0f" : "%.0f", report->least_sequences,
                  report->most_sequences);
    (void)fprintf(out, " &times; %.0f tokens a GPU, remat ", report->sequence_length);
    spw_html_text(out, report->remat);
    if (report->offload != NULL) {
        (void)fputs(", offload ", out);
        spw_html_text(out, report->offload);
    }
    (void)fprintf(out, ". Routing of %.0f step%s", report->row[0].steps,
                  report->row[0].steps > 1.0 ? "s" : "");
    if (report->pictured && p->steps > 1)
        (void)fprintf(out, " (%" PRId64 " to %" PRId64 ")", p->step[0], p->last_step);
    (void)fprintf(out, " &times; %.0f layer%s", report->row[0].layers,
                  report->row[0].layers > 1.0 ? "s" : "");
    write_routing_name(report, out);
    (void)fprintf(out, ", %s by spillway into ", report->planned ? "planned" : "replayed");
    spw_html_text(out, name);
    (void)fputs(".</p></header>", out);
}

/* What pictures of a plan, or of very many rows, leave out. */
static void write_left_out(const spw_report *report, const spw_report *drawn, FILE *out) {
    if (drawn->rows == report->rows) return;
    (void)fprintf(out, "<p class=\"note\">Of the %zu points, %s.</p>", report->rows,
                  report->planned ? "the best of each scheme" : "the best ones");
}

static spw_status write_memory(const spw_report *whole, const spw_report *report, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    (void)fputs("<section><h2>Memory against the budget</h2>", out);
    write_left_out(whole, report, out);
    const spw_status status = spw_chart_memory_bars(report, out);
    if (status != SPW_OK) return status;
    if (report->pictured && p->steps > 1) {
        (void)fputs("<h3>By step, of the GPU that needs most</h3>", out);
        if (p->steps > p->step_bins)
            (void)fprintf(out, "<p class=\"note\">%zu steps in %zu bins, each as its largest.</p>", p->steps,
                          p->step_bins);
        spw_chart_memory_steps(report, out);
    } else if (report->pictured) {
        (void)fputs("<p class=\"note\">One step was replayed: memory by step is the bar.</p>", out);
    }
    (void)fputs("</section>", out);
    return SPW_OK;
}

static void write_routing(const spw_report *report, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    (void)fprintf(out, "<section id=\"rows%s\">", report->mark != NULL ? report->mark : "");
    (void)fputs(
        "<h2>Where rows pile up</h2><p class=\"note\">Rows of the fullest GPU over the "
        "mean of all, by layer and step. Every layer waits for its fullest GPU. Schemes that hold the same "
        "rows share a picture.",
        out);
    if (p->steps > p->step_bins || p->layers > p->layer_bins)
        (void)fprintf(out, " %zu layers &times; %zu steps are drawn as %zu &times; %zu, each as its largest.",
                      p->layers, p->steps, p->layer_bins, p->step_bins);
    (void)fputs("</p>", out);
    spw_chart_imbalance(report, out);
    (void)fputs("</section>", out);
}

static void write_ranks(const spw_report *report, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    (void)fprintf(out, "<section id=\"gpus%s\">", report->mark != NULL ? report->mark : "");
    (void)fputs("<h2>The worst step, GPU by GPU</h2><p class=\"note\">The layer and "
                "step in which "
                "one GPU holds most.",
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

static const char without_pictures[] =
    "<section><h2>What is not drawn</h2><p class=\"note\">Rows by layer, step and GPU: this file is JSON, "
    "which has "
    "their largest and their means alone. <code>spillway replay --output RESULT.h5</code> writes them, and "
    "<code>spillway report PLAN.json --replay RESULT.h5</code> shows them below the plan.</p></section>";

/* What one looks at when the answer is not enough. */
static void begin_fold(const char *heading, FILE *out) {
    (void)fprintf(out, "<details class=\"fold\"><summary>%s</summary>", heading);
}

static void end_fold(FILE *out) { (void)fputs("</details>", out); }

static spw_status write_body(const spw_report *report, const char *name, bool beside, FILE *out) {
    spw_status status = SPW_OK;
    spw_report drawn = {.rows = 0}, listed = {.rows = 0}, more = {.rows = 0};
    SPW_TRY(spw_report_select(report, &drawn, &listed, &more));
    write_heading(report, name, out);
    spw_report_write_answer(report, out);
    if (report->planned) SPW_TRY(spw_chart_pareto(report, out));
    (void)fprintf(out, "<section><h2>%s</h2>", report->planned ? "Point by point" : "Scheme by scheme");
    spw_report_write_table(&listed, &more, out);
    (void)fputs("</section>", out);
    SPW_TRY(write_memory(report, &drawn, out));
    if (report->pictured) write_routing(&drawn, out);
    if (!report->pictured && !beside) (void)fputs(without_pictures, out);
    if (report->pictured) spw_chart_experts(&drawn, out);
    spw_chart_timeline(report, out);
    begin_fold("The peak, piece by piece", out);
    spw_report_write_stages(report, spw_report_first(report), out);
    SPW_TRY(spw_chart_waterfall(report, spw_report_first(report), out));
    end_fold(out);
    begin_fold(report->pictured ? "GPUs and links" : "Links and uneven rows", out);
    if (report->pictured) {
        write_ranks(&drawn, out);
        spw_chart_links(&drawn, out);
    }
    spw_report_write_levels(report, spw_report_first(report), out);
    spw_chart_overload(&drawn, out);
    end_fold(out);
    begin_fold("What fills the memory, crosses the links and takes the time", out);
    SPW_TRY(write_shares(&drawn, out));
    end_fold(out);
    begin_fold("What this rests on, how to run it again, and sources", out);
    spw_report_write_interval(report, spw_report_first(report), out);
    SPW_TRY(spw_report_write_basis(report, out));
    end_fold(out);

cleanup:
    spw_free(drawn.row);
    spw_free(listed.row);
    spw_free(more.row);
    return status;
}

spw_status spw_report_write(const spw_report *report, const char *name, FILE *out) {
    write_head(report, out);
    const spw_status status = write_body(report, name, false, out);
    (void)fputs("</main></body></html>\n", out);
    return status;
}

spw_status spw_report_write_both(const spw_report *plan, const char *plan_name, const spw_report *replay,
                                 const char *replay_name, FILE *out) {
    static const spw_report_beside words = {
        "The plan beside the replay", "plan", "replay",
        "No scheme of the replay is a point of the plan with the same batch and split."};
    spw_status status = SPW_OK;
    write_head(plan, out);
    SPW_TRY(write_body(plan, plan_name, true, out));
    spw_report_write_beside(plan, replay, &words, out);
    (void)fputs("</main><main class=\"beside\">", out);
    SPW_TRY(write_body(replay, replay_name, true, out));
    (void)fputs("</main></body></html>\n", out);

cleanup:
    return status;
}

static spw_status write_search(const spw_report *search, const char *name, FILE *out) {
    spw_status status = SPW_OK;
    spw_report_write_found(search, name, out);
    for (size_t i = 0; i < search->points; i++) {
        const spw_report *point = &search->point[i];
        (void)fputs(i == 0 ? "</main><main class=\"beside\"><p class=\"note\">The best point of the search, "
                             "as a plan of it alone:</p>"
                           : "<details><summary>Another point, as a plan of it alone: ",
                    out);
        if (i > 0) spw_report_write_name(point, spw_report_first(point), out);
        if (i > 0) (void)fputs("</summary>", out);
        SPW_TRY(write_body(point, name, true, out));
        if (i > 0) (void)fputs("</details>", out);
    }

cleanup:
    return status;
}

spw_status spw_report_write_search(const spw_report *search, const char *name, FILE *out) {
    write_head(search, out);
    const spw_status status = write_search(search, name, out);
    (void)fputs("</main></body></html>\n", out);
    return status;
}

/* Of a search, what it found and the plan of its best point. */
static spw_status write_folded(const char *letter, const spw_report *report, const char *name, FILE *out) {
    spw_status status = SPW_OK;
    (void)fprintf(out, "<details><summary>All of %s: ", letter);
    spw_html_text(out, name);
    (void)fputs("</summary>", out);
    if (report->searched) spw_report_write_found(report, name, out);
    SPW_TRY(write_body(report->searched ? &report->point[0] : report, name, false, out));
    (void)fputs("</details>", out);

cleanup:
    return status;
}

spw_status spw_report_write_pair(const spw_report *a, const char *a_name, const spw_report *b,
                                 const char *b_name, FILE *out) {
    spw_report second = *b;
    spw_status status = SPW_OK;
    second.mark = "-b";
    if ((a->searched && a->points == 0) || (b->searched && b->points == 0))
        SPW_TRY(spw_fail(SPW_EARG, "%s: this search found no point to set beside another; report it alone",
                         a->searched && a->points == 0 ? a_name : b_name));
    write_head(a, out);
    spw_report_write_compared(a, a_name, b, b_name, out);
    SPW_TRY(write_folded("A", a, a_name, out));
    SPW_TRY(write_folded("B", &second, b_name, out));
    (void)fputs("</main></body></html>\n", out);

cleanup:
    return status;
}
