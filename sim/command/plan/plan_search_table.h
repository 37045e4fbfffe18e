/* The table of a search: a row a plan. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_TABLE_H
#define SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_TABLE_H

#include "sim/command/plan/plan_search_notes.h"

/* A row: what of a point stands in the table, in CSV and in JSON. outside: what its figures rest on beyond the fit; letters: a person
 * sees it. */
void spw_search_row(spw_table *table, const spw_search_view *view, const spw_search_front *front,
                    const spw_search_point *point, const char *outside, bool letters);

SPW_MUST_CHECK spw_status spw_search_print_front(const spw_search_view *view, spw_format format, FILE *out);

#endif
