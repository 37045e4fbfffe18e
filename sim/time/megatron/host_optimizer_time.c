#include "sim/time/megatron/host_optimizer_time.h"

#include "sim/job/job.h"
#include "sim/job/state_law.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/stack.h"
#include "sim/weights/optimizer_state.h"

#include <math.h>

static const char GRADIENTS[] = "host_gradients", ADAM[] = "host_optimizer", WEIGHTS[] = "host_weights";

spw_status spw_host_optimizer_add(const spw_megatron_coefficients *c, const spw_job *job, double parameters,
                                  double gpu_s, spw_timeline *out) {
    const size_t master = spw_master_bytes(job);
    const double m = (double)(master > 0 ? master : job->precision.weights),
                 o = (double)job->precision.optimizer,
                 copy_s = parameters * m / c->host_link_bytes_per_s.value,
                 adam_s = parameters * (3.0 * m + 4.0 * o) / c->host_memory_bytes_per_s.value;
    spw_status status = SPW_OK;
    if (!(parameters > 0.0)) return SPW_OK;
    SPW_TRY(
        spw_timeline_add(out, GRADIENTS, "gradients to the host's memory", SPW_STREAM_HOST, copy_s, copy_s));
    SPW_TRY(spw_timeline_add(out, ADAM, "the host's share of the optimizer, in its memory", SPW_STREAM_HOST,
                             adam_s, fmax(adam_s - gpu_s, 0.0)));
    SPW_TRY(spw_timeline_add(out, WEIGHTS, "new weights from the host's memory", SPW_STREAM_HOST, copy_s,
                             copy_s));

cleanup:
    return status;
}

void spw_host_optimizer_doubt(spw_timeline *t) {
    const spw_time_component *copy = spw_timeline_find(t, GRADIENTS), *adam = spw_timeline_find(t, ADAM);
    if (copy == NULL || adam == NULL) return;
    spw_timeline_widen(t, 2.0 * copy->seconds + adam->exposed_s / 2.0, 2.0 * copy->seconds + adam->seconds);
    spw_outside_add(
        t->outside,
        "an optimizer on the host as on that of one H200 with 16 cores, all alone, not measured in "
        "a job: the interval has its copies hidden and its work in half and in twice their time");
}
