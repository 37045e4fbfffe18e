#include "sim/report/charts/chart.h"
#include "sim/report/html.h"
#include "sim/report/report_timeline.h"

#include <math.h>
#include <string.h>

/* As wide as the page lets it be: what is across is a share of it, what is up and down pixels. */
static const double GIB = 1024.0 * 1024.0 * 1024.0, WIDE = 1000.0,
                    NARROW = 314.0; /* NARROW: pixels on a phone */
enum { HIGH = 240, LARGEST = 6, MOST_COMPONENTS = 1024 };

typedef struct plot {
    const spw_report *report;
    const spw_report_timeline *t;
    double low, high; /* GiB at the bottom and at the top */
    double end;       /* of the optimizer, in passes */
    double budget;    /* GiB; drawn where it lies between low and high */
} plot;

static double y_of(const plot *p, double gib) { return (double)HIGH * (p->high - gib) / (p->high - p->low); }
static double share_of(const plot *p, double at) { return 100.0 * at / p->end; }

/* What never goes leaves the picture where it is most of it, so that the rest can be seen; the budget is in it where it is near. */
static void set_scale(plot *p) {
    const spw_report_line *lines[] = {&p->t->real, &p->t->balanced};
    double most = 0.0, least = INFINITY;
    for (size_t l = 0; l < 2; l++)
        for (size_t i = 0; i < lines[l]->points; i++) {
            most = fmax(most, lines[l]->bytes[i] / GIB);
            least = fmin(least, lines[l]->bytes[i] / GIB);
        }
    if (p->budget < most) least = fmin(least, p->budget);
    p->low = least > 0.5 * most ? fmax(0.0, least - 0.1 * fmax(most - least, 0.05 * most)) : 0.0;
    p->high = most + 0.08 * fmax(most - p->low, 1e-9);
    if (p->budget >= most && p->budget < most + (most - p->low))
        p->high = fmax(p->high, p->budget + 0.04 * (most - p->low));
}

static bool budget_is_near(const plot *p) { return p->budget > p->low && p->budget < p->high; }

/* --- The axes --- */

static double step_of(const plot *p) {
    double tick[SPW_CHART_TICKS];
    return spw_chart_ticks(p->high - p->low, 5, tick) > 1 ? tick[1] : p->high;
}

static void put_up(const plot *p, bool lines, FILE *out) {
    const double step = step_of(p);
    const size_t first = (size_t)ceil(p->low / step);
    for (size_t i = first; (double)i * step < p->high && i < first + SPW_CHART_TICKS; i++) {
        const double at = (double)i * step;
        if (lines) {
            (void)fprintf(out, "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>",
                          y_of(p, at), y_of(p, at));
        } else {
            (void)fprintf(out, "<span style=\"top:%.1fpx\">%.*f</span>", y_of(p, at), spw_chart_digits(step),
                          at);
        }
    }
}

/* Every how many layers one has a number: on a phone they have room beside each other. */
static size_t layer_step(const plot *p) {
    static const size_t steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    double most = 0.0;
    for (size_t l = 0; l < p->t->layers; l++) most = fmax(most, p->t->layer[l]);
    const double room = most >= 100.0 ? 30.0 : most >= 10.0 ? 22.0 : 15.0; /* pixels of so many digits */
    size_t i = 0;
    while (i + 1 < sizeof steps / sizeof *steps && (double)steps[i] * NARROW / p->end < room) i++;
    return steps[i];
}

/* Where the pass of layer i of the stage is, half way through. */
static double pass_of(const plot *p, size_t i, bool backward) {
    return backward ? p->t->end[1] + (double)(p->t->layers - 1 - i) + 0.5 : (double)i + 0.5;
}

static void put_layers(const plot *p, FILE *out) {
    const size_t step = layer_step(p);
    for (int backward = 0; backward < 2; backward++)
        for (size_t i = 0; i < p->t->layers; i += step) { /* forward, the last has the loss beside it */
            const double at = pass_of(p, i, backward), room = (double)step / 2.0;
            const double clear = backward ? at - p->t->end[1] : p->t->end[0] - at;
            if (at > p->end || (i > 0 && step > 1 && clear < room)) continue;
            (void)fprintf(out, "<span style=\"left:%.3f%%\">%.0f</span>", share_of(p, at), p->t->layer[i]);
        }
}

