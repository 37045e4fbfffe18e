#include "sim/report/report_page.h"

#include "sim/print/plural.h"
#include "sim/report/charts/chart.h"
#include "sim/report/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* What it holds, how long it takes, what it drops. */
static void write_figures(const spw_report_row *row, FILE *out) {
    (void)fprintf(out, "%.*f of %.1f GiB a GPU", row->held.most < 10.0 * GIB ? 2 : 1, row->held.most / GIB,
                  row->budget / GIB);
    if (row->replayed)
        (void)fprintf(out, " live, %s%.1f reserved", row->oom > 0.0 ? "at least " : "",
                      row->reserved.most / GIB);
    if (row->timed) {
        const double cost = 100.0 * (row->over_balanced.value - 1.0);
        (void)fprintf(out, ", a step in %.2f s (%.2f to %.2f), %.0f tokens/s a GPU", row->step_s, row->low_s,
                      row->high_s, row->tokens);
        if (row->tokens_low > 0.0) (void)fprintf(out, " (%.0f to %.0f)", row->tokens_low, row->tokens_high);
        if (fabs(cost) >= 0.05)
            (void)fprintf(out, ", %.1f %% %s than with balanced routing", fabs(cost),
                          cost > 0.0 ? "longer" : "shorter");
    }
    if (row->dropped > 0.0) {
        (void)fprintf(out, "; it drops %.2f %% of the assignments", 100.0 * row->fraction);
    } else {
        (void)fputs("; it drops nothing", out);
    }
    if (!(row->oom_high > row->oom_low) || row->oom > 0.0) return;
    (void)fputs("; no replayed step runs out of memory", out);
    if (row->oom_high <= 0.5) /* more says nothing: there were few steps */
        (void)fprintf(out, " (95 %%: at most %.*f %% of steps do)", spw_percent_digits(row->oom_high),
                      100.0 * row->oom_high);
}

/* What the fit has not seen of a choice, every feature once. */
static void write_unseen(const spw_report *report, const spw_report_row *row, FILE *out) {
    const json_t *item = NULL;
    size_t i = 0, said = 0;
    if (row->outside_fit == NULL) return;
    (void)fputs("<p class=\"doubt\">Outside the fit, of ", out);
    spw_report_write_name(report, row, out);
    (void)fputs(": ", out);
    json_array_foreach(row->outside_fit, i, item) {
        const char *text = json_string_value(json_object_get(item, "feature"));
        bool before = text == NULL;
        for (size_t k = 0; k < i && !before; k++) {
            const char *other =
                json_string_value(json_object_get(json_array_get(row->outside_fit, k), "feature"));
            before = other != NULL && strcmp(other, text) == 0;
        }
        if (before) continue;
        (void)fputs(said++ > 0 ? "; " : "", out);
        spw_html_text(out, text);
    }
    (void)fputs(". Try it before you book.</p>", out);
}

/* What a framework's file has that is not counted, in words; NULL: nothing. */
static const char *uncounted(const spw_report *report, const char *key) {
    return json_string_value(json_object_get(report->settings, key));
}

/* Why a choice is not sure: by its figures, or, where these are within the budget, by what is not in them. */
static void write_reason(const spw_report *report, const spw_report_row *row, FILE *out) {
    if (row->most <= row->budget && uncounted(report, "may_need_more") != NULL) {
        (void)fputs("the file has what may need more memory, and is not counted (below)", out);
    } else if (row->most <= row->budget && report->precision_note != NULL) {
        (void)fputs("what fp8 keeps beside one byte an element is not counted without a recipe", out);
    } else if (row->replayed && isnan(row->most)) {
        (void)fputs("PyTorch&#39;s allocator has to give memory back to go on", out);
    } else if (row->replayed) {
        (void)fprintf(out, "PyTorch&#39;s allocator may take up to %.1f GiB", row->most / GIB);
    } else if (!spw_report_row_live(row)) {
        (void)fprintf(out, "the fit&#39;s interval is %.1f to %.1f GiB", row->low / GIB, row->high / GIB);
    } else if (isnan(row->most)) {
        (void)fputs("what must be live is a lower bound, and what is added to it is not known", out);
    } else {
        (void)fprintf(out,
                      "what must be live is a lower bound; with what is added it may take up to %.1f GiB",
                      row->most / GIB);
    }
}

