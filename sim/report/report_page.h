/* A report for the person who books the GPUs: one HTML page that needs nothing but itself. The answer, a table, pictures, then
 * what it rests on and how to run it again. */
#ifndef SPW_SIM_REPORT_REPORT_PAGE_H
#define SPW_SIM_REPORT_REPORT_PAGE_H

#include "sim/report/report_rows.h"

#include <stdio.h>

/* `name` of the result file, as the page calls it. The caller looks at ferror(out). SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_report_write(const spw_report *report, const char *name, FILE *out);

/* Its parts. */
void spw_report_write_answer(const spw_report *report, FILE *out); /* sentences */
void spw_report_write_table(const spw_report *report, FILE *out);  /* a row a scheme and batch */
SPW_MUST_CHECK spw_status spw_report_write_basis(const spw_report *report,
                                                 FILE *out); /* evidence, assumptions, settings, sources */

#endif
