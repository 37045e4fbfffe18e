/* The parts of reading a summary. */
#ifndef SPW_SIM_REPORT_REPORT_TAKE_H
#define SPW_SIM_REPORT_REPORT_TAKE_H

#include "sim/report/report_rows.h"

/* One row of `rows`, the `index`-th; of its JSON only what `out` points to lives on. SPW_EFORMAT, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_report_take_row(spw_report *report, json_t *row, size_t index,
                                              spw_report_row *out);
/* The figures of a cost with their ends; NAN: not there, or `cost` is no object. SPW_EFORMAT. */
SPW_MUST_CHECK spw_status spw_report_take_cost(json_t *cost, spw_report_cost *out);
/* The answer of a search, of which `root` is there: checked, and the plans of its best points read. SPW_EFORMAT, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_report_take_search(spw_report *report);
/* A whole plan or replay; take_other: takes the answer of a search instead, of which `root` is there then. NULL: there is none. */
typedef spw_status spw_report_taker(spw_report *report);
SPW_MUST_CHECK spw_status spw_report_take_summary(spw_report *report, const char *text, size_t bytes,
                                                  spw_report_taker *take_other);
/* Which rows answer what, once the rows are there; what a plan names is checked. SPW_EFORMAT, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_report_take_answers(spw_report *report);

#endif
