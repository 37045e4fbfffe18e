/* A measured run of a whole model under Megatron-Core: its job, and who chose which expert. A run is as many rows as it had GPUs,
 * rank after rank. No job says whether experts run together or one behind the other (experts_module). Columns: notebooks_data/README.md. */
#ifndef SPW_SIM_SCORE_WHOLE_WHOLE_CELL_H
#define SPW_SIM_SCORE_WHOLE_WHOLE_CELL_H

#include "sim/job/job.h"
#include "sim/schemes/point.h"
#include "sim/score/megatron/measured_traces.h"
#include "sim/score/whole/whole_model.h"

enum { SPW_WHOLE_GPUS = 64 };

typedef enum spw_whole_rows {
    SPW_WHOLE_ROWS_AS_MEASURED, /* from the table, spread evenly over a rank's experts and over those who send */
    SPW_WHOLE_ROWS_COMPOSED,    /* from the routing's name and the traces; they are the table's */
    SPW_WHOLE_ROWS_DIFFER       /* composed, and not the table's */
} spw_whole_rows;
const char *spw_whole_rows_name(spw_whole_rows rows);

typedef struct spw_whole_cell {
    size_t first, gpus;             /* rows of the table */
    const char *name, *routing;     /* the table's */
    char skipped[SPW_WHOLE_REASON]; /* why it is not predicted; "" */
    spw_job job;
    spw_scheme scheme;
    spw_whole_rows rows;
    uint64_t *routed; /* [MoE layers][gpus][experts] assignments of a GPU to an expert */
} spw_whole_cell;

/* The run that begins in row `row`, on GPUs of `cluster`. Closed by spw_whole_cell_close. SPW_ECONFIG with file, line and column where a field is none,
 * SPW_EFORMAT for a column that is not there. What is no job that can be asked is `skipped`. */
SPW_MUST_CHECK spw_status spw_whole_cell_read(const spw_csv *csv, size_t row, const char *cluster,
                                              spw_measured_traces *traces, spw_whole_cell *out);
void spw_whole_cell_close(spw_whole_cell *cell); /* a zeroed one is fine */

spw_point spw_whole_cell_point(const spw_whole_cell *cell);

#endif
