/* Two results side by side: their best points, what differs in the jobs, and the points that both have. */
#include "sim/print/plural.h"
#include "sim/print/table.h"
#include "sim/report/html.h"
#include "sim/report/report_page.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { SIDES = 2, PATH = 160 };

/* A side: its report, or the plan of the best point of a search, and the row that is set beside the other. */
typedef struct compared {
    const char *letter, *name; /* of the file */
    const spw_report *report;
    const spw_report_row *row;
} compared;

/* --- Figures --- */

#define AT(field) offsetof(spw_report_row, field)
enum { NO_END = 0 }; /* no figure is the first field */

/* `format` NULL: an amount; `unit`: what the figure is divided by. `timed`: only where there is a time. */
static const struct {
    const char *name, *format;
    double unit;
    size_t value, low, high;
    bool timed;
} figures[] = {
    {"tokens/s a GPU", "%.0f", 1.0, AT(tokens), AT(tokens_low), AT(tokens_high), true},
    {"step, s", "%.3f", 1.0, AT(step_s), AT(low_s), AT(high_s), true},
    {"step over balanced", "%.3f&times;", 1.0, AT(over_balanced.value), AT(over_balanced.low),
     AT(over_balanced.high), true},
    {"tokens a day", NULL, 1.0, AT(cost.tokens_per_day.value), AT(cost.tokens_per_day.low),
     AT(cost.tokens_per_day.high), true},
    {"days", "%.1f", 1.0, AT(cost.days.value), AT(cost.days.low), AT(cost.days.high), true},
    {"GPU-hours", NULL, 1.0, AT(cost.gpu_hours.value), AT(cost.gpu_hours.low), AT(cost.gpu_hours.high), true},
    {"cost", NULL, 1.0, AT(cost.money.value), AT(cost.money.low), AT(cost.money.high), true},
    {"GiB a GPU", "%.1f", 1024.0 * 1024.0 * 1024.0, AT(held.most), AT(low), AT(high), false},
    {"GiB reserved by PyTorch", "%.1f", 1024.0 * 1024.0 * 1024.0, AT(reserved.most), NO_END, NO_END, false},
    {"GiB that may be used", "%.1f", 1024.0 * 1024.0 * 1024.0, AT(budget), NO_END, NO_END, false},
    {"GB out of a GPU in a step", "%.1f", 1e9, AT(whole_bytes), NO_END, NO_END, false},
};
enum { FIGURES = sizeof figures / sizeof *figures, SPEED = 0, DAYS = 4, MONEY = 6 };

static double at(const spw_report_row *row, size_t offset) {
    double value = NAN;
    if (offset != NO_END) memcpy(&value, (const char *)row + offset, sizeof value);
    return value;
}

static double figure_of(const compared *s, size_t which) {
    const double value = at(s->row, figures[which].value);
    return (figures[which].timed && !s->row->timed) || !(value > 0.0) ? NAN : value;
}

static void write_figure(const compared *s, size_t which, FILE *out) {
    const double value = figure_of(s, which), low = at(s->row, figures[which].low),
                 high = at(s->row, figures[which].high);
    char span[SPW_SPAN_TEXT];
    if (isnan(value)) {
        (void)fputs("&#8211;", out);
        return;
    }
    if (figures[which].format != NULL)
        spw_html_number(out, value, figures[which].format, value / figures[which].unit);
    else
        spw_html_amount(out, value);
    if (!(high > low) || !(low > 0.0)) return;
    (void)fputs("<br><small>", out);
    if (figures[which].format != NULL) {
        (void)fputs(spw_span_text(low / figures[which].unit, high / figures[which].unit, " to ", span), out);
    } else {
        spw_html_amount(out, low);
        (void)fputs(" to ", out);
        spw_html_amount(out, high);
    }
    (void)fputs("</small>", out);
}

