#include "sim/score/runs/run_routed.h"

#include "sim/plan/plan_points.h"
#include "sim/replay/made_routing.h"
#include "traces/generate/made_trace.h"

enum { SEED = 1 /* of plan, unless it is told another */ };

spw_status spw_run_routed(const spw_point *point, const spw_software *software, const char *routing,
                          spw_timeline *time, uint64_t *peak_bytes) {
    spw_plan_request request = {.job = point->job,
                                .scheme = point->scheme,
                                .schemes = 1,
                                .seed = SEED,
                                .brief = true,
                                .stack = software->compiled ? &software->stack : NULL,
                                .time_stack = software->timed ? &software->time_stack : NULL,
                                .megatron = software->megatron ? &software->megatron_coefficients : NULL};
    spw_result result = {.rows = 0};
    spw_generate_settings settings;
    spw_trace *trace = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_made_routing_settings(point->job, routing, 0, SEED, &settings));
    SPW_TRY(spw_trace_make(&settings, &trace));
    request.trace = trace;
    SPW_TRY(spw_plan_run(&request, &result));
    if (result.rows != 1 || !result.row[0].timed)
        SPW_TRY(spw_fail(SPW_ECONFIG, "routing %s gives this point no time", routing));
    *time = result.row[0].time;
    *peak_bytes = result.row[0].memory.max_bytes;

cleanup:
    spw_result_clear(&result);
    spw_trace_close(trace);
    return status;
}
