/* Overload factors of a trace alone (sim/replay/overload.h): its tokens on expert-parallel ranks, before anything is dropped. */
#ifndef SPW_SIM_COMMAND_TRACE_TRACE_OVERLOAD_H
#define SPW_SIM_COMMAND_TRACE_TRACE_OVERLOAD_H

#include "sim/print/json_values.h"
#include "sim/print/table.h"
#include "sim/replay/overload.h"
#include "traces/statistics.h"

#include <stdbool.h>

typedef struct spw_trace spw_trace;
typedef struct spw_trace_info spw_trace_info;

/* Groups of `group_ranks` consecutive source ranks, where the trace knows these and they are a multiple of it; else all tokens
 * are of one group. */
typedef struct spw_trace_overload {
    size_t group_ranks; /* 0: the trace does not say how many, and nobody did */
    size_t groups;
    bool asked; /* group_ranks is the option's, not the trace's number of source ranks */
    spw_overload_run run;
    double run_rank;
    spw_layer_overload *layer; /* [layers] over the steps */
} spw_trace_overload;

/* asked: expert-parallel size, 0: the trace's source ranks, if they divide the experts of every layer. SPW_EARG when it does
 * not divide them. In the same pass over the trace: statistics [layers], traces/statistics.h. */
SPW_MUST_CHECK spw_status spw_trace_overload_read(spw_trace *trace, size_t asked,
                                                  spw_layer_statistics *statistics, spw_trace_overload *out);
void spw_trace_overload_clear(spw_trace_overload *overload); /* a zeroed one is fine */

SPW_MUST_CHECK spw_status spw_trace_overload_print(const spw_trace_overload *overload,
                                                   const spw_trace_info *info, FILE *out);
json_t *spw_trace_overload_json(spw_json *json, const spw_trace_overload *overload,
                                const spw_trace_info *info); /* null where group_ranks is 0 */

#endif
