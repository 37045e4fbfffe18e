/* The routing that a plan generates. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_ROUTING_H
#define SPW_SIM_COMMAND_PLAN_PLAN_ROUTING_H

#include "sim/replay/made_routing.h"
#include "traces/generate/temper.h"

typedef struct spw_trace spw_trace;

/* How much is generated, as asked for on the command line. */
typedef struct spw_routing_extent {
    const char *steps;  /* NULL: as many as show how it changes */
    const char *tokens; /* at most, in all layers of a step; NULL: as spw_made_routing_settings() */
} spw_routing_extent;

/* As spw_made_routing_settings. The text is borrowed by `out`. SPW_EARG. */
SPW_MUST_CHECK spw_status spw_plan_routing_settings(const spw_job *job, const char *routing,
                                                    const spw_routing_extent *extent, uint64_t seed,
                                                    spw_generate_settings *out);

/* A trace of that; what is read of it is drawn then. */
SPW_MUST_CHECK spw_status spw_plan_make_trace(const spw_job *job, const char *routing,
                                              const spw_routing_extent *extent, uint64_t seed,
                                              spw_trace **out);

/* A recorded trace whose popularities are raised to a power (traces/generate/temper.h), in the folder for temporary files; the caller removes it
 * and frees `*path`, after a failure, too. */
SPW_MUST_CHECK spw_status spw_plan_temper_trace(const char *from, const spw_temper_settings *settings,
                                                char **path);

#endif
