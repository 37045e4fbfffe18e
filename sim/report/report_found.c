/* The answer of a search as it stands on its page. */
#include "sim/report/report_found.h"
#include "sim/plan/search_run.h"
#include "sim/print/table.h"
#include "sim/report/html.h"
#include "sim/report/report_page.h"
#include "sim/report/report_take.h"
#include "sim/report/search_point.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static bool is_timed(const json_t *point) { return json_is_number(json_object_get(point, "step_s")); }

static spw_report_cost cost_of(const json_t *point) {
    spw_report_cost cost = {.tokens_per_day = {NAN, NAN, NAN}};
    const spw_status status = spw_report_take_cost(json_object_get(point, "cost"), &cost); /* was checked */
    if (status != SPW_OK) cost.tokens_per_day.value = NAN;
    return cost;
}

/* "38.9 GiB live, a lower bound, of 41.9: it may not fit" */
static void write_memory(const json_t *p, FILE *out) {
    const double low = spw_point_number(p, "low_bytes"), high = spw_point_number(p, "high_bytes");
    spw_verdict verdict = SPW_VERDICT_FITS;
    while (verdict < SPW_VERDICT_OOM && strcmp(spw_point_words(p, "verdict"), spw_verdict_name(verdict)) != 0)
        verdict++;
    spw_html_number(out, spw_point_number(p, "peak_bytes"), "%.1f GiB",
                    spw_point_number(p, "peak_bytes") / GIB);
    if (spw_point_is_live_lower_bound(p)) (void)fputs(" live, a lower bound,", out);
    if (high > low) (void)fprintf(out, " (%.1f to %.1f)", low / GIB, high / GIB);
    (void)fprintf(out, " of %.1f", spw_point_number(p, "budget_bytes") / GIB);
    if (spw_point_number(p, "outside_high_bytes") > spw_point_number(p, "outside_low_bytes"))
        (void)fprintf(out, " (%.1f outside, %.1f to %.1f)", spw_point_number(p, "outside_bytes") / GIB,
                      spw_point_number(p, "outside_low_bytes") / GIB,
                      spw_point_number(p, "outside_high_bytes") / GIB);
    (void)fprintf(out, ": it %s", spw_verdict_sentence(verdict, spw_point_is_sure(p)));
}

static void write_speed(const json_t *p, FILE *out) {
    const double speed = spw_point_number(p, "tokens_per_s_per_gpu");
    char span[SPW_SPAN_TEXT], step[SPW_SPAN_TEXT];
    spw_html_number(out, speed, speed < 10.0 ? "%.2f tokens/s a GPU" : "%.0f tokens/s a GPU", speed);
    (void)fprintf(out, " (%s), a step in <data value=\"%.17g\">%s s</data>",
                  spw_span_text(spw_point_number(p, "tokens_per_s_low"),
                                spw_point_number(p, "tokens_per_s_high"), " to ", span),
                  spw_point_number(p, "step_s"), spw_figure_text(spw_point_number(p, "step_s"), step));
    (void)fprintf(
        out, " (%s)",
        spw_span_text(spw_point_number(p, "step_s_low"), spw_point_number(p, "step_s_high"), " to ", span));
}

static void write_drops(const json_t *p, FILE *out) {
    const double share = spw_point_number(p, "drop_fraction"),
                 worst = spw_point_number(p, "worst_drop_fraction");
    const bool least = json_is_true(json_object_get(p, "drops_at_least"));
    if (!(share > 0.0) && !least) {
        (void)fputs("it drops nothing", out);
        return;
    }
    (void)fputs(least ? "it drops at least " : "it drops ", out);
    spw_html_percent(out, share);
    (void)fputs(" of the assignments", out);
    if (worst > share + 5e-5) (void)fprintf(out, " (%.2f&nbsp;%% in the worst step)", 100.0 * worst);
}

/* The same point with every expert chosen alike, where that is another. */
static void write_balanced(const json_t *p, FILE *out) {
    const double speed = spw_point_number(p, "balanced_tokens_per_s_per_gpu"),
                 step = spw_point_number(p, "balanced_step_s"),
                 bytes = spw_point_number(p, "balanced_peak_bytes"),
                 drops = spw_point_number(p, "balanced_drop_fraction");
    const bool same = !(fabs(speed / spw_point_number(p, "tokens_per_s_per_gpu") - 1.0) > 5e-5) &&
                      !(fabs(bytes - spw_point_number(p, "peak_bytes")) > 0.0) &&
                      !(fabs(drops - spw_point_number(p, "drop_fraction")) > 0.0);
    char text[SPW_SPAN_TEXT];
    if (same || isnan(bytes) || isnan(drops)) return;
    (void)fputs("<p>With balanced routing: ", out);
    if (!isnan(speed) && !isnan(step)) {
        spw_html_number(out, speed, speed < 10.0 ? "%.2f tokens/s a GPU" : "%.0f tokens/s a GPU", speed);
        (void)fprintf(out, ", step %s s, ", spw_figure_text(step, text));
    }
    spw_html_number(out, bytes, "%.1f GiB", bytes / GIB);
    (void)fputs(drops > 0.0 ? ", drops " : ", drops nothing", out);
    if (drops > 0.0) spw_html_percent(out, drops);
    (void)fputs(".</p>", out);
}

