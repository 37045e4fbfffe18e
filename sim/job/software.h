/* The software that a job is planned for, by the names of its stacks: memory and step times of programs that XLA compiles
 * whole (sim/machine/stack.h, time_stack.h), step times of Megatron-Core (sim/machine/megatron_coefficients.h). */
#ifndef SPW_SIM_JOB_SOFTWARE_H
#define SPW_SIM_JOB_SOFTWARE_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/stack.h"
#include "sim/machine/stack_nearest.h"
#include "sim/machine/time_stack.h"

#include <stdbool.h>

enum { SPW_SOFTWARE_TEXT = 256, SPW_SOFTWARE_DISTANCE = 2 * SPW_STACK_DISTANCE_TEXT };

typedef struct spw_software {
    char names[SPW_SOFTWARE_TEXT];  /* of the stacks, between commas */
    bool compiled, timed, megatron; /* what of the following is there */
    spw_stack stack;
    spw_time_stack time_stack;
    spw_megatron_coefficients megatron_coefficients;
    char distance
        [SPW_SOFTWARE_DISTANCE]; /* how far stacks of times are from the job's GPU; "": they are of the same */
} spw_software;

/* `names`: presets or YAML files between commas, at most one of each kind; "none": no software. SPW_ECONFIG, SPW_EIO. */
SPW_MUST_CHECK spw_status spw_software_read(const char *names, spw_software *out);

/* SPW_ECONFIG where the cluster has no GPUs, which all stacks are of. `name`: of the stack. */
SPW_MUST_CHECK spw_status spw_software_suits(const char *name, const spw_cluster *cluster);

/* Fills software->distance. SPW_ECONFIG when the cluster of a stack is not known. */
SPW_MUST_CHECK spw_status spw_software_measure(const spw_cluster *cluster, spw_software *software);

/* Of those for whole models of PyTorch's own kernels, without TransformerEngine, the one that is nearest to the job's GPU. */
SPW_MUST_CHECK spw_status spw_software_plain(const spw_job *job, spw_software *out);

/* Of the kinds asked for, the preset that is nearest to the job's GPU, then the newest (sim/machine/stack_nearest.h). A whole model of
 * Megatron-Core on one node of fewer GPUs than one of the stack's cluster takes one that was measured so, if none is nearer. None where the cluster has no
 * GPUs. */
SPW_MUST_CHECK spw_status spw_software_newest(const spw_job *job, bool compiled, bool megatron,
                                              spw_software *out);

#endif
