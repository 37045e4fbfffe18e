/* Bars of one picture: a table with a row a bar, all on one scale. A bar is as wide as the page lets it be. */
#ifndef SPW_SIM_REPORT_CHARTS_CHART_BAR_H
#define SPW_SIM_REPORT_CHARTS_CHART_BAR_H

#include "sim/report/charts/chart.h"

typedef struct spw_bar_scale {
    const char *unit; /* of everything below */
    double end;       /* the right edge */
    double tick[SPW_CHART_TICKS];
    size_t ticks;
} spw_bar_scale;

/* The scale that ends a little behind `most`. */
spw_bar_scale spw_bar_scale_of(const char *unit, double most);

/* A row: its head and its bar; then parts and marks, from the left to `to` or at `at`, between two heights of 0 to SPW_BAR_HIGH;
 * then the end, after which the row's number follows in <data>. */
enum { SPW_BAR_HIGH = 30 };
void spw_bar_open(const spw_bar_scale *scale, const spw_report *report, const spw_report_row *row, FILE *out);
void spw_bar_open_name(const spw_bar_scale *scale, const char *name,
                       FILE *out); /* of a name in JSON: "arguments" */
void spw_bar_part(const spw_bar_scale *scale, const char *class, double from, double to, int top, int bottom,
                  FILE *out);
void spw_bar_mark(const spw_bar_scale *scale, const char *class, double at, int top, int bottom, FILE *out);
/* `length` of the whole bar: one that goes on beyond the scale says so. */
void spw_bar_close(const spw_bar_scale *scale, double length, FILE *out);
/* The foot: the numbers of the scale, and the unit. */
void spw_bar_axis(const spw_bar_scale *scale, FILE *out);

#endif