static void write_outside(const json_t *p, FILE *out) {
    const json_t *list = json_object_get(p, "outside_fit"), *item = NULL;
    size_t i = 0, said = 0;
    json_array_foreach(list, i, item) {
        const char *text = spw_point_words(item, "feature");
        bool before = text[0] == '\0';
        for (size_t k = 0; k < i && !before; k++)
            before = strcmp(spw_point_words(json_array_get(list, k), "feature"), text) == 0;
        if (before) continue;
        (void)fputs(said++ == 0 ? "<p class=\"doubt\">Outside the fit: " : "; ", out);
        spw_html_text(out, text);
    }
    if (said > 0) (void)fputs(".</p>", out);
}

static void write_point(const json_t *root, const json_t *p, FILE *out) {
    const spw_report_cost cost = cost_of(p);
    const double tokens = spw_point_number(root, "tokens"),
                 price = spw_point_number(root, "price_per_gpu_hour");
    const spw_report_training training = {isnan(tokens) ? 0.0 : tokens,
                                          json_is_true(json_object_get(root, "tokens_unsaid")),
                                          isnan(price) ? 0.0 : price};
    const char *layout = spw_point_words(p, "assumed_layout");
    (void)fputs("<p>", out);
    if (is_timed(p)) {
        write_speed(p, out);
        (void)fputs("; ", out);
    }
    write_memory(p, out);
    (void)fputs("; a step has ", out);
    spw_html_amount(out, spw_point_number(p, "step_tokens"));
    (void)fputs(" tokens", out);
    if (!json_is_number(json_object_get(root, "global_batch_at_most")) &&
        !(spw_point_number(root, "global_batch") > 0.0))
        (void)fputs(" (fewer: <code>--global-batch-at-most</code>; all alike: <code>--global-batch</code>)",
                    out);
    (void)fputs("; ", out);
    write_drops(p, out);
    (void)fputs(".</p>", out);
    spw_report_write_costs(&cost, &training, out);
    write_balanced(p, out);
    if (layout[0] != '\0') {
        (void)fputs("<p class=\"doubt\">The layers do not divide over its stages: Megatron-Core needs "
                    "<code>--pipeline-model-parallel-layout ",
                    out);
        spw_html_text(out, layout);
        (void)fputs("</code>, which is what is counted.</p>", out);
    }
    write_outside(p, out);
    (void)fputs("<p class=\"note\">To plan or to report it alone, in place of <code>--search</code>: <code>",
                out);
    spw_point_write(out, p, "options");
    (void)fputs("</code></p>", out);
}

/* --- The answer --- */

/* What it takes to be sure. */
static void write_surely(const json_t *root, const json_t *best, FILE *out) {
    const json_t *sure = json_object_get(root, "best_sure");
    const spw_report_cost dear = cost_of(sure), cheap = cost_of(best);
    const double slower =
        1.0 - spw_point_number(sure, "tokens_per_s_per_gpu") / spw_point_number(best, "tokens_per_s_per_gpu");
    if (!json_is_object(sure)) {
        (void)fputs("<p class=\"doubt\">No point surely fits.</p>", out);
        return;
    }
    if (spw_point_is_sure(best)) return;
    (void)fputs("<h3>The best that surely fits</h3><p>", out);
    spw_report_write_point_name(sure, out);
    if (slower > 0.0) (void)fprintf(out, ": %.1f&nbsp;%% slower a GPU", 100.0 * slower);
    if (dear.money.value > cheap.money.value) {
        (void)fputs(slower > 0.0 ? ", and costs " : ": costs ", out);
        spw_html_amount(out, dear.money.value - cheap.money.value);
        (void)fputs(" more", out);
    }
    (void)fputs(".</p>", out);
    write_point(root, sure, out);
}

