#include "sim/replay/made_routing.h"

#include "base/temporary.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "traces/generate/reference_loads.h"
#include "traces/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* tokens of all layers together, and GPUs whose counts are held */
enum { MOST_TOKENS = 1 << 20, FEWEST_RANKS = 4, MOST_GPUS = 1 << 17 };

spw_status spw_made_routing_settings(const spw_job *job, const char *routing, size_t most_tokens,
                                     uint64_t seed, spw_generate_settings *out) {
    *out = (spw_generate_settings){.experts = job->model.experts,
                                   .top_k = job->model.top_k,
                                   .layers = 2,
                                   .steps = 1,
                                   .ranks = spw_job_gpus(job), /* as a search has it for all its points */
                                   .tokens_per_rank = job->sequence_length,
                                   .seed = seed,
                                   .distribution_text = routing,
                                   .generator = "spillway plan"};
    if (out->ranks > MOST_GPUS)
        return spw_fail(SPW_EARG,
                        "the job has %zu GPUs, and routing is generated for at most %d; write --trace",
                        out->ranks, (int)MOST_GPUS);
    const spw_status status = spw_distribution_parse(routing, &out->distribution);
    if (status != SPW_OK) return status;
    if (out->distribution.popularity == SPW_REFERENCE) out->layers = SPW_REFERENCE_LAYERS;
    (void)spw_distribution_limit(&out->distribution, job->model.groups, job->model.groups_kept);
    const size_t tokens = most_tokens > 0 ? most_tokens : MOST_TOKENS;
    const size_t most = tokens / out->layers / out->tokens_per_rank,
                 fewest =
                     out->tokens_per_rank > MOST_TOKENS ? 1 : FEWEST_RANKS; /* chance plays no part in such */
    if (most < fewest) {
        out->ranks = out->ranks < fewest ? out->ranks : fewest;
    } else if (out->ranks > most) {
        out->ranks = most;
    }
    if (out->ranks > SPW_TRACE_MAX_RANKS) out->ranks = SPW_TRACE_MAX_RANKS;
    return SPW_OK;
}

spw_status spw_made_routing_create(char **path) {
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    char wanted[4096];
    int file = -1;
    spw_status status = SPW_OK;
    (void)snprintf(wanted, sizeof wanted, "%s/spillway-plan", folder);
    SPW_TRY(spw_temporary_create(wanted, path, &file));
    if (close(file) != 0) SPW_TRY(spw_fail(SPW_EIO, "%s: no temporary file can be made there", folder));

cleanup:
    return status;
}
