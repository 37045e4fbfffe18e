/* A row of a table of published training runs as a job and a scheme.
 *
 * Columns decide; what they do not say comes from the row's command (a call of spillway, as far as one could be written), and what
 * neither says from what recipes of that source set (run_terms.h). Every key remembers which of the three it is from. */
#ifndef SPW_SIM_SCORE_RUNS_RUN_JOB_H
#define SPW_SIM_SCORE_RUNS_RUN_JOB_H

#include "sim/job/job_words.h"
#include "sim/read/csv.h"
#include "sim/schemes/scheme.h"
#include "sim/score/runs/run_command.h"
#include "sim/score/runs/run_model.h"
#include "sim/score/runs/run_terms.h"

typedef enum spw_run_origin {
    SPW_RUN_FROM_COLUMNS,
    SPW_RUN_FROM_COMMAND,
    SPW_RUN_ASSUMED,
    SPW_RUN_ORIGINS
} spw_run_origin;
const char *spw_run_origin_name(spw_run_origin origin); /* "columns", "command", "assumed" */

enum {
    SPW_RUN_SETTINGS = 64,
    SPW_RUN_NUMBERS = 12,
    SPW_RUN_NUMBER = 32,
    SPW_RUN_REASON = 512,
    SPW_RUN_ID = 96
};

typedef struct spw_run_setting {
    const char *key, *value; /* of the job */
    spw_run_origin origin;
} spw_run_setting;

typedef struct spw_run_sizes {
    size_t gpus, tensor, pipeline, context, virtual_stages, expert, micro_batch, global_batch,
        sequence_length;
} spw_run_sizes;

/* What a row asks. Texts are the table's, the command's, or its own. */
typedef struct spw_run_question {
    char id[SPW_RUN_ID];
    const char *source, *model, *hardware, *precision, *dispatcher, *remat, *graph, *ep_overlap, *notes;
    spw_run_sizes size;
    spw_run_setting setting[SPW_RUN_SETTINGS];
    size_t settings;
    char scheme[SPW_SCHEME_TEXT];
    const char *refused; /* why no job says all of it; NULL: one does */
    const char *routing; /* the generator's name; NULL: every expert is chosen alike */
    spw_run_command command;
    char cluster[SPW_RUN_ID], model_path[SPW_RUN_MODEL_PATH], number[SPW_RUN_NUMBERS][SPW_RUN_NUMBER];
    size_t numbers;
} spw_run_question;

/* Reads a row. What no table of runs has there is SPW_ECONFIG with "file:line: column 'text'; what would be right", a column that is not
 * there SPW_EFORMAT. A row whose words are not known is no error: `reason` [SPW_RUN_REASON] says what is not, else it is "".
 * Closed by spw_run_question_close, whatever it returned. */
SPW_MUST_CHECK spw_status spw_run_question_read(const spw_csv *csv, size_t row, spw_run_question *out,
                                                char *reason);
void spw_run_question_close(spw_run_question *question); /* a zeroed one is fine */

/* The job and its scheme, checked as `plan` does. SPW_ECONFIG: there is none. */
SPW_MUST_CHECK spw_status spw_run_question_job(const spw_run_question *question, spw_job *job,
                                               spw_scheme *scheme);

#endif
