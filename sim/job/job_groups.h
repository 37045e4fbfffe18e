/* Groups of a job's keys: a table of rows each; `spw_job_settings` has them all. */
#ifndef SPW_SIM_JOB_JOB_GROUPS_H
#define SPW_SIM_JOB_JOB_GROUPS_H

#include "sim/job/job.h"
#include "sim/read/settings.h"

/* --- Keys --- */

enum { MOST_RANKS = 65536, MOST_GPUS = 1 << 20, MOST_MICRO_BATCHES = 65536, MOST_SEQUENCES = 1 << 26 };

#define NAMED_ROW(name, field, low, high, preset, text, word) \
    { \
        .key = (name), .kind = SPW_SETTING_COUNT, SPW_SETTING_OF(spw_job, field, size_t), .minimum = (low), \
        .maximum = (high), .fallback = (preset), .help = (text), .option = (word) \
    }

#define COUNT_ROW(name, field, low, high, preset, text) NAMED_ROW(name, field, low, high, preset, text, NULL)

#define FLAG_ROW(name, field, text) \
    { \
        .key = (name), .kind = SPW_SETTING_FLAG, SPW_SETTING_OF(spw_job, field, bool), .fallback = "false", \
        .help = (text) \
    }

extern const spw_setting spw_job_parallel_rows[], spw_job_batch_rows[], spw_job_precision_rows[],
    spw_job_allocator_rows[], spw_job_resident_rows[], spw_job_finetune_rows[], spw_job_fsdp2_rows[];

#endif
