/* The points of a plan: memory to the right, speed upwards, drops as colours. */
#ifndef SPW_SIM_REPORT_CHARTS_CHART_PARETO_H
#define SPW_SIM_REPORT_CHARTS_CHART_PARETO_H

#include "base/status.h"
#include "sim/report/report_rows.h"

#include <stdio.h>

enum { SPW_PARETO_NAMED = 12 };

/* A section of its own. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_chart_pareto(const spw_report *report, FILE *out);

#endif
