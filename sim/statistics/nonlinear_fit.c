#include "sim/statistics/nonlinear_fit.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>

static void find_errors(const spw_nonlinear_fit *f, const gsl_multifit_nlinear_workspace *work,
                        gsl_matrix *covariance, double *error) {
    const double square =
        pow(gsl_blas_dnrm2(gsl_multifit_nlinear_residual(work)), 2.0) / (double)(f->rows - f->parameters);
    gsl_multifit_nlinear_covar(gsl_multifit_nlinear_jac(work), 0.0, covariance);
    for (size_t i = 0; i < f->parameters; i++) error[i] = sqrt(square * gsl_matrix_get(covariance, i, i));
}

static void find_slopes(const spw_nonlinear_fit *f, const gsl_matrix *jacobian, double *slope) {
    for (size_t i = 0; i < f->parameters; i++) {
        slope[i] = 0.0;
        for (size_t r = 0; r < f->data_rows; r++)
            slope[i] = fmax(slope[i], fabs(gsl_matrix_get(jacobian, r, i)));
    }
}

spw_status spw_nonlinear_fit_run(const spw_nonlinear_fit *f, double *value, double *error, double *slope) {
    gsl_multifit_nlinear_parameters how = gsl_multifit_nlinear_default_parameters();
    if (f->step > 0.0) how.h_df = f->step;
    gsl_multifit_nlinear_fdf function = {
        .f = f->residuals, .n = f->rows, .p = f->parameters, .params = f->problem};
    gsl_multifit_nlinear_workspace *work =
        gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &how, f->rows, f->parameters);
    gsl_matrix *covariance = gsl_matrix_alloc(f->parameters, f->parameters);
    const gsl_vector_const_view start = gsl_vector_const_view_array(value, f->parameters);
    spw_status status = SPW_OK;
    if (work == NULL || covariance == NULL)
        SPW_TRY(spw_fail(SPW_ENOMEM, "no memory for a fit of %zu rows", f->rows));
    int info = 0, code = gsl_multifit_nlinear_init(&start.vector, &function, work);
    if (code == GSL_SUCCESS)
        code = gsl_multifit_nlinear_driver(f->iterations, f->tolerance, f->tolerance, 0.0, NULL, NULL, &info,
                                           work);
    if (code != GSL_SUCCESS && code != GSL_ENOPROG)
        SPW_TRY(spw_fail(SPW_EMISMATCH, "the fit did not converge: %s", gsl_strerror(code)));
    for (size_t i = 0; i < f->parameters; i++)
        value[i] = gsl_vector_get(gsl_multifit_nlinear_position(work), i);
    if (error != NULL) find_errors(f, work, covariance, error);
    if (slope != NULL) find_slopes(f, gsl_multifit_nlinear_jac(work), slope);

cleanup:
    gsl_matrix_free(covariance);
    gsl_multifit_nlinear_free(work);
    return status;
}