/* Why a choice is not sure, and the one that is. */
static void write_doubt(const spw_report *report, const spw_report_row *row, double most, FILE *out) {
    const spw_report_row *sure = spw_report_best(report, most, true);
    write_unseen(report, row, out);
    if (row->surely_fits && row->verdict == SPW_VERDICT_FITS) return;
    (void)fputs("<p class=\"doubt\">", out);
    spw_report_write_name(report, row, out);
    (void)fprintf(out, " %s: ", spw_verdict_sentence(row->verdict, row->surely_fits));
    if (row->surely_fits) {
        (void)fputs("less than 5 % of what may be used stays free.</p>", out);
        return;
    }
    write_reason(report, row, out);
    if (sure != NULL) {
        (void)fputs(". The best that surely fits: ", out);
        spw_report_write_name(report, sure, out);
        (void)fputs(", ", out);
        write_figures(sure, out);
        (void)fputs(".</p>", out);
    } else {
        (void)fprintf(out, ". No point%s surely fits.</p>",
                      most <= 0.0  ? " without drops"
                      : most < 1.0 ? " with as few drops"
                                   : "");
    }
}

static void write_choice(const spw_report *report, const char *which, const spw_report_row *row, FILE *out) {
    (void)fprintf(out, "<p>%s: ", which);
    spw_report_write_name(report, row, out);
    (void)fputs(", ", out);
    write_figures(row, out);
    (void)fputs(".</p>", out);
    spw_report_write_cost(report, row, out);
}

/* What --drop-at-most and --fits-at found. */
static void write_searches(const spw_report *report, FILE *out) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(report->root, "smallest_factors"), i, item) {
        const char *scheme = json_string_value(json_object_get(item, "scheme"));
        const char *option = json_string_value(json_object_get(item, "option"));
        const json_t *factor = json_object_get(item, "factor");
        if (scheme == NULL || option == NULL) continue;
        (void)fputs("<p><b>", out);
        spw_html_text(out, scheme);
        (void)fprintf(out, "</b> at %.0f sequence%s a GPU: ",
                      json_number_value(json_object_get(item, "sequences_per_gpu")),
                      spw_plural((size_t)json_integer_value(json_object_get(item, "sequences_per_gpu"))));
        const double most = 100.0 * json_number_value(json_object_get(item, "drop_at_most"));
        if (json_is_number(factor)) {
            (void)fputs("the smallest ", out);
            spw_html_text(out, option);
            (void)fprintf(out, " that drops at most %g %% is ", most);
            spw_html_number(out, json_number_value(factor), "%.3f", json_number_value(factor));
        } else {
            (void)fputs("no ", out);
            spw_html_text(out, option);
            (void)fprintf(out, " drops as little as %g %%", most);
        }
        (void)fputs(".</p>", out);
    }
    json_array_foreach(json_object_get(report->root, "largest_batches"), i, item) {
        const char *scheme = json_string_value(json_object_get(item, "scheme"));
        const double largest = json_number_value(json_object_get(item, "sequences_per_gpu"));
        if (scheme == NULL) continue;
        (void)fputs("<p><b>", out);
        spw_html_text(out, scheme);
        (void)fprintf(out, "</b>: the most sequences a GPU that fit in %g %% of the steps are %s",
                      100.0 * json_number_value(json_object_get(item, "fits_at")),
                      json_is_true(json_object_get(item, "at_least")) ? "at least " : "");
        spw_html_number(out, largest, "%.0f", largest);
        (void)fputs(".</p>", out);
    }
}

