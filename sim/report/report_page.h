/* A report for the person who books the GPUs: one HTML page that needs nothing but itself. The answer, a table, pictures, then
 * what it rests on and how to run it again. */
#ifndef SPW_SIM_REPORT_REPORT_PAGE_H
#define SPW_SIM_REPORT_REPORT_PAGE_H

#include "sim/report/report_rows.h"

#include <stdio.h>

/* `name` of the result file, as the page calls it. The caller looks at ferror(out). SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_report_write(const spw_report *report, const char *name, FILE *out);

/* A plan, and a replay beside it: what both say of the same points, and then the replay as it would stand alone. */
SPW_MUST_CHECK spw_status spw_report_write_both(const spw_report *plan, const char *plan_name,
                                                const spw_report *replay, const char *replay_name, FILE *out);

/* The answer of a search, and the plans of its best points as they would stand alone. */
SPW_MUST_CHECK spw_status spw_report_write_search(const spw_report *search, const char *name, FILE *out);

/* Two of them side by side, plans, searches or replays, and each as it would stand alone, folded. A search must have found a point:
 * SPW_EARG. */
SPW_MUST_CHECK spw_status spw_report_write_pair(const spw_report *a, const char *a_name, const spw_report *b,
                                                const char *b_name, FILE *out);

/* Its parts. */
void spw_report_write_answer(const spw_report *report, FILE *out); /* sentences */
/* A row a scheme, batch and split; those of `more` unfold. */
void spw_report_write_table(const spw_report *report, const spw_report *more, FILE *out);
void spw_report_write_name(const spw_report *report, const spw_report_row *row, FILE *out);
/* Fits, tight or oom, and whether that is in doubt. */
void spw_report_write_verdict(const spw_report_row *row, FILE *out);
void spw_report_write_cost(const spw_report *report, const spw_report_row *row, FILE *out);
/* A training on so many tokens (0: none is named), which nobody may have said, at a price of a GPU-hour (0: none). */
typedef struct spw_report_training {
    double tokens;
    bool tokens_unsaid;
    double price;
} spw_report_training;
/* The same of any figures. */
void spw_report_write_costs(const spw_report_cost *cost, const spw_report_training *training, FILE *out);
/* What the interval of a row's step is made of, and what each cause means; nothing in a file that does not say. */
void spw_report_write_interval(const spw_report *report, const spw_report_row *row, FILE *out);
/* Sections of their own: of a job that says which stage has which layers, and of a network of several levels. */
void spw_report_write_stages(const spw_report *report, const spw_report_row *row, FILE *out);
void spw_report_write_levels(const spw_report *report, const spw_report_row *row, FILE *out);
void spw_report_write_found(const spw_report *search, const char *name, FILE *out); /* of a search */
void spw_report_write_front(const json_t *root, FILE *out);                         /* its table */
void spw_report_write_misfits(const spw_report *report, FILE *out);                 /* of a plan */
/* A section of the points that two reports have, `first` and `second` the words above the columns; `none` is said where there is no
 * such point, and NULL leaves the section out. */
typedef struct spw_report_beside {
    const char *heading, *first, *second, *none;
} spw_report_beside;
void spw_report_write_beside(const spw_report *a, const spw_report *b, const spw_report_beside *words,
                             FILE *out);
/* The heading, answer and tables of two that stand side by side. */
void spw_report_write_compared(const spw_report *a, const char *a_name, const spw_report *b,
                               const char *b_name, FILE *out);
SPW_MUST_CHECK spw_status spw_report_write_basis(const spw_report *report,
                                                 FILE *out); /* evidence, assumptions, settings, sources */

#endif
