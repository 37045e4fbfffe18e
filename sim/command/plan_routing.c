#include "sim/command/plan_routing.h"

#include "base/temporary.h"
#include "sim/command/job_options.h"
#include "sim/input/grid.h"
#include "traces/reference_loads.h"
#include "traces/trace.h"
#include "traces/trace_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_ROUTING_STEPS = 64 };                 /* without being asked for */
enum { MOST_TOKENS = 1 << 23, FEWEST_RANKS = 4 }; /* tokens of all layers together */

/* Steps of a generated routing: as asked, or as many as it takes to show how it changes. */
static spw_status count_steps(const spw_distribution *distribution, const char *asked, size_t *out) {
    const double needed = spw_distribution_steps(distribution);
    uint64_t steps = 0;
    if (asked != NULL) {
        const spw_status status = spw_parse_count("--routing-steps", asked, 1 << 16, &steps);
        if (status != SPW_OK) return status;
        if (steps == 0) return spw_fail(SPW_EARG, "--routing-steps 0: write 1 or more");
        *out = (size_t)steps;
        return SPW_OK;
    }
    if (needed > MOST_ROUTING_STEPS)
        return spw_fail(
            SPW_EARG,
            "the routing takes %.0f steps to change and to recover, more than the %d that are generated "
            "without being asked for; write --routing-steps %.0f, or a shorter rise and recovery",
            needed, MOST_ROUTING_STEPS, needed);
    *out = (size_t)needed;
    return SPW_OK;
}

spw_status spw_plan_routing_settings(const spw_job *job, const char *routing, const char *steps,
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
    if (out->ranks > SPW_TRACE_MAX_RANKS)
        return spw_fail(SPW_EARG,
                        "the job has %zu GPUs, and routing is generated for at most %d; write --trace",
                        out->ranks, (int)SPW_TRACE_MAX_RANKS);
    const spw_status status = spw_distribution_parse(routing, &out->distribution);
    if (status != SPW_OK) return status;
    if (out->distribution.popularity == SPW_REFERENCE) out->layers = SPW_REFERENCE_LAYERS;
    (void)spw_distribution_limit(&out->distribution, job->model.groups, job->model.groups_kept);
    const size_t most = MOST_TOKENS / out->layers / out->tokens_per_rank;
    if (most < FEWEST_RANKS) {
        out->ranks = out->ranks < FEWEST_RANKS ? out->ranks : FEWEST_RANKS;
    } else if (out->ranks > most) {
        out->ranks = most;
    }
    return count_steps(&out->distribution, steps, &out->steps);
}

/* An empty file in the folder for temporary ones. */
static spw_status create_file(char **path) {
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

spw_status spw_plan_make_trace(const spw_job *job, const char *routing, const char *steps, uint64_t seed,
                               char **path) {
    spw_generate_settings settings;
    spw_status status = spw_plan_routing_settings(job, routing, steps, seed, &settings);
    if (status != SPW_OK) return status;
    if (settings.steps == 1) settings.level = SPW_TRACE_STORED; /* a search reads it many times */
    SPW_TRY(create_file(path));
    SPW_TRY(spw_generate_trace(&settings, *path));

cleanup:
    return status;
}

spw_status spw_plan_temper_trace(const char *from, const spw_temper_settings *settings, char **path) {
    spw_status status = create_file(path);
    if (status == SPW_OK) status = spw_trace_temper(from, *path, settings);
    return status;
}
