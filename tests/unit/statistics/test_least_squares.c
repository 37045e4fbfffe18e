/* Least squares against closed forms: a line, whose coefficients and their errors are known, a curve without scatter, and what is held; and the interval
 * of a share of steps against sums of binomials. */
#include "sim/statistics/nonlinear_fit.h"
#include "sim/statistics/oom_probability.h"

#include "tests/unit/check.h"

#include <gsl/gsl_errno.h>
#include <math.h>

enum { POINTS = 9 };

typedef struct points {
    double x[POINTS], y[POINTS];
    double hold; /* of the slope, in a last row */
    size_t asked;
} points;

static int line(const gsl_vector *x, void *problem, gsl_vector *out) {
    points *p = problem;
    p->asked++;
    for (size_t i = 0; i < POINTS; i++)
        gsl_vector_set(out, i, gsl_vector_get(x, 0) + gsl_vector_get(x, 1) * p->x[i] - p->y[i]);
    if (out->size > POINTS) gsl_vector_set(out, POINTS, p->hold * gsl_vector_get(x, 1));
    return GSL_SUCCESS;
}

static int curve(const gsl_vector *x, void *problem, gsl_vector *out) {
    const points *p = problem;
    for (size_t i = 0; i < POINTS; i++)
        gsl_vector_set(out, i, gsl_vector_get(x, 0) * exp(gsl_vector_get(x, 1) * p->x[i]) - p->y[i]);
    return GSL_SUCCESS;
}

static int none(const gsl_vector *x, void *problem, gsl_vector *out) {
    (void)x;
    (void)problem;
    (void)out;
    return GSL_EFAILED;
}

static points sample(void) {
    static const double scatter[POINTS] = {0.3, -0.1, 0.2, -0.4, 0.1, 0.05, -0.35, 0.15, 0.05};
    points p = {.hold = 3.0};
    for (size_t i = 0; i < POINTS; i++) {
        p.x[i] = 0.5 * (double)i - 1.0;
        p.y[i] = 2.0 - 1.5 * p.x[i] + scatter[i];
    }
    return p;
}

/* The line through the points, and its errors, by sums. `hold`: another row hold * slope. */
static void by_sums(const points *p, double hold, double value[2], double error[2]) {
    double n = POINTS, sx = 0.0, sxx = hold * hold, sy = 0.0, sxy = 0.0, squares = 0.0;
    for (size_t i = 0; i < POINTS; i++) {
        sx += p->x[i], sxx += p->x[i] * p->x[i];
        sy += p->y[i], sxy += p->x[i] * p->y[i];
    }
    const double det = n * sxx - sx * sx;
    value[1] = (n * sxy - sx * sy) / det;
    value[0] = (sy - value[1] * sx) / n;
    for (size_t i = 0; i < POINTS; i++) squares += pow(value[0] + value[1] * p->x[i] - p->y[i], 2.0);
    squares += pow(hold * value[1], 2.0);
    const double square = squares / (n + (hold > 0.0 ? 1.0 : 0.0) - 2.0);
    error[0] = sqrt(square * sxx / det);
    error[1] = sqrt(square * n / det);
}

static void test_line(size_t held, double step) {
    points p = sample();
    double value[2] = {-7.0, 20.0}, error[2], slope[2], want[2], errors[2];
    const spw_nonlinear_fit fit = {.residuals = line,
                                   .problem = &p,
                                   .rows = POINTS + held,
                                   .parameters = 2,
                                   .step = step,
                                   .iterations = 50,
                                   .tolerance = 1e-10,
                                   .data_rows = POINTS};
    by_sums(&p, held ? p.hold : 0.0, want, errors);
    CHECK(spw_nonlinear_fit_run(&fit, value, error, slope) == SPW_OK);
    for (size_t i = 0; i < 2; i++) {
        CHECK(fabs(value[i] - want[i]) < 1e-6);
        CHECK(fabs(error[i] - errors[i]) < 1e-5 * errors[i]);
    }
    CHECK(fabs(slope[0] - 1.0) < 1e-6);
    CHECK(fabs(slope[1] - 3.0) <
          1e-6); /* x of the last point; without the row that holds, which has 3, or here 30 */
    p.hold = 30.0, value[0] = 1.0, value[1] = -1.0;
    CHECK(spw_nonlinear_fit_run(&fit, value, NULL, slope) == SPW_OK);
    CHECK(fabs(slope[1] - 3.0) < 1e-5);
}

