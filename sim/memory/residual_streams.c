#include "sim/memory/residual_streams.h"

#include "sim/input/job.h"
#include "sim/input/trainer.h"
#include "sim/memory/footprint_component.h"
#include "sim/schemes/scheme.h"

#include <stdio.h>

static double parts(const spw_model *m) { return m->half_layers ? 1.0 : 2.0; }

double spw_streams_kept(const spw_model *m) {
    const double n = (double)m->streams, h = (double)m->hidden, p = parts(m);
    if (m->streams < 2) return 0.0;
    return (p - 1.0) * n * h + (2.0 * p - 1.0) * h + p * (3.0 * n * n + 4.0 * n + 2.0);
}

double spw_streams_moved(const spw_model *m) {
    return m->streams < 2 ? 0.0 : parts(m) * (9.0 * (double)m->streams + 2.0) * (double)m->hidden;
}

double spw_streams_products(const spw_model *m) {
    const double n = (double)m->streams, h = (double)m->hidden;
    return m->streams < 2 ? 0.0 : parts(m) * (n * h * (n * n + 2.0 * n) + n * n * h);
}

static double wide_bytes(const spw_job *job, const spw_scheme *scheme) {
    const spw_model *m = &job->model;
    const bool wide = m->streams > 1 && spw_scheme_trainer(scheme)->wide_streams;
    return wide ? parts(m) * (double)(m->streams * m->hidden * sizeof(float)) : 0.0;
}

double spw_streams_kept_bytes(const spw_job *job, const spw_scheme *scheme) {
    return spw_streams_kept(&job->model) * (double)job->precision.activations + wide_bytes(job, scheme);
}

/* Layers of later blocks read the sums of earlier ones, so that these stay until their own block runs backward. */
static void add_blocks(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    if (m->residual_blocks == 0 || f->stage.layers == 0) return;
    const size_t blocks = (m->layers + m->residual_blocks - 1) / m->residual_blocks,
                 flying = (f->stage.kept_layers + f->stage.layers - 1) / f->stage.layers;
    LIVE(spw_component_add(f, "residual_blocks",
                           (double)(flying * blocks * s->tokens * m->hidden * s->element_bytes),
                           "sums of blocks of layers, which later layers attend to (7.18)",
                           "%zu micro-batches x %zu blocks x T H b = %zu x %zu x %zu x %zu x %zu", flying,
                           blocks, flying, blocks, s->tokens, m->hidden, s->element_bytes),
         ALWAYS);
}

void spw_streams_add(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                     const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const double kept = spw_streams_kept(m), wide = wide_bytes(job, scheme);
    char more[32] = "";
    add_blocks(f, job, s);
    if (!(kept > 0.0)) return;
    if (wide > 0.0) (void)snprintf(more, sizeof more, " + %.0f of fp32", wide);
    LIVE(spw_component_add(f, "residual_streams", (double)s->tokens * spw_streams_kept_bytes(job, scheme),
                           "what the mixing of residual streams keeps (7.18)",
                           "T ((%.0f n H + %.0f H + %.0f) b%s) = %zu x (%.0f x %zu%s), n = %zu",
                           parts(m) - 1.0, 2.0 * parts(m) - 1.0,
                           parts(m) * (double)(3 * m->streams * m->streams + 4 * m->streams + 2), more,
                           s->tokens, kept, s->element_bytes, more, m->streams),
         AT_LAYERS);
}
