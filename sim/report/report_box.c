/* The answer of a search in short: what its best point costs, the one that surely fits, and what would change the answer. */
#include "sim/print/plural.h"
#include "sim/print/table.h"
#include "sim/report/html.h"
#include "sim/report/report_found.h"
#include "sim/report/report_page.h"
#include "sim/report/search_point.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0, SEEN = 0.005; /* SEEN: a change that is worth a word */

static void row_begin(const char *name, FILE *out) {
    (void)fprintf(out, "<tr><th scope=\"row\">%s</th><td>", name);
}
static void row_end(FILE *out) { (void)fputs("</td></tr>", out); }

static double speed_of(const json_t *p) { return spw_point_number(p, "tokens_per_s_per_gpu"); }

/* "16,421 (13,444 to 20,056)" of what training costs. */
static void write_cost(const json_t *cost, const char *key, FILE *out) {
    char low[64], high[64];
    (void)snprintf(low, sizeof low, "%s_low", key);
    (void)snprintf(high, sizeof high, "%s_high", key);
    (void)fputs("<b>", out);
    spw_html_amount(out, spw_point_number(cost, key));
    (void)fputs("</b> (", out);
    spw_html_amount(out, spw_point_number(cost, low));
    (void)fputs(" to ", out);
    spw_html_amount(out, spw_point_number(cost, high));
    (void)fputs(")", out);
}

static void write_speed(const json_t *p, FILE *out) {
    char span[SPW_SPAN_TEXT];
    if (isnan(speed_of(p))) return;
    row_begin("speed", out);
    (void)fputs("<b>", out);
    spw_html_number(out, speed_of(p), speed_of(p) < 10.0 ? "%.2f" : "%.0f", speed_of(p));
    (void)fprintf(out, "</b> tokens/s a GPU (%s)",
                  spw_span_text(spw_point_number(p, "tokens_per_s_low"),
                                spw_point_number(p, "tokens_per_s_high"), " to ", span));
    row_end(out);
}

static void write_costs(const json_t *root, const json_t *p, FILE *out) {
    const json_t *cost = json_object_get(p, "cost");
    const double price = spw_point_number(root, "price_per_gpu_hour");
    if (isnan(spw_point_number(cost, "days"))) return;
    row_begin("time", out);
    write_cost(cost, "days", out);
    (void)fputs(" days for ", out);
    spw_html_amount(out, spw_point_number(root, "tokens"));
    (void)fputs(" tokens", out);
    if (json_is_true(json_object_get(root, "tokens_unsaid"))) (void)fputs(SPW_TOKENS_UNSAID, out);
    row_end(out);
    if (isnan(spw_point_number(cost, "money"))) return;
    row_begin("cost", out);
    write_cost(cost, "money", out);
    if (price > 0.0) (void)fprintf(out, " at %.2f a GPU-hour", price);
    row_end(out);
}

static spw_verdict verdict_of(const json_t *p) {
    spw_verdict verdict = SPW_VERDICT_FITS;
    while (verdict < SPW_VERDICT_OOM && strcmp(spw_point_words(p, "verdict"), spw_verdict_name(verdict)) != 0)
        verdict++;
    return verdict;
}

static void write_memory(const json_t *p, FILE *out) {
    const double reserved = spw_point_number(p, "reserved_bytes"), live = spw_point_number(p, "peak_bytes"),
                 held = reserved > live ? reserved : live;
    row_begin("memory", out);
    (void)fputs("<b>", out);
    spw_html_number(out, held, "%.1f", held / GIB);
    (void)fprintf(out, "</b> of %.1f GiB%s: it %s", spw_point_number(p, "budget_bytes") / GIB,
                  reserved > live                    ? ", as PyTorch reserves it"
                  : spw_point_is_live_lower_bound(p) ? " at least, a lower bound"
                                                     : "",
                  spw_verdict_sentence(verdict_of(p), spw_point_is_sure(p)));
    row_end(out);
}

/* "3.2 % slower a GPU" */
static void write_slower(const json_t *p, const json_t *best, FILE *out) {
    const double change = speed_of(p) / speed_of(best) - 1.0;
    if (isnan(change)) return;
    (void)fprintf(out, ", %.1f&nbsp;%% %s a GPU", 100.0 * fabs(change), change < 0.0 ? "slower" : "faster");
}

/* The point that surely fits, and what it costs more. */
static void write_sure(const json_t *root, const json_t *best, FILE *out) {
    const json_t *sure = json_object_get(root, "best_sure"), *cost = json_object_get(sure, "cost");
    const double more =
        spw_point_number(cost, "money") - spw_point_number(json_object_get(best, "cost"), "money");
    row_begin("surely fits", out);
    if (!json_is_object(sure)) {
        (void)fputs("none of the points", out);
    } else if (spw_point_is_sure(best)) {
        (void)fputs("this point", out);
    } else {
        spw_report_write_point_name(sure, out);
        write_slower(sure, best, out);
        if (!isnan(spw_point_number(cost, "days"))) {
            (void)fputs(": ", out);
            write_cost(cost, "days", out);
            (void)fputs(" days", out);
        }
        if (!isnan(more)) {
            (void)fputs(", cost ", out);
            write_cost(cost, "money", out);
            (void)fputs(more >= 0.0 ? ", so the certainty costs " : ", which is less by ", out);
            spw_html_amount(out, fabs(more));
        }
    }
    row_end(out);
}

/* --- What would change the answer --- */

static bool is_same(const json_t *a, const json_t *b) {
    return strcmp(spw_point_words(a, "options"), spw_point_words(b, "options")) == 0;
}

