/* The table of a search's page: points that no other beats. */
#include "sim/print/table.h"
#include "sim/report/html.h"
#include "sim/report/report_page.h"
#include "sim/report/search_point.h"

#include <math.h>
#include <string.h>

enum { MOST_LISTED = 40, LETTERS = 26, MOST_REASONS = 4 * LETTERS };

/* --- Reasons: what the figures of a point rest on beyond what was fitted --- */

typedef struct reasons {
    const char *text[MOST_REASONS];
    size_t rows[MOST_REASONS]; /* that have it */
    size_t letter[MOST_REASONS], count, letters;
} reasons;

static size_t place_of(const reasons *all, const char *text) {
    size_t i = 0;
    while (i < all->count && strcmp(all->text[i], text) != 0) i++;
    return i;
}

/* Memory and time may have the same reason, which counts once. */
static bool has(const json_t *point, const char *text) {
    const json_t *item = NULL;
    size_t i = 0;
    json_array_foreach(json_object_get(point, "outside_fit"), i, item) {
        if (strcmp(spw_point_words(item, "feature"), text) == 0) return true;
    }
    return false;
}

static void gather(const json_t *list, size_t points, reasons *all) {
    *all = (reasons){.count = 0};
    for (size_t p = 0; p < points; p++) {
        const json_t *point = json_array_get(list, p), *item = NULL;
        size_t i = 0;
        json_array_foreach(json_object_get(point, "outside_fit"), i, item) {
            const char *text = spw_point_words(item, "feature");
            if (text[0] != '\0' && place_of(all, text) == all->count && all->count < MOST_REASONS)
                all->text[all->count++] = text;
        }
        for (i = 0; i < all->count; i++) all->rows[i] += has(point, all->text[i]);
    }
    for (size_t i = 0; i < all->count; i++)
        if (all->rows[i] < points) all->letter[i] = ++all->letters;
}

/* a, b, ... z, a1, b1, ... */
static void write_letter(size_t letter, FILE *out) {
    const size_t turn = (letter - 1) / LETTERS;
    (void)fputc((int)('a' + (letter - 1) % LETTERS), out);
    if (turn > 0) (void)fprintf(out, "%zu", turn);
}

static void write_legend(const reasons *all, FILE *out) {
    size_t said = 0;
    for (size_t i = 0; i < all->count; i++) {
        if (all->letter[i] > 0) continue;
        (void)fputs(said++ == 0 ? "<p class=\"note\">Outside the fit, every point: " : "; ", out);
        spw_html_text(out, all->text[i]);
    }
    if (said > 0) (void)fputs(".</p>", out);
    if (all->letters == 0) return;
    (void)fputs("<p class=\"note\">Outside the fit, by letter:</p><ul class=\"legend\">", out);
    for (size_t i = 0; i < all->count; i++) {
        if (all->letter[i] == 0) continue;
        (void)fputs("<li><b>", out);
        write_letter(all->letter[i], out);
        (void)fputs("</b> ", out);
        spw_html_text(out, all->text[i]);
        (void)fputs("</li>", out);
    }
    (void)fputs("</ul>", out);
}

/* --- The table --- */

