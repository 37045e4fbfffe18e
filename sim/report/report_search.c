#include "base/memory.h"
#include "sim/print/table.h"
#include "sim/replay/search_run.h"
#include "sim/report/html.h"
#include "sim/report/report_fields.h"
#include "sim/report/report_page.h"
#include "sim/report/report_take.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { MOST_POINTS = 16, MOST_LISTED = 40 };

/* --- Reading --- */

/* What every point says. */
static const char *const sizes[] = {
    "gpus",       "expert_parallel", "fsdp",          "pipeline",          "tensor",
    "context",    "virtual_stages",  "micro_batches", "sequences_per_gpu", "step_tokens",
    "peak_bytes", "low_bytes",       "high_bytes",    "budget_bytes",      "drop_fraction"};
/* What it says where it has a time, and null else. */
static const char *const times[] = {
    "step_s",           "step_s_low",        "step_s_high",   "tokens_per_s_per_gpu",
    "tokens_per_s_low", "tokens_per_s_high", "tokens_per_day"};

static spw_status check_number(json_t *object, const char *where, const char *key) {
    double value = 0.0;
    const spw_field_number number = {key, &value, SPW_FIELD_LARGEST};
    return spw_field_numbers(object, where, &number, 1);
}

static bool is_timed(const json_t *point) { return json_is_number(json_object_get(point, "step_s")); }

static spw_status check_point(json_t *point, const char *where) {
    static const char *const texts[] = {"scheme", "remat", "verdict", "options"};
    const char *text = NULL;
    spw_status status = SPW_OK;
    if (!json_is_object(point)) SPW_TRY(spw_fail(SPW_EFORMAT, "%s: must be an object", where));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        SPW_TRY(spw_field_text(point, where, texts[i], &text));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) SPW_TRY(check_number(point, where, sizes[i]));
    for (size_t i = 0; i < sizeof times / sizeof *times && is_timed(point); i++)
        SPW_TRY(check_number(point, where, times[i]));

cleanup:
    return status;
}

