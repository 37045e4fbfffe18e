/* The allocator's settings as PyTorch writes them in PYTORCH_CUDA_ALLOC_CONF. */
#ifndef SPW_SIM_MEMORY_ALLOCATOR_ALLOCATOR_CONF_H
#define SPW_SIM_MEMORY_ALLOCATOR_ALLOCATOR_CONF_H

#include "base/status.h"
#include "sim/job/job.h"
#include "sim/memory/allocator/allocator.h"

/* Reads "key:value[,key:value]", as in expandable_segments:True,max_split_size_mb:512; keys are those of the job file's
 * `allocator`. What is not named stays. SPW_EARG names the option and what would be right. */
SPW_MUST_CHECK spw_status spw_allocator_conf_parse(const char *option, const char *text,
                                                   spw_job_allocator *out);

/* For a process that has device_bytes of a device of total_bytes. */
spw_allocator_settings spw_allocator_conf_settings(const spw_job_allocator *allocator, uint64_t device_bytes,
                                                   uint64_t total_bytes);

#endif
