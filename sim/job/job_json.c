#include "sim/job/job_json.h"

#include "sim/job/job.h"
#include "sim/job/recipe/precision_fill.h"
#include "sim/job/trainer.h"
#include "sim/read/settings_json.h"

bool spw_job_lists_outside(const spw_job *job) {
    bool lists = false;
    for (size_t i = 0; i < job->schemes && job->fraction_unsaid; i++) {
        const spw_trainer_id of = spw_trainer_of_scheme(job->scheme[i]);
        lists = lists || (of != SPW_TRAINERS && spw_trainer_row(of)->lists_outside);
    }
    return lists;
}

json_t *spw_job_json(spw_json *json, const spw_job *job) {
    spw_job said = *job;
    spw_precision_unfill(&said);
    if (spw_job_lists_outside(job)) said.memory_fraction = 0.0; /* nobody said it, and it decides nothing */
    return spw_settings_json(json, spw_job_settings(), &said);
}
