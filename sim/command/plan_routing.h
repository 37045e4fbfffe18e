/* The routing that a plan generates. */
#ifndef SPW_SIM_COMMAND_PLAN_ROUTING_H
#define SPW_SIM_COMMAND_PLAN_ROUTING_H

#include "sim/replay/made_routing.h"
#include "traces/temper.h"

/* As spw_made_routing_settings; `steps` as asked for, or NULL: as many as show how it changes. The texts are borrowed by `out`. */
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
