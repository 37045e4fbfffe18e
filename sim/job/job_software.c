#include "sim/job/job_software.h"

#include "sim/job/job.h"
#include "sim/job/recipe/fp8_recipe.h"
#include "sim/job/trainer.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 3 };
typedef enum kind { TPU, DEEPEP_GPU, NVIDIA_GPU, OTHER_GPU, KINDS } kind;
/* DeepEP is a library of GPUs, and Megatron-Core's of Hopper's and later ones. */
static const char *const assumed[KINDS][MOST] = {
    [TPU] = {"dense:capacity_factor=1.25", "gmm", "ring"},
    [DEEPEP_GPU] = {"megatron-alltoall", "megatron-flex"},
    [NVIDIA_GPU] = {"megatron-alltoall", "megatron-allgather"},
    [OTHER_GPU] = {"dense:capacity_factor=1.25", "gmm", "gmm-deepep"}};

static kind kind_of(const spw_cluster *cluster) {
    switch (cluster->gpu_generation) {
    case SPW_GPU_NONE: return TPU;
    case SPW_GPU_HOPPER:
    case SPW_GPU_BLACKWELL: return DEEPEP_GPU;
    default: return cluster->gpu_vendor == SPW_VENDOR_NVIDIA ? NVIDIA_GPU : OTHER_GPU;
    }
}

/* Under an fp8 recipe the rows of an expert are padded, which the dispatchers that move rows have an option for. */
static void put(spw_job *job, const char *scheme) {
    const size_t align = spw_fp8_facts_known(job->precision.recipe, job->cluster.gpu_generation).align;
    const bool pads = strcmp(scheme, "megatron-alltoall") == 0 || strcmp(scheme, "megatron-flex") == 0;
    char *out = job->scheme[job->schemes++];
    if (align > 1 && pads)
        (void)snprintf(out, sizeof job->scheme[0], "%s:align=%zu", scheme, align);
    else
        (void)snprintf(out, sizeof job->scheme[0], "%s", scheme);
}

void spw_job_schemes_fill(spw_job *job) {
    const char *const *scheme = assumed[kind_of(&job->cluster)];
    if (job->schemes > 0) return;
    for (size_t i = 0; i < MOST && scheme[i] != NULL; i++) put(job, scheme[i]);
}

const char *spw_job_scheme_assumed(size_t i) {
    for (size_t k = 0; k < KINDS; k++)
        for (size_t n = 0; n < MOST && assumed[k][n] != NULL; n++)
            if (i-- == 0) return assumed[k][n];
    return NULL;
}

spw_trainer_id spw_job_trainer(const spw_job *job) {
    const spw_trainer_id of = job->schemes > 0 ? spw_trainer_of_scheme(job->scheme[0]) : SPW_TRAINERS;
    for (size_t i = 1; i < job->schemes; i++)
        if (spw_trainer_of_scheme(job->scheme[i]) != of) return SPW_TRAINERS;
    return of;
}

void spw_job_optimizer_fill(spw_job *job, bool bare) {
    const spw_trainer_id of = bare ? spw_job_trainer(job) : SPW_TRAINERS;
    job->optimizer_unsaid = job->optimizer == SPW_OPTIMIZER_AUTO;
    if (job->optimizer_unsaid)
        job->optimizer = spw_trainer_row(of != SPW_TRAINERS ? of : SPW_TRAINER_PYTORCH)->bare_optimizer;
}