static void test_curve(void) {
    points p = sample();
    double value[2] = {1.0, 0.1}, error[2];
    for (size_t i = 0; i < POINTS; i++) p.y[i] = 0.7 * exp(0.45 * p.x[i]);
    spw_nonlinear_fit fit = {.residuals = curve,
                             .problem = &p,
                             .rows = POINTS,
                             .parameters = 2,
                             .iterations = 100,
                             .tolerance = 1e-10};
    CHECK(spw_nonlinear_fit_run(&fit, value, error, NULL) == SPW_OK);
    CHECK(fabs(value[0] - 0.7) < 1e-7 && fabs(value[1] - 0.45) < 1e-7);
    CHECK(error[0] < 1e-6 && error[1] < 1e-6);
    value[0] = 40.0, value[1] = -3.0, fit.iterations = 1;
    CHECK(spw_nonlinear_fit_run(&fit, value, NULL, NULL) == SPW_EMISMATCH);
    fit.residuals = none;
    CHECK(spw_nonlinear_fit_run(&fit, value, error, NULL) == SPW_EMISMATCH);
}

/* A step is as wide as asked: of a broken line the slope is that of the chord. */
static int corner(const gsl_vector *x, void *problem, gsl_vector *out) {
    (void)problem;
    const double at = gsl_vector_get(x, 0);
    gsl_vector_set(out, 0, at - 0.999);
    gsl_vector_set(out, 1, at > 1.05 ? 100.0 * (at - 1.05) : 0.0);
    return GSL_SUCCESS;
}

static void test_step(void) {
    double value[1] = {1.0}, slope[1];
    spw_nonlinear_fit fit = {
        .residuals = corner, .rows = 2, .parameters = 1, .iterations = 50, .tolerance = 1e-4, .data_rows = 2};
    CHECK(spw_nonlinear_fit_run(&fit, value, NULL, slope) == SPW_OK);
    CHECK(fabs(slope[0] - 1.0) < 1e-6);
    value[0] = 1.0, fit.step = 0.1;
    CHECK(spw_nonlinear_fit_run(&fit, value, NULL, slope) == SPW_OK);
    CHECK(fabs(slope[0] - 50.0) < 1.5);
}

static double binomial_at_most(size_t k, size_t n, double p) {
    double sum = 0.0;
    for (size_t i = 0; i <= k; i++)
        sum += exp(lgamma((double)n + 1.0) - lgamma((double)i + 1.0) - lgamma((double)(n - i) + 1.0) +
                   (double)i * log(p) + (double)(n - i) * log1p(-p));
    return sum;
}

/* At `low` so many failures or more have the chance 0.025, at `high` so many or fewer. */
static void test_oom_probability(void) {
    for (size_t n = 1; n <= 700; n = n * 2 + 1) {
        for (size_t k = 0; k <= n; k += 1 + n / 7) {
            const spw_probability p = spw_oom_probability(k, n);
            CHECK(fabs(p.value - (double)k / (double)n) < 1e-15);
            CHECK(p.low <= p.value && p.value <= p.high);
            CHECK(k == 0 ? p.low == 0.0 : fabs(1.0 - binomial_at_most(k - 1, n, p.low) - 0.025) < 1e-8);
            CHECK(k == n ? p.high == 1.0 : fabs(binomial_at_most(k, n, p.high) - 0.025) < 1e-8);
        }
        const spw_probability all = spw_oom_probability(n, n);
        CHECK(all.high == 1.0 && fabs(pow(all.low, (double)n) - 0.025) < 1e-9);
    }
    CHECK(fabs(spw_beta_quantile(0.3, 1.0, 1.0) - 0.3) < 1e-12);
    CHECK(fabs(spw_beta_quantile(0.25, 2.0, 1.0) - 0.5) < 1e-12);
    CHECK(fabs(spw_beta_quantile(0.75, 1.0, 2.0) - 0.5) < 1e-12);
}

int main(void) {
    for (size_t held = 0; held < 2; held++) {
        test_line(held, 0.0);
        test_line(held, 1e-3);
    }
    test_curve();
    test_step();
    test_oom_probability();
    return check_done();
}
