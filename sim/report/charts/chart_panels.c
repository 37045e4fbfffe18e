#include "sim/report/charts/chart.h"

#include "sim/report/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double LEFT = SPW_PANEL_LEFT, RIGHT = SPW_PANEL_RIGHT, TOP = SPW_PANEL_TOP;
enum { PLOT = 120, LEVELS = SPW_CHART_LEVELS };

/* Lines and numbers from 0 to the last tick; returns that, which is the top of the plot. */
static double put_scale(FILE *out, double most) {
    double tick[SPW_CHART_TICKS];
    const size_t ticks = spw_chart_ticks(most, 4, tick);
    const double top = tick[ticks - 1];
    for (size_t i = 0; i < ticks; i++) {
        const double y = TOP + PLOT * (1.0 - tick[i] / top);
        char text[32];
        (void)fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                      RIGHT, y, y);
        (void)snprintf(text, sizeof text, "%.*f", spw_chart_digits(tick[1]), tick[i]);
        spw_panel_text(out, LEFT - 6.0, y + 4.0, "end", text);
    }
    return top;
}

static void open_figure(const spw_report *report, const spw_report_row *row, FILE *out) {
    (void)fputs("<figure><figcaption><b>", out);
    spw_chart_label(report, row, out);
    (void)fputs("</b>", out);
}

/* --- Memory by step --- */

static double step_x(const spw_result_pictures *p, size_t bin) {
    return p->step_bins > 1 ? LEFT + (RIGHT - LEFT) * (double)bin / (double)(p->step_bins - 1)
                            : (LEFT + RIGHT) / 2.0;
}

static void put_line(FILE *out, const spw_result_pictures *p, const char *class, const double *gib,
                     double top) {
    (void)fprintf(out, "<polyline class=\"line %s\" points=\"", class);
    for (size_t s = 0; s < p->step_bins; s++)
        (void)fprintf(out, "%.1f,%.1f ", step_x(p, s), TOP + PLOT * (1.0 - gib[s] / top));
    (void)fputs("\"/>", out);
    for (size_t s = 0; s < p->step_bins && p->step_bins <= 12; s++)
        (void)fprintf(out, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", class,
                      step_x(p, s), TOP + PLOT * (1.0 - gib[s] / top));
}

static void put_steps(FILE *out, const spw_result_pictures *p) {
    const double y = TOP + PLOT + 16.0;
    spw_panel_integer(out, LEFT, y, "start", p->step[0]);
    if (p->step_bins > 2)
        spw_panel_integer(out, step_x(p, p->step_bins / 2), y, "middle", p->step[p->step_bins / 2]);
    spw_panel_integer(out, RIGHT, y, "end", p->last_step);
    spw_panel_text(out, (LEFT + RIGHT) / 2.0, y + 15.0, "middle", "step");
}

static void memory_panel(const spw_report *report, const spw_report_row *row, double most, FILE *out) {
    static const char *const classes[] = {"held", "allocated", "reserved"};
    static const double GIB = 1024.0 * 1024.0 * 1024.0;
    open_figure(report, row, out);
    (void)fputs("</figcaption>", out);
    spw_panel_open(out, PLOT, "GiB by step");
    const double top = put_scale(out, most), y = TOP + PLOT * (1.0 - row->budget / GIB / top);
    for (size_t m = 0; m < SPW_PICTURE_MEMORIES; m++) {
        if (m == SPW_PICTURE_LIVE || row->replayed)
            put_line(out, &report->pictures, classes[m], row->picture->gib + m * report->pictures.step_bins,
                     top);
    }
    (void)fprintf(out, "<line class=\"budget\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                  RIGHT, y, y);
    put_steps(out, &report->pictures);
    (void)fputs("</svg></figure>", out);
}

/* Every step takes the same, as it would be written. */
static bool is_flat(const spw_report *report, const spw_report_row *row) {
    static const double SEEN = 0.005; /* GiB */
    for (size_t m = 0; m < SPW_PICTURE_MEMORIES; m++) {
        const double *gib = row->picture->gib + m * report->pictures.step_bins;
        for (size_t s = 1; s < report->pictures.step_bins && (m == SPW_PICTURE_LIVE || row->replayed); s++)
            if (fabs(gib[s] - gib[0]) >= SEEN) return false;
    }
    return true;
}

/* The rows of which there is nothing to see in a picture: "text A, B." */
static void write_undrawn(const spw_report *report, bool (*undrawn)(const spw_report *, size_t),
                          const char *text, FILE *out) {
    size_t said = 0;
    for (size_t i = 0; i < report->rows; i++) {
        if (!undrawn(report, i)) continue;
        (void)fputs(said++ == 0 ? "<p class=\"note\">" : ", ", out);
        if (said == 1) (void)fputs(text, out);
        spw_chart_label(report, &report->row[i], out);
    }
    if (said > 0) (void)fputs(".</p>", out);
}

static bool has_flat(const spw_report *report, size_t index) { return is_flat(report, &report->row[index]); }

void spw_chart_memory_steps(const spw_report *report, FILE *out) {
    static const double GIB = 1024.0 * 1024.0 * 1024.0;
    double most = 0.0;
    bool replayed = false, any = false;
    for (size_t i = 0; i < report->rows; i++) {
        const spw_report_row *row = &report->row[i];
        any = any || !is_flat(report, row);
        most = fmax(most, row->budget / GIB);
        replayed = replayed || row->replayed;
        for (int m = 0; m < SPW_PICTURE_MEMORIES; m++) {
            for (size_t s = 0; s < report->pictures.step_bins; s++)
                most = fmax(most, row->picture->gib[(size_t)m * report->pictures.step_bins + s]);
        }
    }
    write_undrawn(report, has_flat, "The same in every step, as the bar shows it: ", out);
    if (!any) return;
    (void)fputs("<ul class=\"legend\"><li><i class=\"key held\"></i>held: live tensors, or the arena of a "
                "compiled program</li>",
                out);
    if (replayed)
        (void)fputs(
            "<li><i class=\"key allocated\"></i>allocated</li><li><i class=\"key c1\"></i>reserved by "
            "PyTorch's allocator</li>",
            out);
    (void)fputs("<li><i class=\"key budget\"></i>what a GPU may use</li></ul><div class=\"panels\">", out);
    for (size_t i = 0; i < report->rows; i++)
        if (!is_flat(report, &report->row[i])) memory_panel(report, &report->row[i], most, out);
    (void)fputs("</div>", out);
}

/* --- Rows --- */

static bool same_rows(const spw_result_pictures *p, const spw_result_picture *a,
                      const spw_result_picture *b) {
    return a->worst_rows == b->worst_rows && a->sequences == b->sequences &&
           memcmp(a->rows, b->rows, p->rank_bins * sizeof *a->rows) == 0 &&
           memcmp(a->max_over_mean, b->max_over_mean,
                  p->layer_bins * p->step_bins * sizeof *a->max_over_mean) == 0;
}

/* Is this the first row with such rows? */
static bool is_first(const spw_report *report, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (same_rows(&report->pictures, report->row[i].picture, report->row[index].picture)) return false;
    }
    return true;
}

