#include "sim/job/replicas.h"
#include "sim/job/job.h"

#include <stdio.h>

double spw_replicas_sum_s(const spw_job *job, size_t replicas, size_t gpus, double bytes_per_s) {
    const double r = (double)replicas, held = (double)spw_model_parameters(&job->model).total / (double)gpus *
                                              (double)job->precision.gradients;
    return 2.0 * (r - 1.0) / r * held / bytes_per_s;
}

const char spw_replica_label[] = "one replica of the mesh";

size_t spw_job_replicas(const spw_job *job) { return job->mesh_replicas > 1 ? job->mesh_replicas : 1; }

double spw_job_replicas_s(const spw_job *job, size_t gpus) {
    const spw_cluster *c = &job->cluster;
    const double rate = (job->mesh_between > 1 ? c->nic_bytes_per_s : c->link_bytes_per_s).value;
    const size_t replicas = spw_job_replicas(job);
    return replicas > 1 ? spw_replicas_sum_s(job, replicas, gpus, rate) : 0.0;
}

const char *spw_job_replicas_text(const spw_job *job, size_t gpus, char out[SPW_REPLICAS_SHORT]) {
    const size_t replicas = spw_job_replicas(job);
    out[0] = '\0';
    if (replicas > 1)
        (void)snprintf(out, SPW_REPLICAS_SHORT, ", one of %zu replicas on %zu GPUs", replicas,
                       replicas * gpus);
    return out;
}

const char *spw_job_replicas_all(const spw_job *job, size_t gpus, char out[SPW_REPLICAS_SHORT]) {
    out[0] = '\0';
    if (spw_job_replicas(job) > 1)
        (void)snprintf(out, SPW_REPLICAS_SHORT, " on all %zu GPUs", spw_job_replicas(job) * gpus);
    return out;
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
