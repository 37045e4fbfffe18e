/* `plan --search`: the best point of a space, those that no other beats, and what became of all the others. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_H
#define SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_H

#include "base/status.h"
#include "sim/command/job_options.h"
#include "sim/command/plan/plan_others.h"
#include "sim/plan/search_run.h"
#include "sim/print/table.h"

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { SPW_SEARCH_OVERS = 16, SPW_SEARCH_TRIES = 4 };

/* What the command line says of a search. */
typedef struct spw_search_options {
    bool asked;
    const char *over[SPW_SEARCH_OVERS]; /* "pipeline=1,2,4" */
    size_t overs;
    const char *splits; /* of --expert-parallel; NULL or "all": every size that divides */
    const char *gpus_at_most, *tokens_per_day, *global_batch_at_most, *checkpoint;
    bool details; /* of a plan as well: what the answer rests on, and what became of all points */
    const spw_framework *flags;     /* print the best point so, in place of tables; NULL: tables */
    size_t global_batch;            /* sequences of all GPUs in a step; 0: any */
    bool batch_of_file;             /* which a file says */
    const spw_framework *others_of; /* whose other schemes are tried beside the best point; NULL: nobody's */
} spw_search_options;

/* A parser of --search and what goes with it, for `children`; its input is the spw_search_options. */
extern const struct argp spw_search_argp;
/* SPW_EARG where something that goes with --search was given without it. */
SPW_MUST_CHECK spw_status spw_search_options_check(const spw_search_options *options);

/* Where a search comes from, as it is printed. */
typedef struct spw_search_origin {
    const char *routing;              /* for a person */
    const spw_run_settings *settings; /* of the base job; its trace is told anew for each number of GPUs */
    char *const *argument;            /* [arguments] words of the command line behind `plan` */
    size_t arguments;
    bool even; /* the routing is as even as chance leaves it */
} spw_search_origin;

/* What is printed of a search. */
typedef struct spw_search_view {
    const spw_search_request *request;
    const spw_search_outcome *outcome;
    size_t gpus_most; /* 0: the job's own */
    const spw_search_outcome
        *larger;  /* where nothing keeps to the budgets: with more GPUs; NULL: not tried, or in vain */
    bool details; /* what the answer rests on, and what became of all points */
    const spw_plan_others *others; /* NULL: not asked */
    bool batch_of_file;            /* the global batch is that of a file */
    size_t tried_gpus;             /* the most that were tried so, with a point that can be; 0: none */
    const spw_search_origin *origin;
} spw_search_view;

/* Takes --global-batch out of the values of the job's keys, as each point of a search has a batch of its own that comes to it; before
 * spw_job_options_finish. */
SPW_MUST_CHECK spw_status spw_search_take_global_batch(spw_job_options *job, spw_search_options *options);
/* After spw_job_options_finish: the global batch that a file says, a job's or a framework's, stays as it is, and so does what a framework's
 * says otherwise; unless an option says what a batch is: then the job has none. */
void spw_search_keep_batch(spw_job_options *o, spw_search_options *search);
/* SPW_EARG where the command line gives a key's own option a value that the key's --over leaves out. */
SPW_MUST_CHECK spw_status spw_search_check_own(const spw_job_options *o, const spw_search_options *search);
/* The job's batches as the search takes them: sorted, each once. */
void spw_search_batches(spw_job *job, const size_t *more, size_t mores, bool given);

/* Runs it and prints. `request` has its plan and its trace; the space is made here. */
SPW_MUST_CHECK spw_status spw_plan_search(const spw_search_options *options,
                                          const spw_search_request *request, const spw_search_origin *origin,
                                          spw_format format, FILE *out);

/* What the last search of this process took, for who measures it. */
spw_search_effort spw_plan_search_effort(void);

/* In plan_search_json.c */
SPW_MUST_CHECK spw_status spw_search_print_json(const spw_search_view *view, FILE *out);
/* In plan_search_print.c: the first lines alone, and all. */
void spw_search_print_brief(const spw_search_view *view, FILE *out);
/* What is to be known of a point before it is run, a line each: how it fits, what may need more or less memory, what is outside the fit. */
void spw_search_print_doubts(const spw_search_view *view, const spw_search_point *point, FILE *out);
SPW_MUST_CHECK spw_status spw_search_print(const spw_search_view *view, spw_format format, FILE *out);

#endif