/* The schemes that hold the same rows, and their batch. */
static void open_group(const spw_report *report, size_t index, FILE *out) {
    (void)fputs("<figure><figcaption><b>", out);
    for (size_t i = index; i < report->rows; i++) {
        if (!same_rows(&report->pictures, report->row[i].picture, report->row[index].picture)) continue;
        if (i > index) (void)fputs(", ", out);
        spw_html_text(out, report->row[i].scheme);
    }
    spw_chart_batch(report, &report->row[index], out);
    (void)fputs("</b><br>", out);
}

static bool is_level(const spw_result_picture *p) { return (double)p->worst_rows <= p->worst_mean; }
static bool has_level(const spw_report *report, size_t index) { return is_level(report->row[index].picture); }

/* The fullest GPU is as full in every layer and step. */
static bool has_even(const spw_report *report, size_t index) {
    const spw_result_pictures *p = &report->pictures;
    const float *cell = report->row[index].picture->max_over_mean;
    for (size_t i = 1; i < p->layer_bins * p->step_bins; i++)
        if (fabsf(cell[i] - cell[0]) > 1e-6F * cell[0]) return false;
    return true;
}

/* Cells of layers by steps; few steps of many layers lie on their side, steps by layers. */
typedef struct cells {
    const spw_result_picture *picture;
    bool lying;
    size_t across, down, steps;
    double wide, high;
} cells;

static cells cells_of(const spw_result_pictures *p, const spw_result_picture *picture) {
    cells c = {.picture = picture, .lying = 4 * p->step_bins < p->layer_bins, .steps = p->step_bins};
    c.across = c.lying ? p->layer_bins : p->step_bins;
    c.down = c.lying ? p->step_bins : p->layer_bins;
    c.wide = fmin((RIGHT - LEFT) / (double)c.across, 80.0);
    c.high = fmin(fmax(180.0 / (double)c.down, 4.0), 24.0);
    return c;
}

static size_t level_at(const void *context, size_t y, size_t x) {
    const cells *c = context;
    return spw_chart_level(c->picture->max_over_mean[c->lying ? x * c->steps + y : y * c->steps + x]);
}