static void write_nothing(const json_t *root, FILE *out) {
    const char *why = spw_point_words(root, "nothing");
    const json_t *more = json_object_get(root, "with_more_gpus");
    const double tried = spw_point_number(root, "tried_gpus");
    if (why[0] == '\0') why = "no point keeps to the budgets";
    (void)fprintf(out, "<p class=\"lead\">%c", toupper((unsigned char)why[0]));
    spw_html_text(out, why + 1);
    (void)fputs(".</p>", out);
    if (json_is_object(more)) {
        (void)fputs("<h3>With more GPUs</h3><p>", out);
        spw_report_write_point_name(more, out);
        (void)fputs("</p>", out);
        write_point(root, more, out);
    } else if (tried > 0.0) {
        (void)fprintf(out, "<p>None keeps to the budgets with up to %.0f GPUs, which were tried.</p>", tried);
    }
}

static void write_best(const json_t *root, FILE *out) {
    const json_t *p = json_object_get(root, "best");
    (void)fputs("<section class=\"answer\"><h2>The best of them</h2>", out);
    if (json_is_object(p)) {
        (void)fputs("<p class=\"lead\">", out);
        spw_report_write_point_name(p, out);
        (void)fputs("</p>", out);
        spw_report_write_box(root, p, out);
        if (!is_timed(p))
            (void)fputs("<p class=\"doubt\">No point has a time: most sequences at a time, then the smallest "
                        "batch and "
                        "the least memory, is best.</p>",
                        out);
        (void)fputs("<details class=\"every\"><summary>Every figure of it</summary>", out);
        write_point(root, p, out);
        write_surely(root, p, out);
        (void)fputs("</details>", out);
    } else {
        write_nothing(root, out);
    }
    (void)fputs("</section>", out);
}

/* --- What was asked, and what became of it --- */

static void row_begin(const char *name, FILE *out) { (void)fprintf(out, "<tr><td>%s</td><td>", name); }
static void row_end(FILE *out) { (void)fputs("</td></tr>", out); }

/* A row each text of a list, or the one text. */
static void write_texts(const json_t *root, const char *name, const char *key, FILE *out) {
    const json_t *value = json_object_get(root, key), *item = NULL;
    size_t i = 0;
    if (json_is_string(value)) {
        row_begin(name, out);
        spw_html_text(out, json_string_value(value));
        row_end(out);
    }
    json_array_foreach(value, i, item) {
        if (!json_is_string(item)) continue;
        row_begin(i == 0 ? name : "", out);
        spw_html_text(out, json_string_value(item));
        row_end(out);
    }
}

static void write_budgets(const json_t *root, FILE *out) {
    const double most = spw_point_number(root, "gpus_at_most"), gpus = spw_point_number(root, "gpus"),
                 day = spw_point_number(root, "tokens_per_day"),
                 batch = spw_point_number(root, "global_batch_at_most");
    row_begin("Budgets", out);
    if (!isnan(spw_point_number(root, "budget_bytes")))
        (void)fprintf(out, "%.1f GiB a GPU; ", spw_point_number(root, "budget_bytes") / GIB);
    (void)fprintf(out, "drops at most %g&nbsp;%%", 100.0 * spw_point_number(root, "drop_at_most"));
    if (most > 0.0) (void)fprintf(out, "; at most %.0f GPUs", most);
    if (!(most > 0.0) && gpus > 0.0) (void)fprintf(out, "; %.0f GPUs", gpus);
    if (day > 0.0) {
        (void)fputs("; at least ", out);
        spw_html_amount(out, day);
        (void)fputs(" tokens a day, the fewest GPUs first", out);
    }
    if (spw_point_number(root, "global_batch") > 0.0)
        (void)fprintf(out, "; %.0f sequences a step (<code>--global-batch</code>)",
                      spw_point_number(root, "global_batch"));
    if (batch > 0.0) {
        (void)fputs("; at most ", out);
        spw_html_amount(out, batch);
        (void)fputs(" tokens a step", out);
    }
    row_end(out);
}

/* "pipeline 1, 2, 4" */
static void write_space(const json_t *root, FILE *out) {
    const char *key = NULL;
    json_t *list = NULL;
    json_object_foreach(json_object_get(root, "space"), key, list) {
        const json_t *item = NULL;
        size_t i = 0;
        if (strcmp(key, "scheme") == 0) continue;
        (void)fputs("<tr><td>", out);
        spw_html_text(out, key);
        (void)fputs("</td><td>", out);
        json_array_foreach(list, i, item) {
            (void)fputs(i > 0 ? ", " : "", out);
            if (json_is_string(item)) spw_html_text(out, json_string_value(item));
            if (json_is_number(item)) (void)fprintf(out, "%.0f", json_number_value(item));
        }
        row_end(out);
    }
}

