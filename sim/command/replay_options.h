/* Options of `spillway replay`. */
#ifndef SPW_SIM_COMMAND_REPLAY_OPTIONS_H
#define SPW_SIM_COMMAND_REPLAY_OPTIONS_H

#include "sim/command/job_options.h"

typedef struct spw_replay_options {
    spw_job_options job;
    const char *trace_path, *steps, *layers, *output, *seed, *stack, *drops, *fits, *allocator, *chrome,
        *tokens, *checkpoint, *balancer, *snapshot, *snapshot_stage, *memory;
    bool each_step, overload, advise, every_rank, no_allocator;
} spw_replay_options;

extern const struct argp spw_replay_argp; /* input: spw_replay_options */

/* Options that say different things of the same replay. */
SPW_MUST_CHECK spw_status spw_replay_options_check(const spw_replay_options *options);

#endif
