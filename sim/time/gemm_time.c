#include "sim/time/gemm_time.h"

#include "base/memory.h"
#include "sim/machine/stack_defaults.h"

#include <gsl/gsl_interp.h>
#include <math.h>

#define START_S (spw_default_gemm_start_s.value)
enum { STEFFEN_POINTS = 3 };

typedef struct machine {
    double flops, bytes_per_s;
} machine;

/* The points of one shape: share of the roofline over log(rows), by pass. */
typedef struct curve {
    size_t points;
    double log_in, log_out;
    double log_rows[SPW_GEMM_POINTS], share[SPW_GEMM_PASSES][SPW_GEMM_POINTS];
    gsl_interp *by_pass[SPW_GEMM_PASSES]; /* NULL for a single point */
} curve;

struct spw_gemm_curves {
    machine machine;
    curve *curve;
    size_t curves;
};

static double roof_s(const machine *m, double rows, double in, double out) {
    return fmax(2.0 * rows * in * out / m->flops, 2.0 * (in * out + rows * (in + out)) / m->bytes_per_s);
}

static double measured_flops(const spw_gemm_points *g, size_t point, spw_gemm_pass pass) {
    const size_t *const by_pass[] = {g->forward_tflops, g->input_gradient_tflops, g->weight_gradient_tflops};
    return 1e12 * (double)by_pass[pass][point];
}

static curve *curve_of(spw_gemm_curves *c, const spw_gemm_points *g, size_t point) {
    const double log_in = log((double)g->in[point]), log_out = log((double)g->out[point]);
    for (size_t i = 0; i < c->curves; i++) {
        if (c->curve[i].log_in == log_in && c->curve[i].log_out == log_out) return &c->curve[i];
    }
    curve *made = &c->curve[c->curves++];
    made->log_in = log_in;
    made->log_out = log_out;
    return made;
}

/* A shape's points may stand apart in the lists: they are put in order of their rows. */
static void add_point(const spw_gemm_curves *c, curve *to, const spw_gemm_points *g, size_t point) {
    const double rows = (double)g->rows_per_expert[point], in = (double)g->in[point],
                 out = (double)g->out[point];
    size_t at = to->points++;
    for (; at > 0 && to->log_rows[at - 1] > log(rows); at--) {
        to->log_rows[at] = to->log_rows[at - 1];
        for (size_t p = 0; p < SPW_GEMM_PASSES; p++) to->share[p][at] = to->share[p][at - 1];
    }
    to->log_rows[at] = log(rows);
    for (spw_gemm_pass p = 0; p < SPW_GEMM_PASSES; p++) {
        const double expert_s = 2.0 * rows * in * out / measured_flops(g, point, p);
        to->share[p][at] = (roof_s(&c->machine, rows, in, out) + START_S) / expert_s;
    }
}

static spw_status interpolate(curve *c) {
    for (size_t i = 1; i < c->points; i++) {
        if (c->log_rows[i] <= c->log_rows[i - 1])
            return spw_fail(SPW_ECONFIG, "points of a grouped GEMM %.0f x %.0f: %.0f rows are given twice",
                            exp(c->log_in), exp(c->log_out), exp(c->log_rows[i]));
    }
    for (size_t p = 0; p < SPW_GEMM_PASSES && c->points > 1; p++) {
        c->by_pass[p] =
            gsl_interp_alloc(c->points >= STEFFEN_POINTS ? gsl_interp_steffen : gsl_interp_linear, c->points);
        if (c->by_pass[p] == NULL || gsl_interp_init(c->by_pass[p], c->log_rows, c->share[p], c->points) != 0)
            return spw_fail(SPW_ENOMEM, "no memory for the points of a grouped GEMM");
    }
    return SPW_OK;
}

spw_status spw_gemm_curves_create(const spw_cluster *cluster, spw_gemm_curves **out) {
    spw_gemm_curves *c = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &c));
    c->machine = (machine){cluster->bf16_flops.value, cluster->hbm_bytes_per_s.value};
    SPW_TRY(SPW_ALLOC(cluster->gemm.points > 0 ? cluster->gemm.points : 1, &c->curve));
    for (size_t i = 0; i < cluster->gemm.points; i++)
        add_point(c, curve_of(c, &cluster->gemm, i), &cluster->gemm, i);
    for (size_t i = 0; i < c->curves; i++) SPW_TRY(interpolate(&c->curve[i]));
    *out = c;
    c = NULL;

cleanup:
    spw_gemm_curves_destroy(c);
    return status;
}

void spw_gemm_curves_destroy(spw_gemm_curves *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < c->curves; i++) {
        for (size_t p = 0; p < SPW_GEMM_PASSES; p++) gsl_interp_free(c->curve[i].by_pass[p]);
    }
    spw_free(c->curve);
    spw_free(c);
}

static double share_of_shape(const curve *c, double log_rows, spw_gemm_pass pass) {
    const double x = fmin(fmax(log_rows, c->log_rows[0]), c->log_rows[c->points - 1]);
    if (c->by_pass[pass] == NULL) return c->share[pass][0];
    return gsl_interp_eval(c->by_pass[pass], c->log_rows, c->share[pass], x, NULL);
}

static double share_of(const spw_gemm_curves *c, double rows, double in, double out, spw_gemm_pass pass) {
    static const double NEAR = 1e-9; /* of a shape that was measured: it decides alone */
    double sum = 0.0, weights = 0.0;
    for (size_t i = 0; i < c->curves; i++) {
        const double x = c->curve[i].log_in - log(in), y = c->curve[i].log_out - log(out);
        const double weight = 1.0 / (x * x + y * y + NEAR);
        sum += weight * share_of_shape(&c->curve[i], log(fmax(rows, 1.0)), pass);
        weights += weight;
    }
    return sum / weights;
}

static double without_points_s(const machine *m, double rows, double in, double out) {
    const double tiles = ceil(rows / SPW_GEMM_TILE_ROWS) * SPW_GEMM_TILE_ROWS;
    return fmax(2.0 * tiles * in * out / (spw_default_gemm_efficiency.value * m->flops),
                roof_s(m, rows, in, out));
}

/* Rows that are paid for. */
static uint64_t in_tiles(uint64_t rows, spw_gemm_pass pass) {
    const uint64_t tile = pass == SPW_GEMM_WEIGHT_GRADIENT ? SPW_GEMM_TILE_TERMS : SPW_GEMM_TILE_ROWS;
    return rows <= tile ? rows : (rows + tile - 1) / tile * tile;
}

double spw_gemm_seconds(const spw_gemm_curves *c, const uint64_t *rows, size_t experts, size_t in, size_t out,
                        spw_gemm_pass pass) {
    const double i = (double)in, o = (double)out;
    double seconds = 0.0, last_rows = -1.0, last_s = 0.0;
    for (size_t e = 0; e < experts; e++) {
        const double n = (double)in_tiles(rows[e], pass);
        if (rows[e] == 0 && pass != SPW_GEMM_WEIGHT_GRADIENT) continue;
        if (n != last_rows) { /* equal experts are looked up once */
            last_rows = n;
            last_s = c->curves == 0 ? START_S + without_points_s(&c->machine, n, i, o)
                                    : (START_S + roof_s(&c->machine, n, i, o)) / share_of(c, n, i, o, pass);
        }
        seconds += last_s;
    }
    return seconds;
}
