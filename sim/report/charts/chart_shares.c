#include "sim/report/charts/chart_bar.h"

#include "base/memory.h"
#include "sim/report/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 256 /* what a file names beyond these counts as the rest */, TOP = 6, BOTTOM = 24 };
static const double FAR = 4.0; /* times the median: where the scale may end */

static const struct {
    double unit;
    const char *name, *format;
} kinds[SPW_SHARES_COUNT] = {
    {1024.0 * 1024.0 * 1024.0, "GiB", "%.2f GiB"}, {1e9, "GB", "%.2f GB"}, {1.0, "s", "%.3f s"}};

typedef struct named {
    const char *name;
    double most;
} named;

static double share(const json_t *component) { return json_number_value(component); }

static double total(json_t *components) {
    double sum = 0.0;
    const char *name;
    json_t *value;
    json_object_foreach(components, name, value) sum += share(value);
    return sum;
}

static int by_most(const void *left, const void *right) {
    const named *a = left, *b = right;
    return a->most < b->most ? 1 : a->most > b->most ? -1 : strcmp(a->name, b->name);
}

/* Every name of every row that is not 0 everywhere, the one with the largest share first: names [MOST_NAMES]. */
static size_t collect(const spw_report *report, spw_shares which, named *names) {
    size_t count = 0;
    for (size_t i = 0; i < report->rows; i++) {
        const char *name;
        json_t *value;
        json_object_foreach(report->row[i].components[which], name, value) {
            size_t n = 0;
            while (n < count && strcmp(names[n].name, name) != 0) n++;
            if (n == MOST_NAMES) continue;
            if (n == count) names[count++] = (named){name, 0.0};
            names[n].most = fmax(names[n].most, share(value));
        }
    }
    qsort(names, count, sizeof *names, by_most);
    while (count > 0 && !(names[count - 1].most > 0.0)) count--;
    return count;
}

static void write_legend(const named *names, size_t shown, size_t count, FILE *out) {
    (void)fputs("<ul class=\"legend\">", out);
    for (size_t n = 0; n < shown; n++) {
        (void)fprintf(out, "<li><i class=\"key c%zu\"></i>", n);
        spw_html_name(out, names[n].name);
        (void)fputs("</li>", out);
    }
    if (shown < count) (void)fprintf(out, "<li><i class=\"key rest\"></i>%zu more</li>", count - shown);
    (void)fputs("</ul>", out);
}

static void write_bar(const spw_report *report, const spw_report_row *row, spw_shares which,
                      const named *names, size_t shown, const spw_bar_scale *scale, FILE *out) {
    json_t *components = row->components[which];
    const double sum = total(components), unit = kinds[which].unit;
    double at = 0.0;
    spw_bar_open(scale, report, row, out);
    for (size_t n = 0; n < shown; n++) {
        char class[8];
        const double next = at + share(json_object_get(components, names[n].name)) / unit;
        (void)snprintf(class, sizeof class, "c%zu", n);
        spw_bar_part(scale, class, at, next, TOP, BOTTOM, out);
        at = next;
    }
    spw_bar_part(scale, "rest", at, sum / unit, TOP, BOTTOM, out);
    spw_bar_close(scale, sum / unit, out);
    (void)fputs("<td class=\"number\">", out);
    spw_html_number(out, sum, kinds[which].format, sum / unit);
    (void)fputs("</td></tr>", out);
}

spw_status spw_chart_shares(const spw_report *report, spw_shares which, FILE *out) {
    spw_status status = SPW_OK;
    named *names = NULL;
    double *length = NULL;
    size_t count = 0, lengths = 0;
    SPW_TRY(SPW_ALLOC(MOST_NAMES, &names));
    SPW_TRY(SPW_ALLOC(report->rows, &length));
    count = collect(report, which, names);
    if (count == 0) goto cleanup;
    const size_t shown = count > SPW_CHART_SHARES ? SPW_CHART_SHARES - 1 : count;
    for (size_t i = 0; i < report->rows; i++) {
        if (report->row[i].components[which] != NULL)
            length[lengths++] = total(report->row[i].components[which]) / kinds[which].unit;
    }
    const spw_bar_scale scale = spw_bar_scale_of(kinds[which].name, spw_chart_end(length, lengths, FAR, 0.0));
    write_legend(names, shown, count, out);
    (void)fputs("<table class=\"bars\"><tbody>", out);
    for (size_t i = 0; i < report->rows; i++) {
        if (report->row[i].components[which] != NULL)
            write_bar(report, &report->row[i], which, names, shown, &scale, out);
    }
    (void)fputs("</tbody>", out);
    spw_bar_axis(&scale, out);
    (void)fputs("</table>", out);

cleanup:
    spw_free(names);
    spw_free(length);
    return status;
}
