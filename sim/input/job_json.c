#include "sim/input/job_json.h"

#include "sim/input/job.h"
#include "sim/input/precision_fill.h"
#include "sim/input/settings_json.h"

json_t *spw_job_json(spw_json *json, const spw_job *job) {
    spw_job said = *job;
    spw_precision_unfill(&said);
    return spw_settings_json(json, spw_job_settings(), &said);
}
