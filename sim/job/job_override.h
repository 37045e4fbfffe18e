/* Values of a job's keys that the command line gives, put in place of those of the file. */
#ifndef SPW_SIM_JOB_JOB_OVERRIDE_H
#define SPW_SIM_JOB_JOB_OVERRIDE_H

#include "sim/job/job.h"

#include <stdbool.h>

typedef struct spw_settings spw_settings;

enum { SPW_IMPLIED_SIZES = 5 };
/* Of each size of the split, and of the batch, that is worked out anew: what the text gave, 0: nothing; and the label of why. */
typedef struct spw_implied_sizes {
    size_t given[SPW_IMPLIED_SIZES];
    const char *label[SPW_IMPLIED_SIZES];
} spw_implied_sizes;

/* In the order given; the last of a key counts. One word for a group, as in `precision: bf16`, is that word for its first
 * kind of keys. Sizes of the split that are not among them are worked out (set to 0): fsdp when the cluster, the number of GPUs,
 * expert, pipeline, tensor or expert_tensor is; expert when fsdp is; data when the cluster, the number of GPUs, pipeline, tensor
 * or context is. Of sequences_per_gpu and global_batch, the one that is among them alone counts. */
SPW_MUST_CHECK spw_status spw_job_overrides_put(spw_settings *settings, const spw_job_override *override,
                                                size_t overrides, spw_implied_sizes *implied);
/* The same of values that a file of another kind says: no size is worked out because of them. */
SPW_MUST_CHECK spw_status spw_job_given_put(spw_settings *settings, const spw_job_override *given,
                                            size_t givens);
/* Fills job->implied, once the split is worked out: "fsdp 4 is what --expert-parallel 16 leaves, not the file's 8". */
void spw_job_say_implied(const spw_implied_sizes *implied, spw_job *job);

/* What the text of a job is called, where its paths begin, and what is put in place of its values, whose paths begin where the
 * program runs. */
typedef struct spw_job_place {
    const char *where, *folder;
    bool bare; /* there is no file: what fails belongs to options alone */
    const spw_job_override *override;
    size_t overrides;
    const spw_job_override *given; /* values of a file of another kind, put before: they are the file's */
    size_t givens;
    size_t
        micro_batch; /* sequences of one, of which micro_batches follow; 0: the text says how many they are */
} spw_job_place;
SPW_MUST_CHECK spw_status spw_job_parse_at(const spw_job_place *at, const char *text, size_t length,
                                           spw_job *out);

#endif
