/* Nonlinear least squares with GSL's trust region: the one way in which coefficients are fitted. */
#ifndef SPW_SIM_STATISTICS_NONLINEAR_FIT_H
#define SPW_SIM_STATISTICS_NONLINEAR_FIT_H

#include "base/status.h"

#include <gsl/gsl_vector.h>
#include <stddef.h>

typedef struct spw_nonlinear_fit {
    int (*residuals)(const gsl_vector *x, void *problem, gsl_vector *out); /* out [rows]; GSL_SUCCESS */
    void *problem;
    size_t rows, parameters; /* more rows than parameters */
    double step;             /* of the differences that stand for derivatives; 0: GSL's own */
    size_t iterations;
    double tolerance; /* of a step and of the gradient */
    size_t data_rows; /* for `slope` */
} spw_nonlinear_fit;

/* value [parameters]: where it begins, and what it finds. error [parameters] or NULL: standard errors. slope [parameters] or
 * NULL: the largest derivative of the first data_rows residuals, without sign. SPW_EMISMATCH when it does not converge. */
SPW_MUST_CHECK spw_status spw_nonlinear_fit_run(const spw_nonlinear_fit *fit, double *value, double *error,
                                                double *slope);

#endif