static void write_question(const json_t *root, FILE *out) {
    const json_t *space = json_object_get(root, "space");
    (void)fputs("<section><h2>What was asked</h2><div class=\"wide\"><table class=\"sources\"><tbody>", out);
    write_budgets(root, out);
    write_texts(space, "Schemes", "scheme", out);
    write_texts(root, "", "hint", out);
    write_texts(root, "Routing", "routing", out);
    write_texts(root, "Software", "software", out);
    write_texts(root, "", "software_distance", out);
    write_texts(root, "May need more memory", "may_need_more", out);
    write_texts(root, "Needs less memory", "needs_less", out);
    write_texts(root, "Number formats", "precision", out);
    write_texts(root, "", "precision_hint", out);
    write_texts(root, "State", "beside", out);
    write_texts(root, "Assumed", "assumed", out);
    write_texts(root, "Model", "model_doubts", out);
    write_space(root, out);
    (void)fputs("</tbody></table></div></section>", out);
}

static void write_fates(const json_t *root, FILE *out) {
    const json_t *fates = json_object_get(root, "fates");
    (void)fputs(
        "<section><h2>What became of the points</h2><div class=\"wide\"><table class=\"sources\"><tbody>",
        out);
    for (int f = 0; f < SPW_SEARCH_FATES; f++) {
        const double count = spw_point_number(fates, spw_search_fate_key((spw_search_fate)f));
        const char *text = spw_search_fate_text((spw_search_fate)f), *colon = strstr(text, ": ");
        const bool replayed = spw_search_fate_is_replayed((spw_search_fate)f);
        if (!(count > 0.0)) continue;
        row_begin(replayed ? "replayed" : "skipped", out);
        spw_html_number(out, count, "%.0f", count);
        (void)fputs("</td><td>", out);
        spw_html_text(out, replayed && colon != NULL ? colon + 2 : text);
        row_end(out);
    }
    (void)fputs("</tbody></table></div>", out);
    if (json_array_size(json_object_get(root, "schemes_without")) > 0) {
        (void)fputs("<p class=\"note\">Schemes without a point above:</p><div class=\"wide\"><table "
                    "class=\"sources\"><tbody>",
                    out);
        write_texts(root, "", "schemes_without", out);
        (void)fputs("</tbody></table></div>", out);
    }
    (void)fputs("</section>", out);
}

/* What proves the answer; files of before have none. */
static void write_proof(const json_t *proof, FILE *out) {
    const json_t *memory = json_object_get(proof, "left_out_for_memory"),
                 *beaten = json_object_get(proof, "beaten"),
                 *unseen = json_object_get(proof, "not_looked_at");
    const double least = spw_point_number(memory, "least_bytes"),
                 most = spw_point_number(beaten, "tokens_per_s_per_gpu_at_most"),
                 rest = spw_point_number(unseen, "points"),
                 rest_most = spw_point_number(unseen, "tokens_per_s_per_gpu_at_most");
    if (least > 0.0)
        (void)fprintf(out, " %.0f points left out for memory need %.1f GiB or more of %.1f.",
                      spw_point_number(memory, "points"), least / GIB,
                      spw_point_number(memory, "budget_bytes") / GIB);
    if (most > 0.0)
        (void)fprintf(out, " %.0f left out as beaten make at most %.0f tokens/s a GPU.",
                      spw_point_number(beaten, "points"), most);
    if (rest > 0.0 && rest_most > 0.0)
        (void)fprintf(out, " %.0f were not looked at and make at most %.0f tokens/s a GPU.", rest, rest_most);
}

void spw_report_write_found(const spw_report *search, const char *name, FILE *out) {
    const json_t *root = search->root;
    const double gpus = spw_point_number(root, "gpus"), length = spw_point_number(root, "sequence_length");
    (void)fputs("<header><h1>", out);
    spw_html_text(out, search->model);
    (void)fputs(" on ", out);
    spw_html_text(out, search->cluster);
    char words[SPW_CLUSTER_WORDS];
    if (spw_cluster_name_words(search->cluster, words)[0] != '\0') (void)fprintf(out, " (%s)", words);
    (void)fputs("</h1><p>A search over ", out);
    spw_html_number(out, spw_point_number(root, "points"), "%.0f", spw_point_number(root, "points"));
    (void)fputs(" points", out);
    const double looked_at = spw_point_number(root, "points_looked_at"); /* none in files of before */
    if (looked_at < spw_point_number(root, "points"))
        (void)fprintf(out, ", stopped after %.0f of them, so that the best of all may be another", looked_at);
    if (gpus > 0.0 && length > 0.0) (void)fprintf(out, ": %.0f GPUs, %.0f tokens a sequence", gpus, length);
    (void)fputs("; routing ", out);
    spw_point_write(out, root, "routing");
    (void)fputs("; by spillway into ", out);
    spw_html_text(out, name);
    (void)fputs(".", out);
    write_proof(json_object_get(root, "certificate"), out);
    (void)fputs("</p></header>", out);
    write_best(root, out);
    spw_report_write_front(root, out);
    write_question(root, out);
    write_fates(root, out);
}
