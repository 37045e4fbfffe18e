/* Another scheme of the same framework that would be faster than the one that a framework's file names, and how it is set there. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_OTHERS_H
#define SPW_SIM_COMMAND_PLAN_PLAN_OTHERS_H

#include "sim/command/job_options.h"
#include "sim/plan/other_schemes.h"
#include "sim/print/json_values.h"

#include <stdbool.h>
#include <stdio.h>

enum { SPW_OTHER_SETTINGS = 256 };
typedef struct spw_plan_others {
    spw_other_schemes schemes;
    size_t expert;         /* that they have where it is not the point's; 0: it is */
    const char *framework; /* its title */
    char settings[SPW_OTHER_SCHEMES]
                 [SPW_OTHER_SETTINGS]; /* what changes there, as it is written; "": not known */
} spw_plan_others;

/* Is the scheme that of a framework's file alone, so that nobody chose it here? */
bool spw_plan_others_asked(const spw_job_options *options);

/* `framework` is the file's. */
SPW_MUST_CHECK spw_status spw_plan_others_find(const spw_plan_request *q, const spw_other_point *point,
                                               const spw_framework *framework, spw_plan_others *out);

/* A line each. `others` may be NULL. */
void spw_plan_print_others(const spw_plan_others *others, FILE *out);
json_t *spw_plan_others_json(spw_json *json, const spw_plan_others *others);

#endif
