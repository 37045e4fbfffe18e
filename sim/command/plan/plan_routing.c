#include "sim/command/plan/plan_routing.h"

#include "sim/command/job_options.h"
#include "traces/generate/made_trace.h"

enum { MOST_ROUTING_STEPS = 64 };                       /* without being asked for */
static const double MOST_ROUTING_TOKENS = 4294967296.0; /* of a step, in all layers */

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

spw_status spw_plan_routing_settings(const spw_job *job, const char *routing,
                                     const spw_routing_extent *extent, uint64_t seed,
                                     spw_generate_settings *out) {
    double tokens = 0.0;
    spw_status status = SPW_OK;
    if (extent->tokens != NULL)
        status = spw_parse_amount("--routing-tokens", extent->tokens, "tokens", &tokens);
    if (status == SPW_OK && tokens > MOST_ROUTING_TOKENS)
        status = spw_fail(SPW_EARG, "--routing-tokens %s: write %.0f or less", extent->tokens,
                          MOST_ROUTING_TOKENS);
    if (status == SPW_OK) status = spw_made_routing_settings(job, routing, (size_t)tokens, seed, out);
    return status == SPW_OK ? count_steps(&out->distribution, extent->steps, &out->steps) : status;
}

spw_status spw_plan_make_trace(const spw_job *job, const char *routing, const spw_routing_extent *extent,
                               uint64_t seed, spw_trace **out) {
    spw_generate_settings settings;
    const spw_status status = spw_plan_routing_settings(job, routing, extent, seed, &settings);
    return status == SPW_OK ? spw_trace_make(&settings, out) : status;
}

spw_status spw_plan_temper_trace(const char *from, const spw_temper_settings *settings, char **path) {
    const spw_status status = spw_made_routing_create(path);
    return status == SPW_OK ? spw_trace_temper(from, *path, settings) : status;
}
