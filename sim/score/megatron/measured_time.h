/* The steps of measured runs, read for sim/time/megatron/megatron_time.h. Columns: notebooks_data/measured/README.md. */
#ifndef SPW_SIM_SCORE_MEGATRON_MEASURED_TIME_H
#define SPW_SIM_SCORE_MEGATRON_MEASURED_TIME_H

#include "sim/score/megatron/measured_score.h"
#include "sim/time/megatron/megatron_time.h"

enum { SPW_MEASURED_NO_RUN = -1 };
#define SPW_MEASURED_STACK "megatron-h200-2026-11" /* of the measured tables */

/* Tables by kind, without ceilings. Phases without a table of runs bring the one beside them: "phases" in the file's name becomes "runs". */
typedef struct spw_measured_tables {
    const char **run, **phase; /* paths; live as long as those they came from and this struct */
    size_t runs, phases;
    char *beside; /* owned */
} spw_measured_tables;
/* SPW_EARG when a table is OTHER, or none has runs or phases. Freed by spw_measured_tables_free. */
SPW_MUST_CHECK spw_status spw_measured_tables_sort(const char *const *tables, size_t count,
                                                   spw_measured_tables *out);
void spw_measured_tables_free(spw_measured_tables *tables);

typedef struct spw_measured_time_run {
    const char *run, *model, *routing; /* live as long as the tables */
    size_t table, line;                /* of its first row */
    uint64_t repeat;
    size_t ranks;
    spw_megatron_shape shape;
    bool sequential;
    spw_megatron_load *load; /* [layers][ranks]; complete after spw_measured_time_predict */
    double *expert_rows;     /* [layers][ranks][experts_per_rank], what the table leaves open guessed */
    double true_forward_s, true_backward_s;   /* of the slowest rank */
    double true_step_s;                       /* NAN: a rank is missing, and nothing can be said */
    double true_phase_s[SPW_MEGATRON_PHASES]; /* mean over ranks, sum over layers; NAN where no table says */
    long
        partner; /* the dropless balanced run of its shape in its table, of its own kind and repeat if there is one;
                     SPW_MEASURED_NO_RUN for such a run itself, and where there is none */
    spw_megatron_time time; /* by spw_measured_time_predict */
    double half_width;      /* of the interval of time.step_s, as a logarithm; by the same */
} spw_measured_time_run;

typedef struct spw_measured_csv {
    spw_csv *csv;
    long *
        run_of_row; /* [rows] of a table of runs; SPW_MEASURED_NO_RUN in one without steps. NULL: a table of phases */
} spw_measured_csv;

typedef struct spw_measured_time {
    spw_measured_csv *table; /* [tables] of runs, then [phase_tables] of phases */
    size_t tables, phase_tables;
    spw_measured_time_run *run;
    size_t runs;
} spw_measured_time;

/* Reads tables of runs, and of the phases of those runs. SPW_EFORMAT when a phase belongs to no run. Closed by
 * spw_measured_time_close. */
SPW_MUST_CHECK spw_status spw_measured_time_open(const char *const *runs, size_t run_count,
                                                 const char *const *phases, size_t phase_count,
                                                 spw_measured_time *out);
void spw_measured_time_close(spw_measured_time *time);

#endif
