/* Routing that is generated for a job: what a plan without a trace is replayed with. */
#ifndef SPW_SIM_REPLAY_MADE_ROUTING_H
#define SPW_SIM_REPLAY_MADE_ROUTING_H

#include "sim/job/job_words.h"
#include "traces/generate/generate.h"

/* Where neither a trace nor a routing is named. */
#define SPW_PLAN_ROUTING "reference"

/* One step of one sequence a GPU, of no more GPUs than have `most_tokens` (0: 2^20) in all layers, or of 4, and two layers of `routing`, of the
 * reference its four. A model whose router limits a token to groups of experts has that limit (spw_distribution_limit). The text is
 * borrowed by `out`. The other GPUs' sequences are drawn from these when the job is replayed: each GPU's own by chance, so that groups
 * differ as they would, and what is planned no longer grows with tokens that are there by the million. SPW_EARG. */
SPW_MUST_CHECK spw_status spw_made_routing_settings(const spw_job *job, const char *routing,
                                                    size_t most_tokens, uint64_t seed,
                                                    spw_generate_settings *out);

/* An empty file in the folder for temporary ones; the caller removes it and frees `*path`, after a failure, too. */
SPW_MUST_CHECK spw_status spw_made_routing_create(char **path);

#endif
