/* A framework's configuration as a job: --from FILE, and spillway job FILE. */
#ifndef SPW_SIM_FRAMEWORKS_FRAMEWORK_JOB_H
#define SPW_SIM_FRAMEWORKS_FRAMEWORK_JOB_H

#include "sim/frameworks/draft.h"
#include "sim/job/job.h"

#include <stdio.h>

/* `said` is a path, or NAME:PATH with the name of a framework in front. Keeps `said`. Errors as spw_draft_read. */
SPW_MUST_CHECK spw_status spw_framework_open(const char *said, spw_draft *out);

/* The job, with values in place of the file's, as spw_job_read_with of a file. The number of micro-batches follows from the batch
 * of a rank, once cluster and split are known, unless a value says it. SPW_ECONFIG: also where the file names neither model nor cluster
 * and the values do not either. */
SPW_MUST_CHECK spw_status spw_framework_job_read(const spw_draft *draft, const spw_job_override *override,
                                                 size_t overrides, spw_job *out);

/* Does the cluster of an option say how many GPUs there are? "h100" is a GPU; "h100:8x16", "h100-16x8" and a file are so many. */
bool spw_framework_cluster_is_sized(const char *name);

/* One line: "from run.sh (Megatron-LM): 41 of 97 settings count, 50 play no part; no counterpart: a, b, c". */
void spw_framework_print_summary(const spw_draft *draft, FILE *out);

/* The job as YAML that --job takes, where each value is from, and every note as a comment. */
void spw_framework_print_job(const spw_draft *draft, FILE *out);

#endif
