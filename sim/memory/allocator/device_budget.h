/* How much of a GPU's memory a training process may take through its allocator: the device less what lies outside of the allocator, and
 * less what the job says stays beside the process (resident.gib, resident.share). What lies outside is what memory_fraction leaves, or, where nobody
 * says it and the scheme's framework was measured, a table of CUDA's context, libraries and NCCL's process groups
 * (sim/stack_defaults/outside.yaml, docs/finetuning.md). */
#ifndef SPW_SIM_MEMORY_ALLOCATOR_DEVICE_BUDGET_H
#define SPW_SIM_MEMORY_ALLOCATOR_DEVICE_BUDGET_H

#include "sim/schemes/scheme.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPW_BUDGET_TEXT = 192 };

/* Bytes of one GPU. */
typedef struct spw_device_budget {
    double device, resident;
    double outside, outside_low, outside_high; /* all three alike where it is not listed */
    bool listed;                               /* by the table */
} spw_device_budget;

spw_device_budget spw_device_budget_of(const spw_job *job, const spw_scheme *scheme);
/* What is left; 0 at least. */
uint64_t spw_device_budget_bytes(const spw_device_budget *budget);
/* How much less is left where most lies outside. */
uint64_t spw_device_budget_doubt(const spw_device_budget *budget);
/* "the GPU's 79.2 less 1.8 outside (1.6 to 2.2) and 20.0 of vLLM": GiB. Returns `out`. */
const char *spw_device_budget_text(const spw_device_budget *budget, const spw_job *job,
                                   char out[SPW_BUDGET_TEXT]);

/* The least and the most that any of several schemes leaves. */
typedef struct spw_budget_span {
    uint64_t least, most;
} spw_budget_span;
spw_budget_span spw_device_budget_span(const spw_job *job, const spw_scheme *scheme, size_t schemes);
/* "73.6", or "73.6 to 77.4 (by scheme)": GiB. Returns `out`. */
const char *spw_budget_span_text(const spw_job *job, const spw_scheme *scheme, size_t schemes,
                                 char out[SPW_BUDGET_TEXT]);

#endif
