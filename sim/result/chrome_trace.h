/* The predicted steps of a result as a Chrome trace (the JSON object format of the Trace Event Format, which Perfetto and
 * chrome://tracing open). A row is a process; times are in microseconds from the begin of its step:
 *
 *   thread "what the step waits for"   an event "step", and inside of it one event a component, exposed_s long, end to end
 *   thread "hidden: STREAM"            the rest of each component's kernels, seconds - exposed_s, end to end
 *
 * The components of a time model have durations and no order: that in which they follow each other is the one in which they
 * are printed. */
#ifndef SPW_SIM_RESULT_CHROME_TRACE_H
#define SPW_SIM_RESULT_CHROME_TRACE_H

#include "sim/replay/result.h"

/* SPW_EARG when no row has a step time. `path` is never half written. */
SPW_MUST_CHECK spw_status spw_chrome_trace_write(const spw_result *result, const spw_run_settings *settings,
                                                 const char *path);

#endif
