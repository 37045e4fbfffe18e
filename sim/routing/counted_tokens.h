/* Tokens for a trace that holds counts alone: the experts keep their shares (their counts, where the trace has them for the
 * job's very ranks and tokens), which of them meet in one token is drawn. */
#ifndef SPW_SIM_ROUTING_COUNTED_TOKENS_H
#define SPW_SIM_ROUTING_COUNTED_TOKENS_H

#include "base/status.h"

#include <stdint.h>

typedef struct spw_trace spw_trace;
typedef struct spw_trace_record spw_trace_record;
typedef struct spw_counted_tokens spw_counted_tokens;

/* `trace` is borrowed; `ranks` of the job. */
SPW_MUST_CHECK spw_status spw_counted_tokens_create(spw_trace *trace, size_t ranks, spw_counted_tokens **out);
void spw_counted_tokens_destroy(spw_counted_tokens *c); /* NULL is fine */

/* A record of ranks x `tokens` tokens, rank-major, a function of the arguments alone; valid until the next draw. `step` and
 * `layer` are positions in the trace. */
SPW_MUST_CHECK spw_status spw_counted_tokens_draw(spw_counted_tokens *counted, size_t step, size_t layer,
                                                  size_t tokens, uint64_t seed, spw_trace_record *record);

#endif
