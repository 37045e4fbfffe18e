/* Replicas of a job: groups of GPUs that hold all of its state each, and sum their gradients in every step. */
#ifndef SPW_SIM_JOB_REPLICAS_H
#define SPW_SIM_JOB_REPLICAS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_job spw_job; /* sim/job/job.h */

/* Seconds of an all-reduce of the gradients of `replicas` times `gpus` GPUs, nothing of which is hidden: each GPU sends and receives
 * 2 (r - 1) / r of what it holds of them, at so many bytes a second. */
double spw_replicas_sum_s(const spw_job *job, size_t replicas, size_t gpus, double bytes_per_s);

enum { SPW_REPLICAS_TEXT = 192 };
/* That of replicas of FSDP2 (HSDP), which is in no step, in words. False, and nothing: there are none. */
bool spw_replicas_note(const spw_job *job, char out[SPW_REPLICAS_TEXT]);

#endif
