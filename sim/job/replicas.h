/* Replicas of a job: groups of GPUs that hold all of its state each, and sum their gradients in every step. */
#ifndef SPW_SIM_JOB_REPLICAS_H
#define SPW_SIM_JOB_REPLICAS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_job spw_job; /* sim/job/job.h */

/* Seconds of an all-reduce of the gradients of `replicas` times `gpus` GPUs, nothing of which is hidden: each GPU sends and receives
 * 2 (r - 1) / r of what it holds of them, at so many bytes a second. */
double spw_replicas_sum_s(const spw_job *job, size_t replicas, size_t gpus, double bytes_per_s);

/* Begins messages about the GPUs of a job that is one replica. */
extern const char spw_replica_label[];
/* Replicas of a framework's mesh, of which the job is one: at least 1. */
size_t spw_job_replicas(const spw_job *job);
/* Seconds that a step of all of them takes longer than the job's, on `gpus` GPUs each, where nothing hides the sum of gradients. */
double spw_job_replicas_s(const spw_job *job, size_t gpus);

enum { SPW_REPLICAS_SHORT = 64 };
/* ", one of 8 replicas on 64 GPUs", where a replica has `gpus`; "" for a job that is all. Returns `out`. */
const char *spw_job_replicas_text(const spw_job *job, size_t gpus, char out[SPW_REPLICAS_SHORT]);
/* " on all 64 GPUs", behind an amount of tokens; "" for a job that is all. Returns `out`. */
const char *spw_job_replicas_all(const spw_job *job, size_t gpus, char out[SPW_REPLICAS_SHORT]);

enum { SPW_REPLICAS_TEXT = 192 };
/* That of replicas of FSDP2 (HSDP), which is in no step, in words. False, and nothing: there are none. */
bool spw_replicas_note(const spw_job *job, char out[SPW_REPLICAS_TEXT]);

#endif