/* "+12.3 %" of b over a. */
static void write_change(double a, double b, FILE *out) {
    (void)fputs("<td class=\"number\">", out);
    if (isnan(a) || isnan(b) || !(a > 0.0))
        (void)fputs("&#8211;", out);
    else
        spw_html_number(out, b / a, fabs(b / a - 1.0) < 5e-4 ? "same" : "%+.1f&nbsp;%%",
                        100.0 * (b / a - 1.0));
    (void)fputs("</td>", out);
}

/* --- The table of both --- */

static void row_begin(const char *name, FILE *out) {
    (void)fprintf(out, "<tr><th scope=\"row\">%s</th>", name);
}

static void write_point(const compared *s, FILE *out) {
    (void)fputs("<td>", out);
    spw_html_text(out, s->row->scheme);
    (void)fprintf(out, "<br><small>EP %.0f &times; FSDP %.0f", s->row->expert, s->row->fsdp);
    if (s->report->pipeline > 1.0) (void)fprintf(out, " &times; pipeline %.0f", s->report->pipeline);
    (void)fprintf(out, ", %.0f sequence%s of %.0f, remat ", s->row->sequences,
                  spw_plural((size_t)s->row->sequences), s->report->sequence_length);
    spw_html_text(out, s->report->remat);
    (void)fprintf(out, ", %.0f GPUs</small></td>", s->report->gpus);
}

static void write_table(const compared side[SIDES], FILE *out) {
    (void)fputs("<section><h2>Side by side</h2><div class=\"wide\"><table class=\"schemes "
                "compare\"><thead><tr><th></th>"
                "<th>A</th><th>B</th><th>B over A</th></tr></thead><tbody>",
                out);
    row_begin("the best of it", out);
    for (int i = 0; i < SIDES; i++) write_point(&side[i], out);
    (void)fputs("<td></td></tr>", out);
    row_begin("memory", out);
    for (int i = 0; i < SIDES; i++) {
        (void)fputs("<td class=\"number\">", out);
        spw_report_write_verdict(side[i].row, out);
        (void)fputs("</td>", out);
    }
    (void)fputs("<td></td></tr>", out);
    for (size_t f = 0; f < FIGURES; f++) {
        const double a = figure_of(&side[0], f), b = figure_of(&side[1], f);
        if (isnan(a) && isnan(b)) continue;
        row_begin(figures[f].name, out);
        for (int i = 0; i < SIDES; i++) {
            (void)fputs("<td class=\"number\">", out);
            write_figure(&side[i], f, out);
            (void)fputs("</td>", out);
        }
        write_change(a, b, out);
        (void)fputs("</tr>", out);
    }
    row_begin("dropped", out);
    for (int i = 0; i < SIDES; i++)
        (void)fprintf(out, "<td class=\"number\"><data value=\"%.17g\">%.2f&nbsp;%%</data></td>",
                      side[i].row->fraction, 100.0 * side[i].row->fraction);
    (void)fputs("<td></td></tr></tbody></table></div>", out);
    (void)fputs("<p class=\"note\">Below a figure: its interval. Doubts that both share, such as the rate of "
                "a link, are in "
                "both intervals; B over A is the ratio of the figures.</p></section>",
                out);
}

/* --- The answer --- */

static void write_side(const compared *s, FILE *out) {
    (void)fprintf(out, "<p><b>%s</b>, ", s->letter);
    spw_html_text(out, s->name);
    (void)fputs(": ", out);
    spw_html_text(out, s->report->model);
    (void)fputs(" on ", out);
    spw_html_text(out, s->report->cluster);
    (void)fputs(", <b>", out);
    spw_html_text(out, s->row->scheme);
    (void)fprintf(out, "</b>. It %s: %.1f GiB", spw_verdict_sentence(s->row->verdict, s->row->surely_fits),
                  s->row->held.most / GIB);
    if (s->row->replayed) (void)fprintf(out, " live, %.1f reserved", s->row->reserved.most / GIB);
    (void)fprintf(out, " of %.1f.</p>", s->row->budget / GIB);
}

