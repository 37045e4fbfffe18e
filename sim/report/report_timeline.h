/* The memory of one GPU within a step, as a result file says it: `memory_timeline` (docs/result_format.md). */
#ifndef SPW_SIM_REPORT_REPORT_TIMELINE_H
#define SPW_SIM_REPORT_REPORT_TIMELINE_H

#include "base/status.h"
#include "sim/memory/step/memory_timeline.h"
#include "sim/report/report_rows.h"

#include <stdio.h>

typedef struct spw_report_line {
    double at[SPW_MEMORY_TIMELINE_POINTS], bytes[SPW_MEMORY_TIMELINE_POINTS]; /* at: from 0 on, never back */
    size_t points;
    double peak; /* the largest of bytes */
} spw_report_line;

/* Ends of the phases, in passes of one layer. */
enum { SPW_PHASE_ENDS = 4 };

struct spw_report_timeline {
    const spw_report_row *row;
    double end[SPW_PHASE_ENDS]; /* forward, loss, backward, optimizer; rise or stay */
    double stage;
    double *layer; /* [layers] positions in the model, in the order of the forward pass */
    size_t layers;
    spw_report_line real, balanced; /* balanced: no points where the memory does not follow the routing */
};

/* Of a summary whose rows are there; none where the file has none. SPW_EFORMAT, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_report_take_timeline(spw_report *report);
void spw_report_timeline_destroy(spw_report_timeline *timeline); /* NULL is fine */

/* A section of its own; nothing without a timeline. */
void spw_chart_timeline(const spw_report *report, FILE *out);

#endif
