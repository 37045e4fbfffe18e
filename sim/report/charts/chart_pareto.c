#include "sim/report/charts/chart_pareto.h"

#include "base/memory.h"
#include "sim/report/charts/chart.h"
#include "sim/report/html.h"

#include <math.h>
#include <stdlib.h>

/* The plot is as wide as the page lets it be: what is across is a share of it, what is up and down pixels. */
static const double GIB = 1024.0 * 1024.0 * 1024.0, NARROW = 284.0; /* pixels: the plot on a phone */
enum { HIGH = 300, MARK = 9, LEVELS = 5 };

static const struct {
    double to; /* share of the assignments */
    const char *text;
} levels[LEVELS] = {
    {0.0, "drops nothing"}, {0.01, "to 1 %"}, {0.05, "to 5 %"}, {0.2, "to 20 %"}, {1.0, "more than 20 %"}};

typedef struct plot {
    const spw_report *report;
    bool timed; /* speed is up; else tokens of a step */
    double end, top;
    double across[SPW_CHART_TICKS], up[SPW_CHART_TICKS];
    size_t ticks_across, ticks_up;
    const spw_report_row *named[SPW_PARETO_NAMED]; /* marks with a number: the first is 1 */
    size_t names;
} plot;

static size_t level_of(const spw_report_row *row) {
    size_t level = row->dropped > 0.0 ? 1 : 0;
    while (level + 1 < LEVELS && row->fraction > levels[level].to) level++;
    return level;
}

static double memory_of(const spw_report_row *row) {
    return fmax(row->held.most, row->replayed ? row->reserved.most : 0.0) / GIB;
}

static double speed_of(const plot *p, const spw_report_row *row) {
    return p->timed ? row->tokens : row->sequences * p->report->sequence_length;
}

static bool is_drawn(const plot *p, const spw_report_row *row) { return !p->timed || row->timed; }
static double x_of(const plot *p, const spw_report_row *row) { return fmin(memory_of(row) / p->end, 1.0); }
static double y_of(const plot *p, const spw_report_row *row) {
    return (double)HIGH * (1.0 - speed_of(p, row) / p->top);
}

/* Is there room for its number beside those that have one, on a phone? */
static bool has_room(const plot *p, const spw_report_row *row) {
    for (size_t i = 0; i < p->names; i++) {
        const double x = NARROW * (x_of(p, row) - x_of(p, p->named[i])),
                     y = y_of(p, row) - y_of(p, p->named[i]);
        if (p->named[i] == row || hypot(x, y) < 2.0 * MARK + 1.0) return false;
    }
    return true;
}

static void name(plot *p, const spw_report_row *row) {
    if (row != NULL && p->names < SPW_PARETO_NAMED && is_drawn(p, row) && has_room(p, row))
        p->named[p->names++] = row;
}

/* Those that the answer names, then the front, the best first. */
static void name_rows(plot *p) {
    const spw_report *r = p->report;
    name(p, spw_report_best(r, r->drop_most, false));
    name(p, spw_report_best(r, 0.0, false));
    name(p, spw_report_best(r, 0.0, true));
    name(p, spw_report_best(r, 1.0, false));
    for (size_t i = 0; i < r->fits; i++) {
        if (r->row[r->order[i]].front) name(p, &r->row[r->order[i]]);
    }
}

static spw_status measure(plot *p) {
    double *memory = NULL, budget = 0.0;
    size_t count = 0;
    const spw_status status = SPW_ALLOC(p->report->rows, &memory);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < p->report->rows; i++) p->timed = p->timed || p->report->row[i].timed;
    for (size_t i = 0; i < p->report->rows; i++) {
        const spw_report_row *row = &p->report->row[i];
        if (!is_drawn(p, row)) continue;
        budget = fmax(budget, row->budget / GIB);
        memory[count++] = memory_of(row);
        p->top = fmax(p->top, speed_of(p, row));
    }
    for (size_t i = 0; i < count; i++) memory[i] = fmax(memory[i], budget);
    p->end = 1.04 * spw_chart_end(memory, count, 0.0, 1.5 * budget);
    p->top *= 1.08;
    spw_free(memory);
    p->ticks_across = spw_chart_ticks(p->end, 5, p->across);
    p->ticks_up = spw_chart_ticks(p->top, 5, p->up);
    while (p->across[p->ticks_across - 1] > p->end) p->ticks_across--;
    while (p->up[p->ticks_up - 1] > p->top) p->ticks_up--;
    return SPW_OK;
}

static void put_mark(const plot *p, const spw_report_row *row, size_t number, FILE *out) {
    const double x = 100.0 * x_of(p, row), y = y_of(p, row);
    (void)fprintf(out, "<circle class=\"mark d%zu%s\" cx=\"%.2f%%\" cy=\"%.1f\" r=\"%d\"/>", level_of(row),
                  spw_report_row_fits(row) ? "" : " no", x, y, number > 0 ? MARK : 4);
    if (number > 0)
        (void)fprintf(out, "<text class=\"name\" x=\"%.2f%%\" y=\"%.1f\" text-anchor=\"middle\">%zu</text>",
                      x, y + 4.0, number);
}

