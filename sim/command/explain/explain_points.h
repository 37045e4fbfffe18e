/* The points that `explain` goes through, batches x schemes of the job: for a person a table each, else one of all rows. */
#ifndef SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_POINTS_H
#define SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_POINTS_H

#include "base/status.h"
#include "sim/command/job_options.h"
#include "sim/print/table.h"

#include <stddef.h>

typedef struct spw_explain_point {
    const spw_job *job;
    const spw_scheme *scheme;
    size_t sequences;     /* of a GPU */
    size_t batch, number; /* positions in the job's batches and schemes */
} spw_explain_point;

typedef struct spw_explanation {
    const spw_column *columns;
    void *state;                                                                      /* handed on */
    spw_status (*add)(void *state, const spw_explain_point *point, spw_table *table); /* its rows */
    void (*head)(void *state, const spw_explain_point *point); /* prints what stands above them */
} spw_explanation;

SPW_MUST_CHECK spw_status spw_explain_points(const spw_job_options *options, const spw_explanation *what);

#endif
