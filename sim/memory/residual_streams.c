#include "sim/memory/residual_streams.h"

#include "sim/input/job.h"
#include "sim/memory/footprint_component.h"
#include "sim/schemes/scheme.h"

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

void spw_streams_add(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const double kept = spw_streams_kept(m);
    if (!(kept > 0.0)) return;
    LIVE(spw_component_add(f, "residual_streams", (double)s->tokens * kept * (double)s->element_bytes,
                           "what the mixing of residual streams keeps (7.18)",
                           "T (%.0f n H + %.0f H + %.0f) b = %zu x %.0f x %zu, n = %zu", parts(m) - 1.0,
                           2.0 * parts(m) - 1.0,
                           parts(m) * (double)(3 * m->streams * m->streams + 4 * m->streams + 2), s->tokens,
                           kept, s->element_bytes, m->streams),
         AT_LAYERS);
}
