/* The summary of a result file, checked and taken apart: what the tables and the pictures of a report are made of. */
#ifndef SPW_SIM_REPORT_REPORT_ROWS_H
#define SPW_SIM_REPORT_REPORT_ROWS_H

#include "base/status.h"
#include "sim/memory/compiled/newest_arena.h"
#include "sim/report/result_pictures.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct spw_report_quantiles {
    double p50, p99, most; /* bytes */
} spw_report_quantiles;

/* A number and its interval; NAN: not said. */
typedef struct spw_report_figure {
    double value, low, high;
} spw_report_figure;

/* What a row's speed means to whoever pays. days, gpu_hours and money: of the training that was asked for. */
typedef struct spw_report_cost {
    spw_report_figure tokens_per_day, flops, mfu, days, gpu_hours, money;
} spw_report_cost;

/* One row of the summary. Texts live as long as the report. Numbers are finite and not below 0. */
typedef struct spw_report_row {
    const char *scheme, *kind, *evidence; /* kind of memory: "live" or "arena" */
    const char *moment;                   /* of the peak; "": not said */
    double sequences, steps, layers;
    double expert, fsdp; /* the split */
    bool front;          /* no other row beats it in memory, speed and drops */
    spw_verdict verdict;
    spw_newest_arena newest; /* where the memory is what must be live alone */
    bool surely_fits;        /* as the replay judged; by its interval in a file that does not say */
    double most;             /* bytes that it may take; NAN: not said or not known */
    json_t *outside_fit;     /* list of what the coefficients were not fitted on; NULL: nothing */
    double outside, outside_low, outside_high; /* bytes of the GPU outside of the allocator; NAN: not said */
    double resident;                           /* the same of what stays beside the process */
    double budget, argument, peak, low, high;  /* bytes; low to high: the interval of the peak */
    spw_report_quantiles held;                 /* bytes, over ranks and steps */
    double oom, oom_low, oom_high;             /* probability that a step runs out of memory, 95 % interval */
    bool replayed;                             /* PyTorch's allocator was */
    spw_report_quantiles allocated, reserved;
    const char *advice; /* "": none */
    double dropped, fraction;
    double dispatch, combine, port, step_bytes, whole_bytes; /* whole_bytes NAN: not known */
    double rows_max, rows_mean;
    json_t *stages,
        *levels;    /* lists of what pipeline stages and levels of the network have; NULL: not said */
    json_t *doubts; /* causes of the interval of the step by name: shares of the step; NULL: not said */
    const char *slowest_level; /* "": not said */
    bool timed;
    double step_s, low_s, high_s, tokens, tokens_low, tokens_high; /* of one GPU and second */
    double balanced_s, balanced_low, balanced_high;                /* low 0: not said */
    spw_report_figure
        over_balanced; /* the step over that of balanced routing; NAN: no time; ends 0: not said */
    spw_report_cost cost;
    json_t *
        components[3]; /* memory, traffic, time: objects of name: bytes, bytes, seconds that are waited for */
    bool overloaded;   /* overload factors are there: means over the steps, and the largest `max` of a step */
    double slowest_rank, slowest_by_layer, overload_max, overload_worst;
    double overload_s; /* the step if every layer were as uneven as slowest_by_layer; NAN: no time */
    const spw_result_picture *picture; /* NULL: the file has none */
} spw_report_row;

typedef struct spw_report_timeline spw_report_timeline; /* sim/report/report_timeline.h */

typedef struct spw_report {
    const char
        *mark; /* behind the names that links of the page go to, where it has two results; NULL: none */
    double drop_most; /* share of the assignments that what is called best may drop; the reader sets it */
    bool pictured;    /* by a result.h5: the JSON of a plan or a replay has no pictures */
    bool planned;     /* by a plan */
    spw_result_pictures pictures;
    json_t *root;        /* without the rows */
    json_t *plan;        /* `plan` of the file; an object where `planned` */
    json_t *kept;        /* what rows point to */
    json_t *assumptions; /* every sentence of every row, once: an object of them */
    double tokens;       /* of the training that the plan was asked for; 0: none */
    bool splits;         /* the rows differ in their split */
    spw_report_row *row; /* [rows] */
    size_t rows;
    size_t left_out; /* rows that a selection has nowhere */
    bool answered;   /* the file says which rows answer what: since version 1.2 */
    size_t *order;   /* [fits] positions of the rows that fit, the best first */
    size_t fits, least_memory;
    const char *precision_note;                    /* what is to be said of number formats; NULL: nothing */
    double least_sequences, most_sequences;        /* of the rows: one batch when they are equal */
    const char *model, *cluster, *remat, *offload; /* offload: NULL where nothing is */
    double expert, fsdp, pipeline, gpus, sequence_length, memory_fraction, hbm_gib;
    spw_report_timeline *timeline; /* NULL: the file has none */
    json_t *settings, *trace;      /* trace: an object or null */
    bool searched;                 /* by a search: it has no rows, but plans of points */
    struct spw_report *point;      /* [points] */
    size_t points;
    json_t *sources; /* NULL: the file is of version 1.0 and has none */
} spw_report;

/* Reads a result file, or the JSON of a plan or a replay. SPW_EIO, SPW_EFORMAT: names the file and what is wrong with it. */
SPW_MUST_CHECK spw_status spw_report_read(const char *path, spw_report *out);
void spw_report_clear(spw_report *report); /* a zeroed one is fine */

void spw_report_shape(spw_report *report);              /* least and most sequences, splits: from the rows */
bool spw_report_is_generated(const spw_report *report); /* the routing, which nobody recorded then */
bool spw_report_has_batches(const spw_report *report);  /* several */
/* The first row of the replay's order that drops at most the share `most` of the assignments (0: nothing), of those that
 * surely fit if so asked; NULL when there is none, or no order. */
const spw_report_row *spw_report_best(const spw_report *report, double most, bool surely);
/* What it says best: the first of the order that drops little, the first of the order, or the row that needs least memory. */
const spw_report_row *spw_report_first(const spw_report *report);
/* Reports of some of the rows, in which all but `row`, the caller's to spw_free(), is borrowed: those that are drawn (of a plan,
 * the best of each scheme), those of the table (of a plan, the front), and those that fold below it. All rows where there are few.
 * SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_report_select(const spw_report *report, spw_report *drawn, spw_report *listed,
                                            spw_report *more);
bool spw_report_row_live(const spw_report_row *row); /* of what must be live alone, a lower bound */
bool spw_report_row_fits(const spw_report_row *row); /* tight fits, too */
/* "may not fit" where it fits, but not surely; of a replayed allocator the steps say it. */
const char *spw_report_row_doubt(const spw_report_row *row);

#endif
