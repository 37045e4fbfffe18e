/* Values of a job's keys that the command line gives, put in place of those of the file. */
#ifndef SPW_SIM_INPUT_JOB_OVERRIDE_H
#define SPW_SIM_INPUT_JOB_OVERRIDE_H

#include "sim/input/job.h"

#include "sim/input/settings.h"
#include <stdbool.h>

/* In the order given; the last of a key counts. One word for a group, as in `precision: bf16`, is that word for its first
 * kind of keys. When the cluster, the number of GPUs or a part of the split is among them and fsdp is not, fsdp is set to 0,
 * which is worked out. */
SPW_MUST_CHECK spw_status spw_job_overrides_put(spw_settings *settings, const spw_job_override *override,
                                                size_t overrides);

/* What the text of a job is called, where its paths begin, and what is put in place of its values, whose paths begin where the
 * program runs. */
typedef struct spw_job_place {
    const char *where, *folder;
    bool bare; /* there is no file: what fails belongs to options alone */
    const spw_job_override *override;
    size_t overrides;
} spw_job_place;
SPW_MUST_CHECK spw_status spw_job_parse_at(const spw_job_place *at, const char *text, size_t length,
                                           spw_job *out);

#endif