/* Columns of the table: `of` is where the figure stands, NULL the point itself; `low` and `high` its interval, NULL: none. */
static const struct {
    const char *key, *heading, *of, *format;
    double unit;
    const char *low, *high;
} columns[] = {
    {"gpus", "GPUs", NULL, "%.0f", 1.0, NULL, NULL},
    {"expert_parallel", "EP", NULL, "%.0f", 1.0, NULL, NULL},
    {"fsdp", "FSDP", NULL, "%.0f", 1.0, NULL, NULL},
    {"pipeline", "PP", NULL, "%.0f", 1.0, NULL, NULL},
    {"tensor", "TP", NULL, "%.0f", 1.0, NULL, NULL},
    {"context", "CP", NULL, "%.0f", 1.0, NULL, NULL},
    {"expert_tensor", "ETP", NULL, "%.0f", 1.0, NULL, NULL},
    {"virtual_stages", "VPP", NULL, "%.0f", 1.0, NULL, NULL},
    {"micro_batches", "micro-batches", NULL, "%.0f", 1.0, NULL, NULL},
    {"sequences_per_gpu", "seq/GPU", NULL, "%.0f", 1.0, NULL, NULL},
    {"peak_bytes", "GiB", NULL, "%.1f", 1024.0 * 1024.0 * 1024.0, NULL, NULL},
    {"drop_fraction", "dropped", NULL, "%.2f&nbsp;%%", 0.01, NULL, NULL},
    {"step_tokens", "tokens a step", NULL, NULL, 1.0, NULL, NULL},
    {"step_s", "step s", NULL, "%.3g", 1.0, "step_s_low", "step_s_high"},
    {"tokens_per_s_per_gpu", "tokens/s a GPU", NULL, "%.0f", 1.0, "tokens_per_s_low", "tokens_per_s_high"},
    {"faster_than_next", "faster", NULL, "%.0f&nbsp;%%", 0.01, NULL, NULL},
    {"tokens_per_day", "tokens a day", NULL, NULL, 1.0, NULL, NULL},
    {"days", "days", "cost", "%.1f", 1.0, NULL, NULL},
    {"gpu_hours", "GPU-hours", "cost", NULL, 1.0, NULL, NULL},
    {"money", "cost", "cost", NULL, 1.0, NULL, NULL}};
enum { COLUMNS = sizeof columns / sizeof *columns, MEMORY = 10, FASTER = 15 };

static double figure_of(const json_t *p, size_t column) {
    return spw_point_number(columns[column].of != NULL ? json_object_get(p, columns[column].of) : p,
                            columns[column].key);
}

static bool same_number(double a, double b) { return (isnan(a) && isnan(b)) || (a <= b && a >= b); }

/* What the rows of a table differ in; what they share is said above it. */
typedef struct shown {
    bool column[COLUMNS], scheme, remat, front; /* front: there are several rows */
} shown;

static shown choose(const json_t *front, size_t points) {
    shown s = {.front = points > 1};
    for (size_t i = 0; i < points; i++) {
        const json_t *p = json_array_get(front, i), *first = json_array_get(front, 0);
        for (size_t c = 0; c < COLUMNS; c++)
            s.column[c] = s.column[c] || !same_number(figure_of(p, c), figure_of(first, c)) ||
                          (c >= MEMORY && c != MEMORY + 1 && !isnan(figure_of(p, c)));
        s.scheme = s.scheme || strcmp(spw_point_words(p, "scheme"), spw_point_words(first, "scheme")) != 0;
        s.remat = s.remat || strcmp(spw_point_words(p, "remat"), spw_point_words(first, "remat")) != 0;
    }
    return s;
}

static void write_figure(const json_t *p, size_t c, FILE *out) {
    const double value = figure_of(p, c);
    if (isnan(value)) {
        (void)fputs("&#8211;", out);
    } else if (columns[c].format == NULL) {
        spw_html_amount(out, value);
    } else {
        const double units = value / columns[c].unit;
        spw_html_number(out, value, columns[c].format,
                        c == FASTER ? fmin(round(units), 99.0) : units); /* nothing is certain */
    }
    if (c == MEMORY) (void)fputs(spw_point_is_live_lower_bound(p) ? "*" : "", out);
    if (c == MEMORY) (void)fputs(spw_point_is_sure(p) ? "" : "?", out);
}

/* "All of them: gmm, remat full, PP 1, dropped 0.00 %." */
static void write_shared(const json_t *first, const shown *s, FILE *out) {
    const char *between = "All of them: ";
    if (!s->front) return;
    (void)fputs("<p class=\"note\">", out);
    if (!s->scheme) {
        (void)fputs(between, out);
        spw_point_write(out, first, "scheme");
        between = ", ";
    }
    if (!s->remat) {
        (void)fprintf(out, "%sremat ", between);
        spw_point_write(out, first, "remat");
        between = ", ";
    }
    for (size_t c = 0; c < COLUMNS; c++) {
        if (s->column[c] || isnan(figure_of(first, c))) continue;
        (void)fprintf(out, "%s%s ", between, columns[c].heading);
        write_figure(first, c, out);
        between = ", ";
    }
    (void)fputs(between[0] == ',' ? ".</p>" : "</p>", out);
}

