#include "sim/report/report_page.h"

#include "base/memory.h"
#include "sim/report/charts/chart.h"
#include "sim/report/html.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A text of the file, or "" where it has none of that name. */
static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* --- What it rests on --- */

static void write_assumptions(const spw_report *report, FILE *out) {
    const char *sentence;
    json_t *said;
    json_object_foreach(report->assumptions, sentence, said) {
        (void)fputs("<li>", out);
        spw_html_text(out, sentence);
        (void)fputs("</li>", out);
    }
}

static void write_evidence(const spw_report *report, FILE *out) {
    static const struct {
        const char *name, *recorded, *generated;
    } kinds[] = {
        {"exact",
         "the trace's ranks, tokens a rank and layers, or those of its model that were recorded, are the "
         "job's: rows, bytes and drops are counted",
         "routing was generated, not recorded, for the job's own ranks, tokens a rank and layers: rows, "
         "bytes "
         "and drops of it are counted"},
        {"folded",
         "the trace has more source ranks or other layers than the job: blocks of ranks are a rank, layers "
         "are taken in turn, nothing is drawn",
         "routing was generated, not recorded, and for other layers than the job has: they are taken in "
         "turn, "
         "nothing else is drawn"},
        {"resampled",
         "ranks are composed of whole sequences of the trace or of its counts, dealt in order or drawn by a "
         "seed",
         "routing was generated, not recorded; ranks are composed of whole sequences of it, dealt in order "
         "or "
         "drawn by a seed"},
        {"synthetic", "routing was generated, not recorded", "routing was generated, not recorded"}};
    const bool made = spw_report_is_generated(report);
    (void)fputs("<ul>", out);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        bool any = false;
        for (size_t i = 0; i < report->rows; i++)
            any = any || strcmp(report->row[i].evidence, kinds[k].name) == 0;
        if (any)
            (void)fprintf(out, "<li><b>%s</b>: %s.</li>", kinds[k].name,
                          made ? kinds[k].generated : kinds[k].recorded);
    }
    write_assumptions(report, out);
    (void)fputs("</ul>", out);
}

/* --- How to run it again --- */

/* One word of a shell. */
static void write_word(const char *word, FILE *out) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        spw_html_text(out, word);
        return;
    }
    (void)fputs("&#39;", out);
    for (const char *at = word; *at != '\0';) {
        const size_t run = strcspn(at, "'");
        spw_html_part(out, at, run);
        at += run;
        if (*at == '\'') (void)fputs("&#39;\\&#39;&#39;", out), at++;
    }
    (void)fputs("&#39;", out);
}

static void write_option(const char *option, const char *value, FILE *out) {
    (void)fprintf(out, " \\\n    %s ", option);
    write_word(value, out);
}

static void write_range(const json_t *settings, const char *key, FILE *out) {
    const json_t *pair = json_object_get(settings, key);
    if (json_array_size(pair) != 2) return;
    (void)fprintf(out, " --%s %" JSON_INTEGER_FORMAT ":%" JSON_INTEGER_FORMAT, key,
                  json_integer_value(json_array_get(pair, 0)), json_integer_value(json_array_get(pair, 1)));
}

static void write_allocator(const json_t *a, FILE *out) {
    if (!json_is_object(a)) return;
    (void)fprintf(out, " \\\n    --allocator expandable_segments:%s",
                  json_is_true(json_object_get(a, "expandable_segments")) ? "True" : "False");
    const double split = json_number_value(json_object_get(a, "max_split_size_mb"));
    const double threshold = json_number_value(json_object_get(a, "garbage_collection_threshold"));
    const double fraction = json_number_value(json_object_get(a, "per_process_memory_fraction"));
    const double divisions = json_number_value(json_object_get(a, "roundup_power2_divisions"));
    if (split > 0.0) (void)fprintf(out, ",max_split_size_mb:%.0f", split);
    if (threshold > 0.0) (void)fprintf(out, ",garbage_collection_threshold:%g", threshold);
    if (fraction > 0.0) (void)fprintf(out, ",per_process_memory_fraction:%.17g", fraction);
    if (divisions > 0.0) (void)fprintf(out, ",roundup_power2_divisions:%.0f", divisions);
}

/* Keys of the job that the command line gave. */
static void write_overrides(const json_t *settings, FILE *out) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(settings, "set"), i, item) {
        char pair[1024];
        (void)snprintf(pair, sizeof pair, "%s=%s", text_of(item, "key"), text_of(item, "value"));
        write_option("--set", pair, out);
    }
}

/* A plan's file has the words of its command; "spillway plan" is the first two. */
static void write_words(const json_t *words, FILE *out) {
    size_t i;
    json_t *word;
    (void)fputs("<pre>spillway", out);
    json_array_foreach(words, i, word) {
        const char *text = json_string_value(word);
        if (text == NULL) continue;
        (void)fputs(text[0] == '-' && text[1] == '-' ? " \\\n    " : " ", out);
        write_word(text, out);
    }
    (void)fputs("</pre>", out);
}

