/* A set of shards (traces/shard_set.h) put together to one trace. */
#ifndef SPW_TRACES_WRITE_MERGE_H
#define SPW_TRACES_WRITE_MERGE_H

#include "base/status.h"

/* Ids, weights, source ranks, sequences, positions, steps and their micro-batches; counts are made anew from the tokens where there
 * are any. What the reader does not read is left out, and the note says so. `level`: of compression, 1 to 12; 0: the writer's choice.
 * Memory is that of the reader and one step. SPW_EARG: no set of shards, or `out_path` is one of them; SPW_EFORMAT: the shards
 * are no whole trace, or tokens are flagged as padding, which would be lost. */
SPW_MUST_CHECK spw_status spw_trace_merge(const char *in_path, const char *out_path, int level);

#endif