static void write_row(const json_t *p, const shown *s, const reasons *all, FILE *out) {
    char span[SPW_SPAN_TEXT];
    (void)fputs("<tr><th scope=\"row\">", out);
    if (s->scheme || !s->remat) spw_point_write(out, p, "scheme");
    if (s->remat) {
        (void)fputs(s->scheme ? " <small>remat " : "<small>remat ", out);
        spw_point_write(out, p, "remat");
        (void)fputs("</small>", out);
    }
    (void)fputs("</th>", out);
    for (size_t c = 0; c < COLUMNS; c++) {
        if (!s->column[c] && s->front) continue;
        (void)fputs("<td class=\"number\">", out);
        write_figure(p, c, out);
        if (columns[c].low != NULL && !isnan(spw_point_number(p, columns[c].low)))
            (void)fprintf(out, "<br><small>%s</small>",
                          spw_span_text(spw_point_number(p, columns[c].low),
                                        spw_point_number(p, columns[c].high), " to ", span));
        (void)fputs("</td>", out);
    }
    if (all->letters > 0) {
        size_t said = 0;
        (void)fputs("<td>", out);
        for (size_t i = 0; i < all->count; i++) {
            if (all->letter[i] == 0 || !has(p, all->text[i])) continue;
            (void)fputs(said++ > 0 ? " " : "", out);
            write_letter(all->letter[i], out);
        }
        (void)fputs(said > 0 ? "</td>" : "&#8211;</td>", out);
    }
    (void)fputs("</tr>", out);
}

static void write_table(const json_t *front, size_t points, FILE *out) {
    const shown s = choose(front, points);
    reasons all;
    gather(front, points, &all);
    write_shared(json_array_get(front, 0), &s, out);
    (void)fprintf(out, "<div class=\"wide\"><table class=\"schemes\"><thead><tr><th>%s</th>",
                  s.scheme || !s.remat ? "scheme" : "point");
    for (size_t c = 0; c < COLUMNS; c++)
        if (s.column[c] || !s.front) (void)fprintf(out, "<th class=\"number\">%s</th>", columns[c].heading);
    (void)fputs(all.letters > 0 ? "<th>outside the fit</th></tr></thead><tbody>" : "</tr></thead><tbody>",
                out);
    for (size_t i = 0; i < points; i++) write_row(json_array_get(front, i), &s, &all, out);
    (void)fputs("</tbody></table></div>", out);
    write_legend(&all, out);
}

void spw_report_write_front(const json_t *root, FILE *out) {
    const json_t *front = json_object_get(root, "front");
    const size_t points = json_array_size(front), listed = points < MOST_LISTED ? points : MOST_LISTED;
    if (points == 0) return;
    (void)fputs(
        "<section><h2>Points that no other beats</h2><p class=\"note\">In memory, speed, drops and GPUs, the "
        "best first.</p>",
        out);
    write_table(front, listed, out);
    if (points > listed) (void)fprintf(out, "<p class=\"note\">And %zu more.</p>", points - listed);
    (void)fputs(
        "<p class=\"note\">*: what must be live, a lower bound; ?: may not fit. EP: expert-parallel "
        "size; PP: pipeline stages; TP: tensor-parallel size; CP: context-parallel size; ETP: "
        "expert-tensor size; VPP: virtual "
        "stages (blocks of layers) a pipeline stage; seq/GPU: sequences a GPU; faster: how sure it is that "
        "the point is faster than the next slower one on as many GPUs. Below a step and a "
        "speed: their intervals.</p>",
        out);
    if (json_string_length(json_object_get(root, "intervals")) > 0) {
        (void)fputs("<p class=\"note\">Intervals of times: ", out);
        spw_point_write(out, root, "intervals");
        (void)fputs(".</p>", out);
    }
    (void)fputs("</section>", out);
}