static void put_axes(const plot *p, FILE *out) {
    (void)fputs("<div class=\"up\">", out);
    put_up(p, false, out);
    (void)fputs("</div><div class=\"axis\"><div>", out);
    put_layers(p, out);
    (void)fprintf(out,
                  "</div><div class=\"phases\"><span style=\"left:0\">forward</span><span "
                  "style=\"left:%.3f%%\">backward"
                  "</span><span style=\"right:0\">optimizer</span></div></div>",
                  share_of(p, p->t->end[1]));
    (void)fputs("<p class=\"units\"><span>&uarr; GiB a GPU</span><span>layers, as they run &rarr;</span></p>",
                out);
}

/* --- The lines --- */

/* The loss and the optimizer, and where each of the layers that have a number begins. */
static void put_phases(const plot *p, FILE *out) {
    const double *end = p->t->end;
    for (size_t i = 1; i < SPW_PHASE_ENDS; i += 2)
        (void)fprintf(out, "<rect class=\"band\" x=\"%.3f%%\" y=\"0\" width=\"%.3f%%\" height=\"%d\"/>",
                      share_of(p, end[i - 1]), share_of(p, end[i] - end[i - 1]), HIGH);
    for (size_t i = 0; i + 1 < SPW_PHASE_ENDS; i++)
        (void)fprintf(out, "<line class=\"border\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"0\" y2=\"%d\"/>",
                      share_of(p, end[i]), share_of(p, end[i]), HIGH);
}

/* With the exact numbers that it is drawn from. */
static void put_line(const plot *p, const spw_report_line *line, const char *class, FILE *out) {
    if (line->points == 0) return;
    (void)fprintf(out, "<polyline class=\"line %s\" points=\"", class);
    for (size_t i = 0; i < line->points; i++)
        (void)fprintf(out, "%.2f,%.2f ", WIDE * line->at[i] / p->end, y_of(p, line->bytes[i] / GIB));
    (void)fputs("\" data-at=\"", out);
    for (size_t i = 0; i < line->points; i++) (void)fprintf(out, "%.10g ", line->at[i]);
    (void)fputs("\" data-bytes=\"", out);
    for (size_t i = 0; i < line->points; i++) (void)fprintf(out, "%.0f ", line->bytes[i]);
    (void)fputs("\"/>", out);
}

static size_t peak_of(const spw_report_line *line) {
    size_t peak = 0;
    for (size_t i = 0; i < line->points; i++)
        if (line->bytes[i] > line->bytes[peak]) peak = i;
    return peak;
}

static void put_picture(const plot *p, FILE *out) {
    const size_t peak = peak_of(&p->t->real);
    (void)fprintf(out,
                  "<div class=\"plot\"><svg class=\"points\" height=\"%d\" role=\"img\" aria-label=\"GiB a "
                  "GPU within a "
                  "step\">",
                  HIGH);
    put_phases(p, out);
    put_up(p, true, out);
    (void)fprintf(out,
                  "<svg width=\"100%%\" height=\"%d\" viewBox=\"0 0 %.0f %d\" preserveAspectRatio=\"none\">",
                  HIGH, WIDE, HIGH);
    put_line(p, &p->t->real, "held", out);
    put_line(p, &p->t->balanced, "even", out);
    (void)fputs("</svg>", out);
    if (budget_is_near(p))
        (void)fprintf(out, "<line class=\"budget\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>",
                      y_of(p, p->budget), y_of(p, p->budget));
    (void)fprintf(out, "<circle class=\"mark fullest\" cx=\"%.3f%%\" cy=\"%.2f\" r=\"4.5\"/></svg>",
                  share_of(p, p->t->real.at[peak]), y_of(p, p->t->real.peak / GIB));
    put_axes(p, out);
    (void)fputs("</div>", out);
}

/* --- In words --- */

static void write_legend(const plot *p, FILE *out) {
    (void)fputs("<ul class=\"legend\"><li><i class=\"key held\"></i>", out);
    (void)fputs(p->t->balanced.points == 0 ? "memory of a GPU, whatever the routing"
                : p->report->planned       ? "under this routing"
                                           : "as replayed: the GPU and step that need most",
                out);
    (void)fputs("</li>", out);
    if (p->t->balanced.points > 0)
        (void)fputs("<li><i class=\"key even\"></i>with balanced routing</li>", out);
    (void)fputs("<li><i class=\"key dot fullest\"></i>the peak</li>", out);
    if (budget_is_near(p)) (void)fputs("<li><i class=\"key budget\"></i>what a GPU may use</li>", out);
    (void)fputs("</ul>", out);
}