/* "B is 12.3 % faster a GPU than A"; from twice on, "B is 2.5 times as fast a GPU as A". */
static void write_lead(const compared side[SIDES], FILE *out) {
    const double a = figure_of(&side[0], SPEED), b = figure_of(&side[1], SPEED), change = b / a - 1.0;
    (void)fputs("<p class=\"lead\">", out);
    if (isnan(a) || isnan(b)) {
        (void)fputs("Which is faster is not known: one has no time.</p>", out);
        return;
    }
    if (fabs(change) < 5e-4)
        (void)fputs("A and B are equally fast a GPU.</p>", out);
    else if (b > 2.0 * a || a > 2.0 * b)
        (void)fprintf(out, "%c is %.3g times as fast a GPU as %c.</p>", b > a ? 'B' : 'A',
                      fmax(a, b) / fmin(a, b), b > a ? 'A' : 'B');
    else
        (void)fprintf(out, "B is %.1f&nbsp;%% %s a GPU than A.</p>", 100.0 * fabs(change),
                      change > 0.0 ? "faster" : "slower");
    if (side[0].row->tokens_high > side[1].row->tokens_low &&
        side[1].row->tokens_high > side[0].row->tokens_low && fabs(change) >= 5e-4)
        (void)fputs("<p class=\"doubt\">Their intervals overlap, so the order is not certain.</p>", out);
}

/* A scheme that drops is faster for it: said beside the speed. */
static void write_drops(const compared side[SIDES], FILE *out) {
    const double a = side[0].row->fraction, b = side[1].row->fraction;
    if (!(a > 0.0) && !(b > 0.0)) return;
    (void)fputs("<p class=\"doubt\">", out);
    for (int i = 0; i < SIDES; i++) {
        (void)fprintf(out, i == 0 ? "%s drops " : ", %s drops ", side[i].letter);
        if (side[i].row->fraction > 0.0)
            spw_html_number(out, side[i].row->fraction, "%.2f&nbsp;%%", 100.0 * side[i].row->fraction);
        else
            (void)fputs("none", out);
    }
    (void)fputs(" of the choices of its tokens.</p>", out);
}

static void write_costs(const compared side[SIDES], FILE *out) {
    const double a = figure_of(&side[0], MONEY), b = figure_of(&side[1], MONEY),
                 days_a = figure_of(&side[0], DAYS), days_b = figure_of(&side[1], DAYS);
    if (isnan(days_a) || isnan(days_b)) return;
    (void)fprintf(out,
                  "<p>Training takes <data value=\"%.17g\">%.1f</data> days by A and <data "
                  "value=\"%.17g\">%.1f</data> by B",
                  days_a, days_a, days_b, days_b);
    if (!isnan(a) && !isnan(b)) {
        (void)fputs(", and costs <b>", out);
        spw_html_amount(out, a);
        (void)fputs("</b> by A and <b>", out);
        spw_html_amount(out, b);
        (void)fputs("</b> by B", out);
    }
    (void)fputs(".</p>", out);
    if (side[0].report->tokens > side[1].report->tokens || side[1].report->tokens > side[0].report->tokens)
        (void)fputs("<p class=\"doubt\">The two were asked about different numbers of tokens.</p>", out);
}

/* --- What differs --- */

static void write_scalar(const json_t *value, FILE *out) {
    if (json_is_string(value))
        spw_html_text(out, json_string_value(value));
    else if (json_is_integer(value))
        (void)fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        (void)fprintf(out, "%g", json_real_value(value));
    else
        (void)fputs(json_is_true(value) ? "true" : json_is_false(value) ? "false" : "&#8211;", out);
}

static void write_value(const json_t *value, FILE *out) {
    const json_t *item = NULL;
    size_t i = 0;
    (void)fputs("<td>", out);
    if (!json_is_array(value)) write_scalar(value, out);
    json_array_foreach(value, i, item) {
        (void)fputs(i > 0 ? ", " : "", out);
        write_scalar(item, out);
    }
    if (json_is_array(value) && i == 0) (void)fputs("none", out);
    (void)fputs("</td>", out);
}

