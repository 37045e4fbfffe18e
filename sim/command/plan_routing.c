#include "sim/command/plan_routing.h"

#include "sim/command/job_options.h"

enum { MOST_ROUTING_STEPS = 64 }; /* without being asked for */

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
    const spw_status status = spw_made_routing_settings(job, routing, seed, out);
    return status == SPW_OK ? count_steps(&out->distribution, steps, &out->steps) : status;
}

spw_status spw_plan_make_trace(const spw_job *job, const char *routing, const char *steps, uint64_t seed,
                               char **path) {
    spw_generate_settings settings;
    const spw_status status = spw_plan_routing_settings(job, routing, steps, seed, &settings);
    return status == SPW_OK ? spw_made_routing_write(&settings, path) : status;
}

spw_status spw_plan_temper_trace(const char *from, const spw_temper_settings *settings, char **path) {
    const spw_status status = spw_made_routing_create(path);
    return status == SPW_OK ? spw_trace_temper(from, *path, settings) : status;
}
