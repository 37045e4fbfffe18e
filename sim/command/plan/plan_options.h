/* Options of `spillway plan`. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_OPTIONS_H
#define SPW_SIM_COMMAND_PLAN_PLAN_OPTIONS_H

#include "sim/command/job_options.h"
#include "sim/command/plan/plan_routing.h"
#include "sim/command/plan/plan_search.h"

typedef struct spw_plan_options {
    spw_job_options job;
    const char *trace_path, *routing, *imbalance, *stack, *steps, *layers, *tokens, *seed, *allocator, *drops,
        *chrome, *until, *memory, *flags;
    spw_routing_extent extent;
    spw_search_options search;
    bool all, every_rank, no_allocator;
} spw_plan_options;

extern const struct argp spw_plan_argp; /* input: spw_plan_options */

/* What does not go together, told before a file is read. */
SPW_MUST_CHECK spw_status spw_plan_options_check(const spw_plan_options *options);
/* What does not go with a search, once the job is read. */
SPW_MUST_CHECK spw_status spw_plan_options_check_search(const spw_plan_options *options);

#endif