static void imbalance_panel(const spw_report *report, size_t index, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    const spw_result_picture *picture = report->row[index].picture;
    const cells c = cells_of(p, picture);
    const double plot = c.high * (double)c.down, right = LEFT + c.wide * (double)c.across;
    const struct {
        const char *name;
        int64_t first, last;
    } layers = {"layer", p->layer[0], p->last_layer}, steps = {"step", p->step[0], p->last_step};
    open_group(report, index, out);
    (void)fputs("at most <strong>", out);
    spw_html_number(out, picture->worst_ratio, "%.2f", picture->worst_ratio);
    (void)fputs("</strong> times the mean", out);
    if (picture->worst_ratio > 1.0)
        (void)fprintf(out, ": step %" PRId64 ", layer %" PRId32, picture->ratio_step, picture->ratio_layer);
    (void)fputs("</figcaption>", out);
    spw_panel_open(out, plot, "rows of the fullest GPU over the mean, by layer and step");
    spw_panel_cells(out, &(spw_cells){c.across, c.down, c.wide, c.high, level_at, &c});
    spw_panel_integer(out, LEFT - 6.0, TOP + 10.0, "end", c.lying ? steps.first : layers.first);
    if (plot > 24.0 && c.down > 1)
        spw_panel_integer(out, LEFT - 6.0, TOP + plot, "end", c.lying ? steps.last : layers.last);
    spw_panel_text(out, 0.0, TOP + fmax(plot / 2.0 + 4.0, 10.0), "start", c.lying ? steps.name : layers.name);
    spw_panel_integer(out, LEFT, TOP + plot + 16.0, "start", c.lying ? layers.first : steps.first);
    if (c.across > 1)
        spw_panel_integer(out, fmax(right, LEFT + 40.0), TOP + plot + 16.0, "end",
                          c.lying ? layers.last : steps.last);
    spw_panel_text(out, fmax((LEFT + right) / 2.0, LEFT + 14.0), TOP + plot + 30.0, "middle",
                   c.lying ? layers.name : steps.name);
    (void)fputs("</svg></figure>", out);
}

/* Of rows that are as full everywhere: how full. */
static void write_even(const spw_report *report, FILE *out) {
    for (size_t i = 0; i < report->rows; i++) {
        if (!has_even(report, i)) continue;
        const double ratio = report->row[i].picture->worst_ratio;
        (void)fputs("<p class=\"note\">", out);
        spw_chart_label(report, &report->row[i], out);
        (void)fputs(": ", out);
        spw_html_number(out, ratio, "%.2f", ratio);
        (void)fputs(" times the mean in every layer and step.</p>", out);
    }
}

void spw_chart_imbalance(const spw_report *report, FILE *out) {
    bool any = false;
    for (size_t i = 0; i < report->rows; i++) any = any || !has_even(report, i);
    write_even(report, out);
    if (!any) return;
    spw_chart_levels(out);
    (void)fputs("<div class=\"panels\">", out);
    for (size_t i = 0; i < report->rows; i++) {
        if (is_first(report, i) && !has_even(report, i)) imbalance_panel(report, i, out);
    }
    (void)fputs("</div>", out);
}

static void rank_panel(const spw_report *report, size_t index, FILE *out) {
    const spw_result_pictures *p = &report->pictures;
    const spw_result_picture *picture = report->row[index].picture;
    const double wide = (RIGHT - LEFT) / (double)p->rank_bins, gap = wide > 3.0 ? 1.0 : 0.0;
    open_group(report, index, out);
    (void)fprintf(out, "step %" PRId64 ", layer %" PRId32 ": GPU %zu holds <strong>", picture->worst_step,
                  picture->worst_layer, picture->worst_rank);
    spw_html_number(out, (double)picture->worst_rows, "%.0f", (double)picture->worst_rows);
    (void)fprintf(out, "</strong> rows, the mean is %.0f</figcaption>", picture->worst_mean);
    spw_panel_open(out, PLOT, "rows by GPU");
    const double top = put_scale(out, (double)picture->worst_rows);
    for (int fullest = 0; fullest < 2; fullest++) {
        (void)fprintf(out, "<path class=\"%s\" d=\"", fullest ? "fullest" : "ranks");
        for (size_t r = 0; r < p->rank_bins; r++) {
            const double high = PLOT * (double)picture->rows[r] / top;
            const bool is_fullest = r == picture->worst_rank * p->rank_bins / p->ranks;
            if (is_fullest != (fullest == 1)) continue;
            (void)fprintf(out, "M%.2f %.1fv-%.2fh%.2fv%.2fz", LEFT + (double)r * wide + gap / 2.0, TOP + PLOT,
                          high, wide - gap, high);
        }
        (void)fputs("\"/>", out);
    }
    const double y = TOP + PLOT * (1.0 - picture->worst_mean / top);
    (void)fprintf(out, "<line class=\"mean\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, RIGHT,
                  y, y);
    spw_panel_text(out, LEFT, TOP + PLOT + 16.0, "start", "0");
    spw_panel_integer(out, RIGHT, TOP + PLOT + 16.0, "end", (int64_t)p->ranks - 1);
    spw_panel_text(out, (LEFT + RIGHT) / 2.0, TOP + PLOT + 31.0, "middle", "GPU");
    (void)fputs("</svg></figure>", out);
}

void spw_chart_ranks(const spw_report *report, FILE *out) {
    bool any = false;
    for (size_t i = 0; i < report->rows; i++) any = any || !has_level(report, i);
    write_undrawn(report, has_level, "Every GPU holds the same rows: ", out);
    if (!any) return;
    (void)fputs("<ul class=\"legend\"><li><i class=\"key ranks\"></i>rows of a GPU</li>"
                "<li><i class=\"key fullest\"></i>of the fullest</li>"
                "<li><i class=\"key mean\"></i>mean</li></ul><div class=\"panels\">",
                out);
    for (size_t i = 0; i < report->rows; i++) {
        if (is_first(report, i) && !has_level(report, i)) rank_panel(report, i, out);
    }
    (void)fputs("</div>", out);
}
