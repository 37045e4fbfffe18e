/* Pictures of a report, as inline SVG: no script, colours by the classes of report.css, so that they follow the reader's
 * light or dark page. Written here and not by gnuplot: its SVG has fixed colours, it would have to be there when the program
 * runs, and its scripts can run commands, so that names of a stranger's file have no place in one. Every picture stands beside, or repeats, numbers that are in a table. */
#ifndef SPW_SIM_REPORT_CHARTS_CHART_H
#define SPW_SIM_REPORT_CHARTS_CHART_H

#include "sim/report/report_rows.h"

#include <stdint.h>
#include <stdio.h>

enum { SPW_CHART_SHARES = 8, SPW_CHART_TICKS = 12 };

/* Round numbers from 0 to at least `most`: at most `wanted` + 2 of them, at most SPW_CHART_TICKS. Returns how many. */
size_t spw_chart_ticks(double most, size_t wanted, double tick[SPW_CHART_TICKS]);
/* Where a scale ends: at the largest of value [count], or at `limit` times their median (or `least`, if that is more), so
 * that one that is far off leaves something to see of the others. */
double spw_chart_end(double *value, size_t count, double limit, double least);
/* Digits behind the point that tell such ticks apart. */
int spw_chart_digits(double step);

/* The batch and the split of a row, where the report has several. */
void spw_chart_batch(const spw_report *report, const spw_report_row *row, FILE *out);
/* The scheme of a row, its batch and its split. */
void spw_chart_label(const spw_report *report, const spw_report_row *row, FILE *out);

/* A panel: the plot lies from LEFT to RIGHT and from TOP down; below it is room for two lines. */
#define SPW_PANEL_LEFT 52.0
#define SPW_PANEL_RIGHT 352.0
#define SPW_PANEL_TOP 10.0
enum { SPW_CHART_LEVELS = 8 };
void spw_panel_open(FILE *out, double plot, const char *label); /* the plot is so high */
void spw_panel_text(FILE *out, double x, double y, const char *anchor, const char *text);
void spw_panel_integer(FILE *out, double x, double y, const char *anchor, int64_t value);
/* Cells coloured by their level: one path a level, a rectangle for each run of equal cells. */
typedef struct spw_cells {
    size_t across, down;
    double wide, high; /* of a cell */
    size_t (*level)(const void *context, size_t y, size_t x);
    const void *context;
} spw_cells;
void spw_panel_cells(FILE *out, const spw_cells *cells);
/* Levels of what is over a mean, and their legend. */
size_t spw_chart_level(double ratio);
void spw_chart_levels(FILE *out);

/* Sections of their own; nothing where the file has no such numbers. Choices of the experts by layer, of a few steps; bytes from GPU
 * to GPU and from node to node. */
void spw_chart_experts(const spw_report *report, FILE *out);
void spw_chart_links(const spw_report *report, FILE *out);

/* One bar a row: what a GPU holds, state and all else, p50 to most, interval, reserved, against the budget. */
SPW_MUST_CHECK spw_status spw_chart_memory_bars(const spw_report *report, FILE *out);
/* A panel a row: GiB by step against the budget. */
void spw_chart_memory_steps(const spw_report *report, FILE *out);
/* A panel for every kind of rows: max/mean by layer and step. Schemes that hold the same rows share one. */
void spw_chart_imbalance(const spw_report *report, FILE *out);
/* The same: rows by rank where one rank has most. */
void spw_chart_ranks(const spw_report *report, FILE *out);

/* A section of its own: one bar a row, its overload factors, and the step time that they cost. Nothing without factors. */
void spw_chart_overload(const spw_report *report, FILE *out);

/* One bar a row, cut into its components: those of SPW_CHART_SHARES - 1 names that are largest anywhere, and the rest. */
typedef enum spw_shares {
    SPW_SHARES_MEMORY,
    SPW_SHARES_TRAFFIC,
    SPW_SHARES_TIME,
    SPW_SHARES_COUNT
} spw_shares;
/* SPW_ENOMEM. Rows without this kind are left out; nothing is drawn when no row has it. */
SPW_MUST_CHECK spw_status spw_chart_shares(const spw_report *report, spw_shares which, FILE *out);

/* A section of its own: the pieces of one row's peak, each beginning where the one before ends. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_chart_waterfall(const spw_report *report, const spw_report_row *row, FILE *out);

#endif
