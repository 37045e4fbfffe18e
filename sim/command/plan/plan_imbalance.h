/* `plan --imbalance`: what is stated, at which expert-parallel size, and how it is printed. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_IMBALANCE_H
#define SPW_SIM_COMMAND_PLAN_PLAN_IMBALANCE_H

#include "sim/job/job_words.h"
#include "sim/print/json_values.h"
#include "sim/routing/imbalance_law.h"

#include <stdio.h>

/* As written on the command line. */
typedef struct spw_stated {
    double max_over_mean;
    size_t expert; /* where it was measured; 0: unsaid */
} spw_stated;

/* "1.5" or "max_over_mean=1.5,ep=8". SPW_EARG. */
SPW_MUST_CHECK spw_status spw_stated_parse(const char *text, spw_stated *out);

/* The law of a plan. Unless the option says where, the number is that of the first size of --expert-parallel (`splits`, NULL: not
 * given; a list makes its first size the job's), else of the job's own. SPW_ECONFIG where that size cannot be so uneven. */
SPW_MUST_CHECK spw_status spw_stated_open(const spw_stated *stated, const spw_job *job, const char *splits,
                                          spw_imbalance_law *out);

/* "imbalance 2.00 at EP 8; EP 1: 1.00, ...": the sizes of at most `gpus` ranks. NULL prints nothing. */
void spw_stated_print(const spw_imbalance_law *law, size_t gpus, FILE *out);
/* null of NULL. */
json_t *spw_stated_json(spw_json *json, const spw_imbalance_law *law);

#endif
