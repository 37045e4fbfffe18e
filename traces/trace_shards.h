/* A set of shards read as one trace: the calls of trace.h for a trace that is no file of its own. In every step the tokens of
 * the shards follow each other in order of their ranks. The shards of one range of steps are open at a time. */
#ifndef SPW_TRACES_TRACE_SHARDS_H
#define SPW_TRACES_TRACE_SHARDS_H

#include "traces/shard_set.h"

/* A shard that is open, and of how many like it a step is made. */
const spw_trace *spw_trace_shards_first(const spw_trace *trace, size_t *columns);

#endif
