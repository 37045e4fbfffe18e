#include "sim/time/megatron/muon_time.h"

#include "sim/job/job.h"
#include "sim/job/state_law.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/stack.h"
#include "sim/weights/optimizer_state.h"

#include <math.h>

static const double ITERATIONS = 5.0;
static const char PRODUCTS[] = "muon", GATHERS[] = "muon_gathers";

typedef struct price {
    const spw_megatron_coefficients *c;
    const spw_job *job;
} price;

/* On the GPU, of a whole matrix. */
static double orthogonalize_s(const spw_megatron_coefficients *c, double rows, double columns) {
    const double l = fmax(rows, columns), s = fmin(rows, columns);
    const double flops = ITERATIONS * (4.0 * l * s * s + 2.0 * s * s * s);
    return flops / (c->peak_flops.value * c->dense_flops_share.value * c->muon_products_share.value) +
           (54.0 * l * s + 40.0 * s * s) / c->copy_bytes_per_s.value;
}

static double update_bytes(const spw_job *job) {
    const double master = (double)spw_master_bytes(job), weight = (double)job->precision.weights;
    return (double)job->precision.gradients + 2.0 * (double)job->precision.optimizer +
           5.0 * fmax(master, weight) + (master > 0.0 ? weight : -weight) + 12.0;
}

static spw_muon_seconds price_of(const void *context, const spw_muon_matrices *m) {
    const price *p = context;
    const spw_megatron_coefficients *c = p->c;
    const double t = m->sharers > 1 ? (double)m->sharers : 1.0, rows = (double)m->rows,
                 columns = (double)m->columns;
    const double whole_rows = m->by_columns ? rows : t * rows,
                 whole_columns = m->by_columns ? t * columns : columns, whole = whole_rows * whole_columns;
    double gpu_s = rows * columns * update_bytes(p->job) / c->copy_bytes_per_s.value,
           host_s = c->muon_update_host_s.value;
    for (size_t i = 0; i < SPW_MUON_PARTS; i++) {
        const double part = i == 0 && m->part[0] == 0 ? whole_rows : t * (double)m->part[i];
        if (!(part > 0.0)) continue;
        gpu_s += orthogonalize_s(c, part, whole_columns);
        host_s += c->muon_matrix_host_s.value;
    }
    spw_muon_seconds out = {fmax(gpu_s, host_s), 0.0};
    if (m->sharers <= 1) return out;
    const bool near = p->job->cluster.gpus_per_node % m->sharers == 0;
    out.products += 8.0 * whole / c->copy_bytes_per_s.value;
    out.gathers =
        c->exchange_latency_s.value +
        4.0 * whole * (t - 1.0) / t / (near ? c->exchange_bytes_per_s.value : c->network_bytes_per_s.value);
    return out;
}

spw_status spw_muon_time_add(const spw_megatron_coefficients *c, const spw_job *job, size_t stage,
                             spw_timeline *out) {
    const price p = {c, job};
    spw_muon_seconds spent;
    spw_status status = SPW_OK;
    SPW_TRY(spw_muon_slowest(job, stage, price_of, &p, &spent));
    SPW_TRY(spw_timeline_add(out, PRODUCTS, "Newton-Schulz iterations and updates, one matrix after another",
                             SPW_STREAM_COMPUTE, spent.products, spent.products));
    if (spent.gathers > 0.0)
        SPW_TRY(spw_timeline_add(out, GATHERS, "whole matrices for all GPUs that share them",
                                 SPW_STREAM_COLLECTIVE, spent.gathers, spent.gathers));

cleanup:
    return status;
}

void spw_muon_doubt(spw_timeline *t) {
    const spw_time_component *products = spw_timeline_find(t, PRODUCTS),
                             *gathers = spw_timeline_find(t, GATHERS);
    if (products == NULL) return;
    const double between = gathers != NULL ? gathers->exposed_s : 0.0;
    spw_timeline_widen(t, products->exposed_s / 2.0 + between, products->exposed_s + between);
    spw_outside_add(t->outside, "Muon's products at the speed of one H200 alone, not measured in a job: the "
                                "interval has them in half and in twice their time");
}
