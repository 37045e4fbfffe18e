/* A job as the table of its keys says it: what a result has of it, and what `--job` takes. */
#ifndef SPW_SIM_JOB_JOB_JSON_H
#define SPW_SIM_JOB_JOB_JSON_H

#include "sim/job/job_words.h"
#include "sim/print/json_values.h"

/* Every key with its value; what was left to be worked out, as the split and number formats, as it was. NULL without memory, which
 * `json` remembers. */
json_t *spw_job_json(spw_json *json, const spw_job *job);

/* Did nobody say memory_fraction, and has the job a scheme of which a table says what lies outside of the allocator? */
bool spw_job_lists_outside(const spw_job *job);

#endif