static spw_status take_plan(json_t *plan, spw_report *out) {
    const char *format = json_string_value(json_object_get(plan, "format"));
    if (format == NULL || strcmp(format, "spillway-result") != 0)
        return spw_fail(SPW_EFORMAT, "plans: must be plans, of format spillway-result");
    char *text = json_dumps(plan, JSON_ENCODE_ANY);
    if (text == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate the plan of a point");
    const spw_status status = spw_report_take_summary(out, text, strlen(text));
    free(text);
    if (status == SPW_OK && !out->planned)
        return spw_fail(SPW_EFORMAT, "plans: must be plans, and one is a replay");
    return status == SPW_EFORMAT ? spw_fail_within(status, "plans") : status;
}

static spw_status take_plans(spw_report *r) {
    json_t *plans = json_object_get(r->root, "plans"), *plan = NULL;
    size_t i = 0;
    spw_status status = SPW_OK;
    if (!json_is_array(plans) || json_array_size(plans) > MOST_POINTS)
        SPW_TRY(
            spw_fail(SPW_EFORMAT,
                     "plans: must be a list of at most %d; a search of an earlier version has none: search "
                     "again",
                     (int)MOST_POINTS));
    SPW_TRY(SPW_ALLOC(json_array_size(plans) + 1, &r->point));
    json_array_foreach(plans, i, plan) {
        spw_report *point = &r->point[r->points++];
        *point = (spw_report){.drop_most = json_number_value(json_object_get(r->root, "drop_at_most"))};
        SPW_TRY(take_plan(plan, point));
    }

cleanup:
    return status;
}

spw_status spw_report_take_search(spw_report *r) {
    json_t *front = json_object_get(r->root, "front"), *best = json_object_get(r->root, "best"),
           *point = NULL, *fates = NULL;
    const char *text = NULL;
    size_t i = 0;
    spw_status status = SPW_OK;
    if (json_integer_value(json_object_get(r->root, "format_version")) != 2)
        SPW_TRY(spw_fail(SPW_EFORMAT, "must say format spillway-search, format_version 2: search again"));
    r->searched = true;
    SPW_TRY(spw_field_text(r->root, "search", "model", &r->model));
    SPW_TRY(spw_field_text(r->root, "search", "cluster", &r->cluster));
    SPW_TRY(spw_field_text(r->root, "search", "routing", &text));
    SPW_TRY(check_number(r->root, "search", "points"));
    SPW_TRY(check_number(r->root, "search", "drop_at_most"));
    SPW_TRY(spw_field_object(r->root, "search", "fates", &fates));
    if (!json_is_array(front)) SPW_TRY(spw_fail(SPW_EFORMAT, "front: must be a list"));
    json_array_foreach(front, i, point) SPW_TRY(check_point(point, "front"));
    if (!json_is_null(best)) SPW_TRY(check_point(best, "best"));
    SPW_TRY(take_plans(r));

cleanup:
    return status;
}

/* --- Writing --- */

static double number_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void text_of(FILE *out, const json_t *object, const char *key) {
    spw_html_text(out, json_string_value(json_object_get(object, key)));
}

/* "gmm, EP 8 x FSDP 4, pipeline 2, ... on 64 GPUs" */
static void write_name(const json_t *p, FILE *out) {
    static const struct {
        const char *key, *text;
        double least;
    } parts[] = {{"expert_parallel", ", EP %.0f", 0.0},
                 {"fsdp", " &times; FSDP %.0f", 0.0},
                 {"pipeline", " &times; pipeline %.0f", 2.0},
                 {"virtual_stages", " (virtual stages %.0f)", 1.0},
                 {"tensor", ", tensor %.0f", 2.0},
                 {"context", ", context %.0f", 2.0},
                 {"gpus", " on %.0f GPUs", 0.0},
                 {"sequences_per_gpu", ", %.0f sequences", 0.0},
                 {"micro_batches", " in %.0f micro-batches", 2.0}};
    (void)fputs("<b>", out);
    text_of(out, p, "scheme");
    (void)fputs("</b>", out);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (number_of(p, parts[i].key) >= parts[i].least)
            (void)fprintf(out, parts[i].text, number_of(p, parts[i].key));
    (void)fputs(", remat ", out);
    text_of(out, p, "remat");
}

/* Before place `end`: memory and time may have the same reason. */
static bool is_said(const json_t *list, size_t end, const char *feature) {
    bool said = false;
    for (size_t i = 0; i < end; i++) {
        const char *other = json_string_value(json_object_get(json_array_get(list, i), "feature"));
        said = said || (other != NULL && strcmp(other, feature) == 0);
    }
    return said;
}

static void write_reasons(const json_t *p, FILE *out) {
    const json_t *list = json_object_get(p, "outside_fit"), *item = NULL;
    size_t i = 0, said = 0;
    json_array_foreach(list, i, item) {
        const char *feature = json_string_value(json_object_get(item, "feature"));
        if (feature == NULL || is_said(list, i, feature)) continue;
        (void)fputs(said++ > 0 ? "; " : "", out);
        spw_html_text(out, feature);
    }
}

static void write_best(const json_t *root, FILE *out) {
    const json_t *p = json_object_get(root, "best");
    char span[SPW_SPAN_TEXT];
    (void)fputs("<section class=\"answer\"><h2>The best of them</h2>", out);
    if (!json_is_object(p)) {
        (void)fputs("<p class=\"lead\">No point keeps to the budgets.</p></section>", out);
        return;
    }
    (void)fputs("<p class=\"lead\">", out);
    write_name(p, out);
    (void)fputs("</p><p>", out);
    spw_html_number(out, number_of(p, "peak_bytes"), "%.1f GiB", number_of(p, "peak_bytes") / GIB);
    (void)fprintf(out, " of %.1f", number_of(p, "budget_bytes") / GIB);
    if (is_timed(p)) {
        (void)fputs(", a step in ", out);
        spw_html_number(out, number_of(p, "step_s"), "%.3g s", number_of(p, "step_s"));
        (void)fprintf(out, " (%s), ",
                      spw_span_text(number_of(p, "step_s_low"), number_of(p, "step_s_high"), " to ", span));
        spw_html_number(out, number_of(p, "tokens_per_s_per_gpu"), "%.0f tokens/s a GPU",
                        number_of(p, "tokens_per_s_per_gpu"));
        (void)fprintf(
            out, " (%s); a day trains ",
            spw_span_text(number_of(p, "tokens_per_s_low"), number_of(p, "tokens_per_s_high"), " to ", span));
        spw_html_amount(out, number_of(p, "tokens_per_day"));
        (void)fputs(" tokens", out);
    }
    (void)fputs("; a step has ", out);
    spw_html_amount(out, number_of(p, "step_tokens"));
    (void)fputs(" tokens; it drops ", out);
    spw_html_percent(out, number_of(p, "drop_fraction"));
    (void)fputs(" of the assignments.</p>", out);
    if (json_array_size(json_object_get(p, "outside_fit")) > 0) {
        (void)fputs("<p class=\"doubt\">Outside the fit: ", out);
        write_reasons(p, out);
        (void)fputs(".</p>", out);
    }
    (void)fputs("</section>", out);
}

/* Columns of the table: `of` is where the figure stands, NULL the point itself. */
static const struct {
    const char *key, *heading, *of, *format;
    double unit;
} columns[] = {{"gpus", "GPUs", NULL, "%.0f", 1.0},
               {"expert_parallel", "EP", NULL, "%.0f", 1.0},
               {"fsdp", "FSDP", NULL, "%.0f", 1.0},
               {"pipeline", "PP", NULL, "%.0f", 1.0},
               {"tensor", "TP", NULL, "%.0f", 1.0},
               {"context", "CP", NULL, "%.0f", 1.0},
               {"virtual_stages", "VPP", NULL, "%.0f", 1.0},
               {"micro_batches", "micro", NULL, "%.0f", 1.0},
               {"sequences_per_gpu", "seq", NULL, "%.0f", 1.0},
               {"peak_bytes", "GiB", NULL, "%.1f", 1024.0 * 1024.0 * 1024.0},
               {"drop_fraction", "dropped", NULL, "%.2f&nbsp;%%", 0.01},
               {"step_tokens", "tokens a step", NULL, NULL, 1.0},
               {"step_s", "step s", NULL, "%.3g", 1.0},
               {"tokens_per_s_per_gpu", "tokens/s a GPU", NULL, "%.0f", 1.0},
               {"tokens_per_day", "tokens a day", NULL, NULL, 1.0},
               {"gpu_hours", "GPU-hours", "cost", NULL, 1.0},
               {"money", "cost", "cost", NULL, 1.0}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static double figure_of(const json_t *p, size_t column) {
    return number_of(columns[column].of != NULL ? json_object_get(p, columns[column].of) : p,
                     columns[column].key);
}

static void write_row(const json_t *p, const bool shown[COLUMNS], FILE *out) {
    (void)fputs("<tr><th scope=\"row\">", out);
    text_of(out, p, "scheme");
    (void)fputs(" <small>remat ", out);
    text_of(out, p, "remat");
    (void)fputs("</small></th>", out);
    for (size_t c = 0; c < COLUMNS; c++) {
        const double value = figure_of(p, c);
        if (!shown[c]) continue;
        (void)fputs("<td class=\"number\">", out);
        if (isnan(value)) {
            (void)fputs("&#8211;", out);
        } else if (columns[c].format == NULL) {
            spw_html_amount(out, value);
        } else {
            spw_html_number(out, value, columns[c].format, value / columns[c].unit);
        }
        (void)fputs("</td>", out);
    }
    (void)fputs("<td>", out);
    write_reasons(p, out);
    (void)fputs("</td></tr>", out);
}

static void write_front(const json_t *root, FILE *out) {
    const json_t *front = json_object_get(root, "front"), *p = NULL;
    const size_t points = json_array_size(front);
    bool shown[COLUMNS] = {false};
    size_t i = 0;
    if (points == 0) return;
    json_array_foreach(front, i, p) {
        for (size_t c = 0; c < COLUMNS; c++) shown[c] = shown[c] || !isnan(figure_of(p, c));
    }
    (void)fputs(
        "<section><h2>Points that no other beats</h2><p class=\"note\">In memory, speed, drops and GPUs, the "
        "best first.</p><div class=\"wide\"><table class=\"schemes\"><thead><tr><th>scheme</th>",
        out);
    for (size_t c = 0; c < COLUMNS; c++)
        if (shown[c]) (void)fprintf(out, "<th>%s</th>", columns[c].heading);
    (void)fputs("<th>outside the fit</th></tr></thead><tbody>", out);
    for (i = 0; i < points && i < MOST_LISTED; i++) write_row(json_array_get(front, i), shown, out);
    (void)fputs("</tbody></table></div>", out);
    if (points > MOST_LISTED) (void)fprintf(out, "<p class=\"note\">And %zu more.</p>", points - MOST_LISTED);
    if (json_is_string(json_object_get(root, "intervals"))) {
        (void)fputs("<p class=\"note\">Intervals of times: ", out);
        text_of(out, root, "intervals");
        (void)fputs(".</p>", out);
    }
    (void)fputs("</section>", out);
}

/* What became of all points. */
static void write_fates(const json_t *root, FILE *out) {
    const json_t *fates = json_object_get(root, "fates");
    (void)fputs("<section><h2>What became of the others</h2><table class=\"sources\"><tbody>", out);
    for (int f = 0; f < SPW_SEARCH_FATES; f++) {
        const double count = number_of(fates, spw_search_fate_key((spw_search_fate)f));
        if (!(count > 0.0)) continue;
        (void)fputs("<tr><td class=\"number\">", out);
        spw_html_number(out, count, "%.0f", count);
        (void)fputs("</td><td>", out);
        spw_html_text(out, spw_search_fate_text((spw_search_fate)f));
        (void)fputs("</td></tr>", out);
    }
    (void)fputs("</tbody></table></section>", out);
}

void spw_report_write_found(const spw_report *search, const char *name, FILE *out) {
    const json_t *root = search->root;
    (void)fputs("<header><h1>", out);
    spw_html_text(out, search->model);
    (void)fputs(" on ", out);
    spw_html_text(out, search->cluster);
    char words[SPW_CLUSTER_WORDS];
    if (spw_cluster_name_words(search->cluster, words)[0] != '\0') (void)fprintf(out, " (%s)", words);
    (void)fputs("</h1><p>A search over ", out);
    spw_html_number(out, number_of(root, "points"), "%.0f", number_of(root, "points"));
    (void)fputs(" points; routing ", out);
    text_of(out, root, "routing");
    (void)fputs("; by spillway into ", out);
    spw_html_text(out, name);
    (void)fputs(".</p></header>", out);
    write_best(root, out);
    write_front(root, out);
    write_fates(root, out);
}