/* The point of the front, other than `best`, that is largest in `key` and fits, or may not fit where so asked; NULL: none. */
static const json_t *largest(const json_t *root, const json_t *best, const char *key, bool fitting) {
    const json_t *front = json_object_get(root, "front"), *p = NULL, *found = NULL;
    size_t i = 0;
    json_array_foreach(front, i, p) {
        const double value = spw_point_number(p, key);
        if (isnan(value) || is_same(p, best) || (verdict_of(p) == SPW_VERDICT_FITS) != fitting) continue;
        if (found == NULL || value > spw_point_number(found, key)) found = p;
    }
    return found;
}

static void write_next(const json_t *next, const json_t *best, FILE *out) {
    const bool overlap =
        spw_point_number(next, "tokens_per_s_high") > spw_point_number(best, "tokens_per_s_low") &&
        spw_point_number(best, "tokens_per_s_high") > spw_point_number(next, "tokens_per_s_low");
    (void)fputs("<li><b>A run.</b> The next is ", out);
    spw_report_write_point_name(next, out);
    write_slower(next, best, out);
    (void)fputs(overlap ? ". The intervals overlap: a short run of both decides.</li>"
                        : ". The intervals do not overlap.</li>",
                out);
}

static void write_tight(const json_t *tight, const json_t *best, FILE *out) {
    if (!(speed_of(tight) > speed_of(best) * (1.0 + SEEN))) return;
    (void)fputs("<li><b>Memory.</b> ", out);
    spw_report_write_point_name(tight, out);
    write_slower(tight, best, out);
    (void)fputs(", may not fit.</li>", out);
}

/* Another point wins under balanced routing, or the same one is faster. */
static void write_balanced(const json_t *root, const json_t *best, FILE *out) {
    static const char key[] = "balanced_tokens_per_s_per_gpu";
    const json_t *other = largest(root, best, key, true);
    const double own = spw_point_number(best, key), gain = own / speed_of(best) - 1.0;
    if (other != NULL && spw_point_number(other, key) > own * (1.0 + SEEN)) {
        (void)fputs("<li><b>Routing.</b> With balanced routing ", out);
        spw_report_write_point_name(other, out);
        (void)fprintf(out, " is faster than this point, by %.1f&nbsp;%% a GPU. ",
                      100.0 * (spw_point_number(other, key) / own - 1.0));
    } else if (gain > SEEN) {
        (void)fprintf(
            out,
            "<li><b>Routing.</b> With balanced routing this point is %.1f&nbsp;%% faster, and still "
            "the fastest. ",
            100.0 * gain);
    } else {
        return;
    }
    (void)fputs("<code>--trace</code> takes the routing of your own model.</li>", out);
}

static void write_counts(const json_t *root, FILE *out) {
    const json_t *fates = json_object_get(root, "fates");
    const double drops = spw_point_number(fates, "replayed_drops"),
                 oom = spw_point_number(fates, "replayed_oom");
    if (drops > 0.0)
        (void)fprintf(out,
                      "<li><b>Drops.</b> %.0f point%s more than %g&nbsp;%% of the assignments "
                      "(<code>--drop-at-most</code>).</li>",
                      drops, drops > 1.0 ? "s drop" : " drops",
                      100.0 * spw_point_number(root, "drop_at_most"));
    if (oom > 0.0)
        (void)fprintf(
            out,
            "<li><b>More memory a GPU.</b> %.0f point%s that looked good did not fit when replayed.</li>",
            oom, spw_plural((size_t)oom));
}

void spw_report_write_other_schemes(const json_t *answer, FILE *out) {
    const json_t *others = json_object_get(answer, "other_schemes"), *other = NULL;
    size_t i = 0;
    json_array_foreach(others, i, other) {
        const char *scheme = json_string_value(json_object_get(other, "scheme")),
                   *settings = json_string_value(json_object_get(other, "settings"));
        if (scheme == NULL) continue;
        (void)fputs("<li><b>Scheme.</b> ", out);
        spw_html_name(out, scheme);
        if (spw_point_number(other, "expert_parallel") > 0.0)
            (void)fprintf(out, " with EP %.0f", spw_point_number(other, "expert_parallel"));
        (void)fprintf(out, " would be %.3g times as fast (%.3g to %.3g)",
                      spw_point_number(other, "times_as_fast"), spw_point_number(other, "times_as_fast_low"),
                      spw_point_number(other, "times_as_fast_high"));
        if (settings != NULL && settings[0] != '\0') {
            (void)fputs(": <code>", out);
            spw_html_text(out, settings);
            (void)fputs("</code>", out);
        }
        (void)fputs(".</li>", out);
    }
}

static void write_changes(const json_t *root, const json_t *best, FILE *out) {
    const json_t *next = largest(root, best, "tokens_per_s_per_gpu", true),
                 *tight = largest(root, best, "tokens_per_s_per_gpu", false);
    (void)fputs("<h3>What would change the answer</h3><ul>", out);
    spw_report_write_other_schemes(root, out);
    if (tight != NULL) write_tight(tight, best, out);
    if (next != NULL) write_next(next, best, out);
    write_balanced(root, best, out);
    write_counts(root, out);
    if (json_array_size(json_object_get(best, "outside_fit")) > 0)
        (void)fputs(
            "<li><b>What was not fitted.</b> Figures of this point rest on more than was fitted; below.</li>",
            out);
    (void)fputs("<li><b>The space.</b> Other splits, batches and policies: <code>--over</code>.</li></ul>",
                out);
}

void spw_report_write_box(const json_t *root, const json_t *best, FILE *out) {
    (void)fputs("<div class=\"wide\"><table class=\"facts\"><tbody>", out);
    write_speed(best, out);
    write_costs(root, best, out);
    write_memory(best, out);
    write_sure(root, best, out);
    (void)fputs("</tbody></table></div>", out);
    write_changes(root, best, out);
}
