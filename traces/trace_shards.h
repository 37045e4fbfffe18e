/* A set of shards read as one trace: the calls of trace.h for a trace that is no file of its own. In every step the tokens of
 * the shards follow each other in order of their ranks. The shards of one range of steps are open at a time. */
#ifndef SPW_TRACES_TRACE_SHARDS_H
#define SPW_TRACES_TRACE_SHARDS_H

#include "traces/shard_set.h"

typedef struct spw_trace_columns spw_trace_columns;
typedef struct spw_trace_record spw_trace_record;

SPW_MUST_CHECK spw_status spw_trace_shards_open(const char *path, spw_trace **out);
void spw_trace_shards_close(spw_trace *trace);
void spw_trace_shards_keep_contradictions(spw_trace *trace);

/* A shard that is open, and of how many like it a step is made. */
const spw_trace *spw_trace_shards_first(const spw_trace *trace, size_t *columns);
void spw_trace_shards_set_window(spw_trace *trace, size_t bytes);

/* Each as the call of trace.h with the like name; steps and layers are checked. */
SPW_MUST_CHECK spw_status spw_trace_shards_count_flagged(spw_trace *trace, uint64_t *out);
SPW_MUST_CHECK spw_status spw_trace_shards_read_columns(spw_trace *trace, size_t step, size_t steps,
                                                        spw_trace_columns *out);
SPW_MUST_CHECK spw_status spw_trace_shards_read_record(spw_trace *trace, size_t step, size_t steps,
                                                       size_t layer, bool weights, spw_trace_record *out);
/* [ranks][experts] if `by_rank`, else [experts]; sums that a uint32_t does not hold are UINT32_MAX. */
SPW_MUST_CHECK spw_status spw_trace_shards_read_counts(spw_trace *trace, size_t step, size_t layer,
                                                       bool by_rank, uint32_t *out);

/* Opens a file that is known to be sound again, without a child that tries it; `like` has the same texts. */
SPW_MUST_CHECK spw_status spw_trace_open_again(const char *path, const spw_trace *like, spw_trace **out);

#endif
