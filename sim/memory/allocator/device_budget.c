#include "sim/memory/allocator/device_budget.h"

#include "sim/job/job.h"
#include "sim/job/trainer.h"
#include "sim/machine/stack_defaults.h"
#include "sim/machine/stack_nearest.h"

#include <math.h>
#include <stdio.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

#define FIGURE(key) (spw_default_outside_##key.value)

static bool is_measured_card(const spw_cluster *c) {
    const spw_gpu job = spw_gpu_of(c), measured = {.vendor = SPW_VENDOR_NVIDIA,
                                                   .generation = SPW_GPU_HOPPER,
                                                   .bf16_flops = spw_default_hf_measured_flops.value,
                                                   .hbm_bytes_per_s = spw_default_hf_measured_hbm.value};
    return spw_stack_distance_of(&job, &measured).kinship == SPW_GPU_SAME;
}

/* FSDP2 over all GPUs has one process group; replicas of it sum their gradients in another. */
static void list_outside(const spw_job *job, spw_device_budget *out) {
    const double gpus = (double)spw_job_gpus(job),
                 groups = gpus > 1.0 ? 1.0 + (job->fsdp2.replicas > 1) : 0.0;
    const double pairs = groups > 0.0 ? FIGURE(group_bytes) + (groups - 1.0) * FIGURE(more_group_bytes) : 0.0;
    const bool many = gpus > 2.0, several = groups > 0.0 && job->cluster.nodes > 1;
    double high = many ? fmax(groups * FIGURE(group_most_bytes), pairs * FIGURE(ranks_share)) : pairs;
    if (several) high += groups * FIGURE(net_bytes);
    const double card = is_measured_card(&job->cluster) ? 0.0 : FIGURE(card_bytes);
    out->listed = true;
    out->outside = FIGURE(process_bytes) + (many ? pairs * FIGURE(ranks_share) : pairs);
    out->outside_low = fmax(FIGURE(process_bytes) + pairs - FIGURE(doubt_bytes) - card, 0.0);
    out->outside_high = FIGURE(process_bytes) + high + FIGURE(doubt_bytes) + card;
}

spw_device_budget spw_device_budget_of(const spw_job *job, const spw_scheme *scheme) {
    spw_device_budget out = {.device = job->cluster.hbm_gib.value * GIB};
    out.resident = job->resident.gib * GIB + job->resident.share * out.device;
    out.outside = out.outside_low = out.outside_high = (1.0 - job->memory_fraction) * out.device;
    if (job->fraction_unsaid && spw_scheme_trainer(scheme)->lists_outside &&
        spw_gpu_of(&job->cluster).vendor == SPW_VENDOR_NVIDIA) /* HIP and RCCL were not measured */
        list_outside(job, &out);
    return out;
}

uint64_t spw_device_budget_bytes(const spw_device_budget *b) {
    return (uint64_t)(fmax(b->device - b->outside - b->resident, 0.0) + 0.5);
}

uint64_t spw_device_budget_doubt(const spw_device_budget *b) {
    return (uint64_t)(b->outside_high - b->outside + 0.5);
}

const char *spw_device_budget_text(const spw_device_budget *b, const spw_job *job,
                                   char out[SPW_BUDGET_TEXT]) {
    int used =
        snprintf(out, SPW_BUDGET_TEXT, "the GPU's %.2f less %.2f outside", b->device / GIB, b->outside / GIB);
    if (b->listed)
        used += snprintf(out + used, SPW_BUDGET_TEXT - (size_t)used, ", %.2f to %.2f", b->outside_low / GIB,
                         b->outside_high / GIB);
    if (b->resident > 0.0)
        (void)snprintf(out + used, SPW_BUDGET_TEXT - (size_t)used, ", and %.2f of %s", b->resident / GIB,
                       job->resident.name[0] != '\0' ? job->resident.name : "what is resident");
    return out;
}

spw_budget_span spw_device_budget_span(const spw_job *job, const spw_scheme *scheme, size_t schemes) {
    spw_budget_span out = {.least = 0};
    for (size_t i = 0; i < schemes; i++) {
        const spw_device_budget budget = spw_device_budget_of(job, &scheme[i]);
        const uint64_t bytes = spw_device_budget_bytes(&budget);
        if (i == 0 || bytes < out.least) out.least = bytes;
        if (bytes > out.most) out.most = bytes;
    }
    return out;
}

const char *spw_budget_span_text(const spw_job *job, const spw_scheme *scheme, size_t schemes,
                                 char out[SPW_BUDGET_TEXT]) {
    const spw_budget_span span = spw_device_budget_span(job, scheme, schemes);
    const int used = snprintf(out, SPW_BUDGET_TEXT, "%.1f", (double)span.least / GIB);
    if (span.most > span.least)
        (void)snprintf(out + used, SPW_BUDGET_TEXT - (size_t)used, " to %.1f (by scheme)",
                       (double)span.most / GIB);
    return out;
}
