/* The table of a search: a row a plan. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_TABLE_H
#define SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_TABLE_H

#include "sim/command/plan/plan_search_notes.h"

SPW_MUST_CHECK spw_status spw_search_print_front(const spw_search_view *view, spw_format format, FILE *out);

#endif
