/* Splits of a job over as many GPUs or more: what a plan tries for a point that does not fit. */
#ifndef SPW_SIM_PLAN_OTHER_SPLIT_H
#define SPW_SIM_PLAN_OTHER_SPLIT_H

#include "sim/job/job_words.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPW_OTHER_SPLIT_TEXT = 256 };

/* Recompute of whole layers, without what Megatron-Core does not take beside it; what the change is called. */
const char *spw_split_remat_full(spw_job *job);

/* Tries in the order in which they are preferred: fewest GPUs, then fewest pipeline stages, then the job's own batch, then its own
 * expert-parallel size, then groups that fill nodes or lie within one, then the smallest. */
typedef struct spw_split_try {
    size_t gpus, stages; /* times those of the job */
    bool least_batch;    /* one sequence a micro-batch, and remat full */
    size_t expert;       /* place in that order */
} spw_split_try;

/* How many there are, and how many of them have the job's own GPUs: the first. */
size_t spw_split_tries(void);
size_t spw_split_tries_same(void);
spw_split_try spw_split_try_of(size_t amount);

/* Changes the job. Its global batch stays for the same GPUs: with `stages` times the stages a data-parallel rank has `stages` times
 * the sequences, in `stages` times the micro-batches, so that the pipeline is filled. `micro_batches` false: the job's program takes
 * none (MaxText's), and the sequences stay. Of a job that is one replica of a mesh, more GPUs make fewer replicas of those there are, and
 * the change says which axes do. False where there is no such split, or it is the job's own; what [size]: the change, as
 * written. */
bool spw_split_try_apply(const spw_split_try *one, bool micro_batches, spw_job *job, char *what, size_t size);

#endif