static void write_difference(const char *key, const json_t *a, const json_t *b, size_t *found, FILE *out) {
    if (*found == 0)
        (void)fputs("<section><h2>What differs in the question</h2><div class=\"wide\"><table "
                    "class=\"sources compare\">"
                    "<thead><tr><th>key</th><th>A</th><th>B</th></tr></thead><tbody>",
                    out);
    ++*found;
    (void)fputs("<tr><td>", out);
    spw_html_text(out, key);
    (void)fputs("</td>", out);
    write_value(a, out);
    write_value(b, out);
    (void)fputs("</tr>", out);
}

static bool same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) <= json_number_value(b) && json_number_value(a) >= json_number_value(b);
    return json_equal(a, b) != 0;
}

/* Keys of `a` that `b` has with another value, or not; with `lacking`, only those that `b` lacks. */
static void write_differences(const char *before, json_t *a, const json_t *b, bool lacking, size_t *found,
                              FILE *out) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(a, key, value) {
        const json_t *other = json_object_get(b, key);
        char path[PATH];
        (void)snprintf(path, sizeof path, "%s%.60s", before, key);
        if (json_is_object(value) && strlen(path) + 2 < PATH / 2) {
            (void)snprintf(path + strlen(path), sizeof path - strlen(path), ".");
            write_differences(path, value, other, lacking, found, out);
        } else if (lacking && other == NULL) {
            write_difference(path, NULL, value, found, out);
        } else if (!lacking && !same(value, other)) {
            write_difference(path, value, other, found, out);
        }
    }
}

static void write_question(const compared side[SIDES], FILE *out) {
    static const char *const keys[] = {"trace_file", "stack", "seed", "tokens"};
    json_t *job[SIDES];
    size_t found = 0;
    for (int i = 0; i < SIDES; i++) job[i] = json_object_get(side[i].report->settings, "job");
    if (job[0] == NULL || job[1] == NULL) {
        (void)fputs(
            "<section><h2>What differs in the question</h2><p>Not known: a file of an earlier version does "
            "not say its whole job. Ask again to have it here.</p></section>",
            out);
        return;
    }
    write_differences("", job[0], job[1], false, &found, out);
    write_differences("", job[1], job[0], true, &found, out);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *a = json_object_get(side[0].report->settings, keys[k]),
                     *b = json_object_get(side[1].report->settings, keys[k]);
        if (a != NULL && b != NULL && !same(a, b)) write_difference(keys[k], a, b, &found, out);
    }
    if (found > 0)
        (void)fputs("</tbody></table></div></section>", out);
    else
        (void)fputs("<section><h2>What differs in the question</h2><p>Nothing: both ask about the same job, "
                    "routing and "
                    "software.</p></section>",
                    out);
}

/* --- The page --- */

static compared side_of(const char *letter, const spw_report *report, const char *name) {
    const spw_report *whole = report->searched && report->points > 0 ? &report->point[0] : report;
    return (compared){letter, name, whole, spw_report_first(whole)};
}

void spw_report_write_compared(const spw_report *a, const char *a_name, const spw_report *b,
                               const char *b_name, FILE *out) {
    const compared side[SIDES] = {side_of("A", a, a_name), side_of("B", b, b_name)};
    const spw_report_beside words = {"Points of both", "A", "B", NULL};
    (void)fputs("<header><h1>A beside B</h1><p>The best point of each of two results.</p></header><section "
                "class=\"answer\">",
                out);
    write_lead(side, out);
    write_drops(side, out);
    if (strcmp(a->model, b->model) != 0)
        (void)fputs("<p class=\"doubt\">The two train different models.</p>", out);
    for (int i = 0; i < SIDES; i++) write_side(&side[i], out);
    write_costs(side, out);
    (void)fputs("</section>", out);
    write_table(side, out);
    write_question(side, out);
    if (!a->searched && !b->searched) spw_report_write_beside(a, b, &words, out);
}
