/* Fits the coefficients of a family of time stacks (sim/machine/time_stack.h) to tables of published runs and profiles.
 *
 * Least squares (GSL, Levenberg-Marquardt) over log(predicted / true) of the step of every run, and of the seconds of
 * every family of kernels, which count KERNEL_WEIGHT times: a profile is right to some 10 %, a step to some 3 %. All
 * stacks have the coefficients in common; what differs between them is published (gather_limit_gib). Every coefficient
 * is held to where the fit begins by its `hold` times the logarithm, so what the tables do not speak of stays. Runs under a
 * remat policy other than full are not fitted. What real text adds is fitted to what it adds: a run on real text
 * counts by its ratio to the same run on synthetic data in its table, where there is one. */
#ifndef SPW_SIM_CALIBRATE_CALIBRATE_TIME_H
#define SPW_SIM_CALIBRATE_CALIBRATE_TIME_H

#include "sim/score/published/score.h"

enum { SPW_CALIBRATE_TIME_STACKS = 8, SPW_TIME_LABEL_TEXT = 128 };

/* What can be left out: all rows with one name under one label. */
#define SPW_TIME_LABEL_LIST(X) \
    X(TABLE, "table") \
    X(SCHEME, "scheme") X(ROUTING, "routing") X(NODES, "nodes of a group") X(SEQUENCES, "sequences a GPU")
#define SPW_TIME_LABEL_ENUM(name, text) SPW_TIME_LABEL_##name,
typedef enum spw_time_label { SPW_TIME_LABEL_LIST(SPW_TIME_LABEL_ENUM) SPW_TIME_LABELS } spw_time_label;
#undef SPW_TIME_LABEL_ENUM
const char *spw_time_label_name(spw_time_label label);

typedef struct spw_calibrate_time_request {
    const char *const *tables;
    size_t table_count;
    const char *const *stacks; /* presets or files: names, and what is not fitted */
    size_t stack_count;
    const char *const *left_out; /* ids of rows not to fit */
    size_t left_out_count;
} spw_calibrate_time_request;

/* The runs of a name, by a fit without them (and without its profiles) and the interval that such a fit has. */
typedef struct spw_time_left_out {
    spw_time_label label;
    char name[SPW_TIME_LABEL_TEXT];
    size_t runs;                        /* with a speed */
    size_t inside;                      /* of these, in the interval */
    double mape, max_error, half_width; /* of the step; half_width: mean over the runs, of the logarithm */
    bool tried;                         /* enough runs were left to fit */
    spw_time_stack stack;               /* by the fit without it */
} spw_time_left_out;

/* One run of one name that was left out. */
typedef struct spw_time_verdict {
    size_t group, row;
    double error;      /* log(predicted / true) of the step */
    double half_width; /* of the interval on the side where the truth lies, as a logarithm */
} spw_time_verdict;

typedef struct spw_time_calibration {
    spw_score score;     /* all rows of the tables, predicted by the fitted stacks */
    unsigned char *used; /* [score.rows] 1: fitted */
    size_t runs, kernels, other_stack, left_out, not_full, silent; /* silent: no speed */
    spw_time_stack stack[SPW_CALIBRATE_TIME_STACKS];
    size_t stacks;
    double mape, max_error;   /* of the fitted runs' tokens/s */
    spw_time_left_out *group; /* [groups] by label; none of a label that has one name only */
    size_t groups;
    spw_time_verdict *verdict; /* [verdicts] */
    size_t verdicts;
    /* the fit's own memory */
    spw_routing_layer *load; /* [score.rows] of synthetic data */
    size_t *partner;         /* [score.rows] the run on synthetic data; the row itself when there is none */
} spw_time_calibration;

/* SPW_ECONFIG when the tables have fewer rows for the stacks than there are coefficients. Closed by
 * spw_time_calibration_close. */
SPW_MUST_CHECK spw_status spw_calibrate_time(const spw_calibrate_time_request *request,
                                             spw_time_calibration *out);
void spw_time_calibration_close(spw_time_calibration *calibration);

#endif