/* Which phase the peak is in, and of which layer. */
static void write_place(const plot *p, FILE *out) {
    const double at = p->t->real.at[peak_of(&p->t->real)], *end = p->t->end;
    const bool backward = at > end[1];
    if (at > end[0] && at < end[1]) {
        (void)fputs("at the loss", out);
    } else if (at > end[2]) {
        (void)fputs("in the optimizer", out);
    } else {
        const double pass = backward ? end[2] - at : at;
        const size_t i = pass < (double)p->t->layers ? (size_t)pass : p->t->layers - 1;
        (void)fprintf(out, "in the %s pass of layer %.0f", backward ? "backward" : "forward", p->t->layer[i]);
    }
}

/* The largest that comes behind `after` of `below` bytes; equals stand by name. "": none. */
static const char *largest(const json_t *components, double below, const char *after, double *bytes) {
    const char *name, *found = "";
    json_t *value;
    *bytes = -1.0;
    json_object_foreach((json_t *)components, name, value) {
        const double size = json_number_value(value);
        const bool later = size < below || (!(size > below) && strcmp(name, after) > 0);
        if (!later || size < *bytes || (!(size > *bytes) && strcmp(name, found) > 0)) continue;
        found = name;
        *bytes = size;
    }
    return found;
}

static void write_largest(const plot *p, FILE *out) {
    const json_t *components = p->t->row->components[SPW_SHARES_MEMORY];
    const char *name = "";
    double bytes = INFINITY;
    (void)fputs("<p>Largest there: ", out);
    for (size_t i = 0; i < LARGEST; i++) {
        name = largest(components, bytes, name, &bytes);
        if (!(bytes > 0.0)) break;
        (void)fputs(i > 0 ? ", " : "", out);
        spw_html_name(out, name);
        (void)fputs(" ", out);
        spw_html_number(out, bytes, "%.2f GiB", bytes / GIB);
    }
    (void)fputs(".</p>", out);
}

static void write_note(const plot *p, FILE *out) {
    const bool arena = strcmp(p->t->row->kind, "arena") == 0;
    (void)fputs("<p class=\"note\">What one GPU holds while a step runs, of <b>", out);
    spw_chart_label(p->report, p->t->row, out);
    (void)fputs("</b>", out);
    if (p->report->pipeline > 1.0 && !arena)
        (void)fprintf(
            out, ": one micro-batch through stage %.0f, the one that needs most, while most are in flight",
            p->t->stage);
    (void)fputs(". To the right is the order in which tensors come and go, not time: one pass of one layer "
                "is as wide as "
                "another; the grey bands are the loss and the optimizer. What layers keep for the backward "
                "pass is drawn until "
                "its end, as the peak counts it.",
                out);
    if (p->low > 0.0)
        (void)fprintf(out, " The picture begins at %.1f GiB: what is always there reaches higher.", p->low);
    if (!budget_is_near(p))
        (void)fprintf(out, " A GPU may use %.1f GiB, which is beyond the picture.", p->budget);
    (void)fputs("</p>", out);
}

void spw_chart_timeline(const spw_report *report, FILE *out) {
    plot p = {.report = report, .t = report->timeline};
    if (p.t == NULL || p.t->layers == 0) return;
    p.end = p.t->end[SPW_PHASE_ENDS - 1];
    p.budget = p.t->row->budget / GIB;
    set_scale(&p);
    (void)fputs("<section class=\"timeline\"><h2>Memory within the step</h2>", out);
    write_note(&p, out);
    write_legend(&p, out);
    put_picture(&p, out);
    (void)fputs("<p>The peak, ", out);
    spw_html_number(out, p.t->real.peak, "<b>%.2f GiB</b>", p.t->real.peak / GIB);
    (void)fputs(", is reached ", out);
    write_place(&p, out);
    if (p.t->balanced.points > 0) {
        (void)fputs("; with balanced routing it would be ", out);
        spw_html_number(out, p.t->balanced.peak, "%.2f GiB", p.t->balanced.peak / GIB);
    }
    (void)fputs(".</p>", out);
    write_largest(&p, out);
    (void)fputs("</section>", out);
}
