/* What a plan begins with: three lines that answer, in words of docs/glossary.md. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_BRIEF_H
#define SPW_SIM_COMMAND_PLAN_PLAN_BRIEF_H

#include "sim/command/plan/plan_view.h"

#include <jansson.h>
#include <stdio.h>

/* plan: what was asked, and how many points fit. fastest: the point, its speed and its step with their intervals, what training
 * takes and costs. fits: whether it surely does, what uneven routing does to it, and what surely fits where that is another point.
 * Where no point fits the last two say so, and the smallest change. */
void spw_plan_print_brief(const spw_plan_view *view, FILE *out);

/* Which schemes a plan gives the state of another, as a plan has one state and nobody said whose; nothing where all keep their own. */
void spw_plan_print_beside(const spw_plan_request *request, FILE *out);
/* The same as a text; null where all keep their own; NULL without memory. */
json_t *spw_plan_beside_json(const spw_plan_request *request);

/* "gmm, EP 8, 1 sequence". Returns `out`. */
enum { SPW_PLAN_POINT = SPW_SCHEME_TEXT + 64 };
const char *spw_plan_point_text(const spw_result_row *row, char out[SPW_PLAN_POINT]);

/* What a point may need that fits and does not surely fit. */
typedef struct spw_plan_unsure {
    double most_bytes; /* INFINITY: not known */
    spw_memory_kind kind;
    double budget_bytes;
    bool reserved; /* PyTorch's allocator was replayed */
    const spw_scheme_type *type;
    bool listed; /* what lies outside, by a table with a doubt of its own */
} spw_plan_unsure;
/* "; unsure, as the larger end is over that": which end of what interval is over the budget. */
void spw_plan_print_unsure(const spw_plan_unsure *unsure, const spw_job *job, FILE *out);

/* "it surely fits: 60.1 to 64.3 GiB of 73.6", without a line end. A lower bound has no other end. */
void spw_plan_print_room(const spw_plan_view *view, const spw_result_row *row, FILE *out);

#endif