/* The factor with which the scheme of a row stays within the limit, where the replay searched for it; else NAN. */
static double factor_of(const spw_report *report, const spw_report_row *row) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(report->root, "smallest_factors"), i, item) {
        const char *scheme = json_string_value(json_object_get(item, "scheme"));
        const json_t *factor = json_object_get(item, "factor");
        if (scheme == NULL || strcmp(scheme, row->scheme) != 0 || !json_is_number(factor)) continue;
        if (fabs(json_number_value(json_object_get(item, "sequences_per_gpu")) - row->sequences) > 0.5)
            continue;
        if (json_number_value(json_object_get(item, "drop_at_most")) <= report->drop_most)
            return json_number_value(factor);
    }
    json_array_foreach(json_object_get(report->plan, "drops_too_much"), i, item) {
        const json_t *factor = json_object_get(item, "factor");
        const size_t point = (size_t)json_integer_value(json_object_get(item, "point"));
        if (point < report->rows && &report->row[point] == row && json_is_number(factor) &&
            json_number_value(json_object_get(report->plan, "drop_at_most")) <= report->drop_most)
            return json_number_value(factor);
    }
    return NAN;
}

/* What would be chosen if drops did not count. */
static void write_tempting(const spw_report *report, const spw_report_row *row, FILE *out) {
    const double factor = factor_of(report, row), most = 100.0 * report->drop_most;
    (void)fputs("<p class=\"doubt\">", out);
    (void)fputs(row->timed ? "Faster, but with too many drops: " : "Smaller, but with too many drops: ", out);
    spw_report_write_name(report, row, out);
    (void)fputs(", ", out);
    write_figures(row, out);
    (void)fprintf(out, ", more than the %g %% that may be dropped (<code>--drop-at-most</code>). ", most);
    if (isfinite(factor)) {
        (void)fputs("It stays within that from a factor of ", out);
        spw_html_number(out, factor, "%.3f", factor);
        (void)fputs(" on.</p>", out);
    } else {
        (void)fprintf(
            out, "What factor it needs to stay within that: <code>spillway %s --drop-at-most %g</code>.</p>",
            report->planned ? "plan" : "replay", most);
    }
}

/* Of those that fit: the best that drops little, the best that drops nothing, and what would be chosen if drops did not
 * count. */
static void write_choices(const spw_report *report, FILE *out) {
    const spw_report_row *any = spw_report_best(report, report->drop_most, false),
                         *whole = spw_report_best(report, 0.0, false),
                         *tempting = spw_report_best(report, 1.0, false);
    const bool batches = spw_report_has_batches(report), timed = tempting->timed;
    if (any == NULL) {
        (void)fprintf(out, "<p>Nothing fits that drops at most %g %% of the assignments.</p>",
                      100.0 * report->drop_most);
    } else if (any != whole && (timed || whole == NULL)) {
        write_choice(report,
                     timed     ? "The fastest that fits, with drops"
                     : batches ? "The largest batch, with drops"
                               : "Least memory, with drops",
                     any, out);
        write_doubt(report, any, report->drop_most, out);
    }
    if (whole != NULL) {
        const char *untimed = batches ? "The largest batch without drops" : "Least memory without drops";
        write_choice(report,
                     !whole->timed  ? untimed
                     : any == whole ? "The fastest that fits"
                                    : "Without drops",
                     whole, out);
        write_doubt(report, whole, 0.0, out);
    } else if (any != NULL) {
        (void)fputs("<p>No point without drops fits.</p>", out);
    }
    if (tempting->fraction > report->drop_most && (timed || any == NULL))
        write_tempting(report, tempting, out);
    if (!timed)
        (void)fprintf(out,
                      "<p class=\"doubt\">Which is fastest is not known: this %s has no step times "
                      "(<code>--stack</code> has them for programs that XLA compiles).</p>",
                      report->planned ? "plan" : "replay");
}

static void write_precision(const spw_report *report, FILE *out) {
    if (report->precision_note == NULL) return;
    (void)fputs("<p class=\"doubt\">", out);
    spw_html_text(out, report->precision_note);
    (void)fputs(".</p>", out);
}

/* What of a framework's file is in no figure, setting by setting. */
static void write_uncounted(const spw_report *report, FILE *out) {
    static const struct {
        const char *key, *begin;
    } kinds[] = {{"may_need_more", "More memory than these figures may be needed: "},
                 {"needs_less", "The file needs less memory than these figures: "}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *text = uncounted(report, kinds[i].key);
        if (text == NULL) continue;
        (void)fprintf(out, "<p class=\"doubt\">%s", kinds[i].begin);
        spw_html_text(out, text);
        (void)fputs(".</p>", out);
    }
}

