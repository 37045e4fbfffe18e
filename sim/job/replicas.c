#include "sim/job/replicas.h"
#include "sim/job/job.h"

#include <stdio.h>

double spw_replicas_sum_s(const spw_job *job, size_t replicas, size_t gpus, double bytes_per_s) {
    const double r = (double)replicas, held = (double)spw_model_parameters(&job->model).total / (double)gpus *
                                              (double)job->precision.gradients;
    return 2.0 * (r - 1.0) / r * held / bytes_per_s;
}

bool spw_replicas_note(const spw_job *job, char out[SPW_REPLICAS_TEXT]) {
    const size_t replicas = job->fsdp2.replicas;
    if (replicas < 2) return false;
    const bool within = job->cluster.nodes == 1;
    const double rate = (within ? job->cluster.link_bytes_per_s : job->cluster.nic_bytes_per_s).value;
    const size_t gpus = spw_job_gpus(job) / replicas;
    (void)snprintf(out, SPW_REPLICAS_TEXT,
                   "the sum of gradients over %zu replicas of %zu GPUs is in no step: %.2f s at the %s rate "
                   "where nothing "
                   "hides it",
                   replicas, gpus, spw_replicas_sum_s(job, replicas, gpus, rate),
                   within ? "links'" : "NICs'");
    return true;
}