static void write_command(const spw_report *report, FILE *out) {
    const json_t *s = report->settings;
    size_t i;
    json_t *item;
    bool replayed = false;
    for (size_t r = 0; r < report->rows; r++) replayed = replayed || report->row[r].replayed;
    (void)fputs("<pre>spillway replay ", out);
    write_word(text_of(s, "trace_file"), out);
    if (text_of(s, "job_file")[0] != '\0') write_option("--job", text_of(s, "job_file"), out);
    write_overrides(s, out);
    (void)fprintf(out, " --expert-parallel %.0f", report->expert);
    json_array_foreach(json_object_get(json_object_get(s, "batch"), "sequences_per_gpu"), i, item) {
        (void)fprintf(out, "%s%" JSON_INTEGER_FORMAT, i == 0 ? " --sequences-per-gpu " : ",",
                      json_integer_value(item));
    }
    json_array_foreach(json_object_get(s, "schemes"), i, item) {
        if (json_is_string(item)) write_option("--scheme", json_string_value(item), out);
    }
    (void)fputs(" \\\n   ", out);
    write_range(s, "steps", out);
    write_range(s, "layers", out);
    (void)fprintf(out, " --seed %" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(s, "seed")));
    if (text_of(s, "balancer")[0] != '\0') write_option("--balancer", text_of(s, "balancer"), out);
    if (text_of(s, "stack")[0] != '\0') write_option("--stack", text_of(s, "stack"), out);
    if (replayed) write_allocator(json_object_get(s, "allocator"), out);
    (void)fputs("</pre>", out);
}

static spw_status write_settings(const spw_report *report, FILE *out) {
    char *text = json_dumps(report->settings, JSON_INDENT(1));
    if (text == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate the text of the settings");
    (void)fputs("<details><summary>All settings of the job</summary><pre>", out);
    spw_html_text(out, text);
    (void)fputs("</pre></details>", out);
    free(text);
    return SPW_OK;
}

/* --- Sources --- */

static void write_cells(const json_t *object, const char *const *keys, size_t count, FILE *out) {
    (void)fputs("<tr>", out);
    for (size_t k = 0; k < count; k++) {
        (void)fputs("<td>", out);
        spw_html_text(out, text_of(object, keys[k]));
        (void)fputs("</td>", out);
    }
    (void)fputs("</tr>", out);
}

static void write_figures(const json_t *figures, FILE *out) {
    static const char *const keys[] = {"unit", "evidence", "source"};
    size_t i;
    json_t *figure;
    (void)fputs(
        "<div class=\"wide\"><table "
        "class=\"sources figures\"><thead><tr><th>figure</th><th>value</th><th>unit</th><th>evidence</th>"
        "<th>source</th></tr></thead><tbody>",
        out);
    json_array_foreach(figures, i, figure) {
        const json_t *value = json_object_get(figure, "value");
        (void)fputs("<tr><td>", out);
        spw_html_text(out, text_of(figure, "what"));
        (void)fputs("</td><td class=\"number\">", out);
        if (json_is_number(value)) spw_html_figure(out, json_number_value(value));
        (void)fputs("</td>", out);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            (void)fputs("<td>", out);
            spw_html_text(out, text_of(figure, keys[k]));
            (void)fputs("</td>", out);
        }
        (void)fputs("</tr>", out);
    }
    (void)fputs("</tbody></table></div>", out);
}

static void write_list(const json_t *list, const char *head, const char *const *keys, size_t count,
                       FILE *out) {
    size_t i;
    json_t *item;
    if (json_array_size(list) == 0) return;
    (void)fprintf(out, "<div class=\"wide\"><table class=\"sources\"><thead><tr>%s</tr></thead><tbody>",
                  head);
    json_array_foreach(list, i, item) write_cells(item, keys, count, out);
    (void)fputs("</tbody></table></div>", out);
}

static void write_line(const char *what, const char *text, FILE *out) {
    if (text[0] == '\0') return;
    (void)fprintf(out, "<li>%s: ", what);
    spw_html_text(out, text);
    (void)fputs("</li>", out);
}

static void write_sources(const spw_report *report, FILE *out) {
    static const char *const fits[] = {"what", "name", "tables"}, *const schemes[] = {"scheme", "section",
                                                                                      "source"};
    (void)fputs("<ul>", out);
    write_line("trace", text_of(report->trace, "file"), out);
    write_line("recorded model", text_of(report->trace, "model"), out);
    write_line("source of the trace", text_of(report->trace, "source"), out);
    write_line("licence of the trace", text_of(report->trace, "license"), out);
    write_line("shapes of the model", text_of(report->sources, "model"), out);
    (void)fputs("</ul>", out);
    if (report->sources == NULL) {
        (void)fputs("<p>This result is of version 1.0, which does not say where the cluster's figures come "
                    "from; replay again to "
                    "have them here.</p>",
                    out);
        return;
    }
    write_figures(json_object_get(report->sources, "figures"), out);
    write_list(json_object_get(report->sources, "schemes"),
               "<th>scheme</th><th>docs/schemes.md</th><th>read from</th>", schemes, 3, out);
    write_list(json_object_get(report->sources, "fits"),
               "<th>coefficients</th><th>name</th><th>fitted on</th>", fits, 3, out);
}

spw_status spw_report_write_basis(const spw_report *report, FILE *out) {
    (void)fputs("<section><h2>What this rests on</h2>", out);
    write_evidence(report, out);
    (void)fputs("</section><section><h2>To run it again</h2>", out);
    const json_t *words = json_object_get(report->settings, "arguments");
    if (json_array_size(words) > 0) {
        write_words(words, out);
    } else {
        write_command(report, out);
    }
    const spw_status status = write_settings(report, out);
    (void)fputs("</section><section><h2>Sources</h2>", out);
    write_sources(report, out);
    (void)fputs("</section>", out);
    return status;
}