/* The GPUs above are those of one replica of a framework's mesh. */
static void write_replicas(const spw_report *report, FILE *out) {
    const json_t *parallel = json_object_get(report->settings, "parallel");
    const double replicas = json_number_value(json_object_get(parallel, "mesh_replicas"));
    if (!(replicas > 1.0)) return;
    (void)fprintf(
        out,
        "<p>These GPUs are one of %.0f replicas. Tokens a day, days, GPU-hours and cost are of all %.0f "
        "GPUs, with the time of the sum of gradients over replicas where nothing hides it.</p>",
        replicas, replicas * report->gpus);
}

/* What of the routing is not the job's own. */
static void write_routing(const spw_report *report, FILE *out) {
    const bool made = spw_report_is_generated(report);
    const char *word = NULL;
    for (size_t i = 0; i < report->rows && word == NULL; i++)
        if (strcmp(report->row[i].evidence, "exact") != 0) word = report->row[i].evidence;
    if (!made && word == NULL) return;
    (void)fputs("<p class=\"doubt\">", out);
    if (made) (void)fputs("The routing is synthetic: it was generated, not recorded. ", out);
    if (word != NULL) {
        (void)fputs(made ? "It is not of this job: it is <b>" : "The trace is not of this job: it is <b>",
                    out);
        spw_html_text(out, word);
        (void)fputs("</b> to fit it (see &ldquo;What this rests on&rdquo; below).", out);
    }
    (void)fputs("</p>", out);
}

/* Which rows are said to fit by a lower bound, and what the newest stack says of them. */
static void write_live(const spw_report *report, FILE *out) {
    const spw_report_row *doubted = NULL;
    char text[SPW_NEWEST_TEXT];
    bool live = false;
    for (size_t i = 0; i < report->rows; i++) {
        const spw_report_row *row = &report->row[i];
        live = live || (spw_report_row_live(row) && spw_report_row_fits(row));
        if (spw_newest_arena_differs(&row->newest, row->verdict)) doubted = row;
    }
    if (live)
        (void)fputs("<p class=\"doubt\">Memory is what must be live, a lower bound: what a compiler or an "
                    "allocator adds is not in it.</p>",
                    out);
    if (doubted == NULL) return;
    (void)fputs("<p class=\"doubt\">By the arena of ", out);
    spw_html_text(out, doubted->newest.stack);
    (void)fputs(", the newest stack, which <code>spillway plan</code> takes by itself (<code>--stack</code> "
                "uses it):</p><ul>",
                out);
    for (size_t i = 0; i < report->rows; i++) {
        const spw_report_row *row = &report->row[i];
        if (!spw_newest_arena_differs(&row->newest, row->verdict)) continue;
        (void)fputs("<li>", out);
        spw_report_write_name(report, row, out);
        (void)fprintf(out, " %s</li>", spw_newest_arena_text(&row->newest, text));
    }
    (void)fputs("</ul>", out);
}

/* The end of the first sentence: where what fits is a lower bound, it says so, and how many the newest stack refuses. */
static void write_bound(const spw_report *report, size_t fit, size_t surely, FILE *out) {
    const spw_report_row *refused = NULL;
    size_t live = 0, refusals = 0;
    for (size_t i = 0; i < report->rows; i++) {
        const spw_report_row *row = &report->row[i];
        if (!spw_report_row_fits(row) || !spw_report_row_live(row)) continue;
        live++;
        if (!row->newest.there || row->newest.verdict != SPW_VERDICT_OOM) continue;
        refusals++;
        refused = row;
    }
    if (live > 0) (void)fputs(" by what must be live", out);
    if (refused != NULL) {
        (void)fputs("; by the arena of ", out);
        spw_html_text(out, refused->newest.stack);
        (void)fprintf(out, " %zu of %zu %s not fit", refusals, report->rows, refusals == 1 ? "does" : "do");
    }
    if (surely > 0 && surely < fit)
        (void)fprintf(out, "%s %zu more may not fit", refused != NULL || live > 0 ? ";" : ",", fit - surely);
    (void)fputs(".</p>", out);
}

