/* The routing that a plan generates. */
#ifndef SPW_SIM_COMMAND_PLAN_ROUTING_H
#define SPW_SIM_COMMAND_PLAN_ROUTING_H

#include "sim/input/job.h"
#include "traces/generate.h"
#include "traces/temper.h"

/* Where neither a trace nor a routing is named. */
#define SPW_PLAN_ROUTING "reference"

/* One sequence a GPU, of no more GPUs than have 2^23 tokens in all layers, or of 4, and two layers of `routing`, of the
 * reference its four; `steps` as asked for, or NULL: as many as show how it changes. A model whose router limits a token
 * to groups of experts has that limit (spw_distribution_limit). The texts are borrowed by `out`. The other GPUs' sequences
 * are drawn from these when the job is replayed: each GPU's own by chance, so that groups differ as they would, and what is
 * planned no longer grows with tokens that are there by the million. */
SPW_MUST_CHECK spw_status spw_plan_routing_settings(const spw_job *job, const char *routing,
                                                    const char *steps, uint64_t seed,
                                                    spw_generate_settings *out);

/* A trace of that in the folder for temporary files; the caller removes it and frees `*path`, after a failure, too. */
SPW_MUST_CHECK spw_status spw_plan_make_trace(const spw_job *job, const char *routing, const char *steps,
                                              uint64_t seed, char **path);

/* The same of a recorded trace whose popularities are raised to a power (traces/temper.h). */
SPW_MUST_CHECK spw_status spw_plan_temper_trace(const char *from, const spw_temper_settings *settings,
                                                char **path);

#endif