static void put_grid(const plot *p, FILE *out) {
    const double budget = p->report->row[0].budget / GIB / p->end;
    for (size_t i = 0; i < p->ticks_across; i++)
        (void)fprintf(out, "<line class=\"grid\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"%d\"/>",
                      100.0 * p->across[i] / p->end, 100.0 * p->across[i] / p->end, HIGH);
    for (size_t i = 0; i < p->ticks_up; i++) {
        const double y = (double)HIGH * (1.0 - p->up[i] / p->top);
        (void)fprintf(out, "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>", y, y);
    }
    (void)fprintf(out, "<line class=\"budget\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"%d\"/>",
                  100.0 * budget, 100.0 * budget, HIGH);
}

/* Numbers beside the plot are of the page, so that they are as large on a phone. */
static void put_axes(const plot *p, FILE *out) {
    (void)fputs("<div class=\"up\">", out);
    for (size_t i = 0; i < p->ticks_up; i++)
        (void)fprintf(out, "<span style=\"top:%.1fpx\">%.*f</span>", (double)HIGH * (1.0 - p->up[i] / p->top),
                      spw_chart_digits(p->up[1]), p->up[i]);
    (void)fputs("</div><div class=\"axis\"><div>", out);
    for (size_t i = 0; i < p->ticks_across; i++)
        (void)fprintf(out, "<span style=\"left:%.3f%%\">%.*f</span>", 100.0 * p->across[i] / p->end,
                      spw_chart_digits(p->across[1]), p->across[i]);
    (void)fputs("</div></div>", out);
}

static void write_legend(const plot *p, FILE *out) {
    bool there[LEVELS] = {false}, over = false;
    for (size_t i = 0; i < p->report->rows; i++) {
        const spw_report_row *row = &p->report->row[i];
        if (!is_drawn(p, row)) continue;
        there[level_of(row)] = true;
        over = over || !spw_report_row_fits(row);
    }
    (void)fputs("<ul class=\"legend\">", out);
    for (size_t l = 0; l < LEVELS; l++) {
        if (there[l]) (void)fprintf(out, "<li><i class=\"key dot d%zu\"></i>%s</li>", l, levels[l].text);
    }
    if (over) (void)fputs("<li><i class=\"key dot hollow\"></i>does not fit</li>", out);
    (void)fputs("<li><i class=\"key budget\"></i>what a GPU may use</li></ul>", out);
}

static void write_names(const plot *p, FILE *out) {
    (void)fputs("<ol class=\"marks\">", out);
    for (size_t i = 0; i < p->names; i++) {
        const spw_report_row *row = p->named[i];
        (void)fputs("<li><b>", out);
        spw_chart_label(p->report, row, out);
        (void)fprintf(out, "</b>: %.1f GiB, ", memory_of(row));
        spw_html_number(out, speed_of(p, row), "%.0f", speed_of(p, row));
        (void)fputs(p->timed ? " tokens/s a GPU, " : " tokens a step and GPU, ", out);
        if (row->dropped > 0.0) {
            (void)fprintf(out, "drops %.*f %%", spw_percent_digits(row->fraction), 100.0 * row->fraction);
        } else {
            (void)fputs("drops nothing", out);
        }
        (void)fputs("</li>", out);
    }
    (void)fputs("</ol>", out);
}

spw_status spw_chart_pareto(const spw_report *report, FILE *out) {
    plot p = {.report = report};
    size_t untimed = 0;
    const spw_status status = measure(&p);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < report->rows; i++) untimed += !is_drawn(&p, &report->row[i]);
    name_rows(&p);
    (void)fprintf(
        out,
        "<section><h2>Memory, speed and drops</h2><p class=\"note\">A dot is a point of the plan: GiB a "
        "GPU to the right, %s upwards, drops as its colour. Dots with a number are named below.",
        p.timed ? "tokens a second and GPU" : "tokens of a step and GPU, as no time is known,");
    if (untimed > 0)
        (void)fprintf(out, " %zu point%s without a step time %s not drawn.", untimed, untimed == 1 ? "" : "s",
                      untimed == 1 ? "is" : "are");
    (void)fputs(" Points beyond the right edge stand on it.</p>", out);
    write_legend(&p, out);
    (void)fprintf(out,
                  "<div class=\"plot\"><svg class=\"points\" height=\"%d\" role=\"img\" "
                  "aria-label=\"tokens a second and GPU by GiB a GPU\">",
                  HIGH);
    put_grid(&p, out);
    for (size_t i = 0; i < report->rows; i++) {
        if (is_drawn(&p, &report->row[i])) put_mark(&p, &report->row[i], 0, out);
    }
    for (size_t i = 0; i < p.names; i++) put_mark(&p, p.named[i], i + 1, out);
    (void)fputs("</svg>", out);
    put_axes(&p, out);
    (void)fprintf(out, "<p class=\"units\"><span>&uarr; %s</span><span>GiB a GPU &rarr;</span></p></div>",
                  p.timed ? "tokens/s a GPU" : "tokens a step and GPU");
    write_names(&p, out);
    (void)fputs("</section>", out);
    return SPW_OK;
}