/* How many fit, or, where none surely does, may. */
static void write_count(const spw_report *report, size_t fit, size_t surely, FILE *out) {
    const char *what = report->splits                   ? "combinations of scheme, split and batch"
                       : spw_report_has_batches(report) ? "combinations of scheme and batch"
                                                        : "schemes";
    if (report->rows == 1) {
        (void)fputs(surely > 0 ? "It fits" : "It may not fit", out);
    } else if (surely == report->rows) {
        (void)fputs(report->planned ? "Every point fits" : "Every scheme fits", out);
    } else {
        (void)fprintf(out, "%zu of %zu %s %s", surely > 0 ? surely : fit, report->rows, what,
                      surely > 0 ? "fit" : "may fit");
    }
    (void)fprintf(out, " on these %.0f GPUs", report->gpus);
}

static void write_least(const spw_report *report, FILE *out) {
    const spw_report_row *least = &report->row[report->least_memory];
    (void)fputs(" Least is missing for ", out);
    spw_report_write_name(report, least, out);
    (void)fprintf(out, ": %.1f GiB a GPU, and %.1f may be used.", least->held.most / GIB,
                  least->budget / GIB);
}

/* The hottest expert and the fullest GPU, with links to their pictures. */
static void write_hottest(const spw_report *report, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    const spw_result_picture *row = spw_report_first(report)->picture;
    if (!report->pictured || row == NULL || !((double)row->worst_rows > row->worst_mean)) return;
    const char *mark = report->mark != NULL ? report->mark : "";
    (void)fputs("<p>", out);
    if (p->hot_ratio > 0.0) {
        (void)fprintf(out,
                      "The hottest expert is <a href=\"#experts%s\">%zu of layer %" PRId32
                      "</a> in step %" PRId64 ", chosen ",
                      mark, p->hot_expert, p->hot_layer, p->hot_step);
        spw_html_number(out, p->hot_ratio, "%.2f", p->hot_ratio);
        (void)fputs(" times as often as the mean. ", out);
    }
    (void)fprintf(
        out, "The fullest GPU is <a href=\"#gpus%s\">%zu in layer %" PRId32 "</a> of step %" PRId64 ", with ",
        mark, row->worst_rank, row->worst_layer, row->worst_step);
    spw_html_number(out, (double)row->worst_rows, "%.0f", (double)row->worst_rows);
    (void)fprintf(out, " rows, %.2f times the mean (<a href=\"#rows%s\">all layers</a>).</p>",
                  (double)row->worst_rows / row->worst_mean, mark);
}

void spw_report_write_answer(const spw_report *report, FILE *out) {
    const bool several = report->rows > 1;
    size_t fit = 0, surely = 0;
    for (size_t i = 0; i < report->rows; i++) {
        const spw_report_row *row = &report->row[i];
        fit += spw_report_row_fits(row);
        surely += spw_report_row_fits(row) && row->surely_fits;
    }
    (void)fputs("<section class=\"answer\"><p class=\"lead\">", out);
    if (fit == 0) {
        (void)fprintf(out, "%s on these %.0f GPUs.", several ? "Nothing fits" : "It does not fit",
                      report->gpus);
        if (report->answered) write_least(report, out);
        (void)fputs("</p>", out);
    } else {
        write_count(report, fit, surely, out);
        write_bound(report, fit, surely, out);
    }
    if (!report->answered)
        (void)fputs(
            "<p class=\"doubt\">This result is of a version before 1.2, which does not say which row is "
            "best, which surely fits and what the coefficients were not fitted on; replay again to have "
            "that here.</p>",
            out);
    write_live(report, out);
    if (report->answered && fit > 0) write_choices(report, out);
    write_searches(report, out);
    if (report->planned) spw_report_write_misfits(report, out);
    write_hottest(report, out);
    write_replicas(report, out);
    write_uncounted(report, out);
    write_precision(report, out);
    write_routing(report, out);
    (void)fputs("</section>", out);
}
