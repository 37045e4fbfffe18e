/* A generated trace that is no file: the calls of trace.h for it. Choices of a step and layer are drawn when they are read. */
#ifndef SPW_TRACES_MADE_TRACE_H
#define SPW_TRACES_MADE_TRACE_H

#include "traces/generate.h"
#include "traces/trace.h"

typedef struct spw_made_trace spw_made_trace;

/* What spw_generate_trace() would write by these settings, without its counts, and with ids of a byte for 256 experts, too. Nothing is
 * drawn yet. Up to 64 MiB of choices are kept; further ones are drawn at every reading. The texts of the settings are copied.
 * SPW_EARG as spw_generator_create(), and for more than 2^31 - 1 sequences. */
SPW_MUST_CHECK spw_status spw_trace_make(const spw_generate_settings *settings, spw_trace **out);

/* Consecutive tokens that every source rank has of every step, each a sequence; 0: the trace is a file, or tells it by columns. */
size_t spw_trace_made_tokens(const spw_trace *trace);

void spw_made_trace_destroy(spw_made_trace *made); /* NULL is fine */
/* Each as the call of trace.h with the like name; steps and layers are checked. A record is of one step. */
SPW_MUST_CHECK spw_status spw_made_trace_read_columns(spw_trace *trace, size_t step, size_t steps,
                                                      spw_trace_columns *out);
SPW_MUST_CHECK spw_status spw_made_trace_read_record(spw_trace *trace, size_t step, size_t steps,
                                                     size_t layer, spw_trace_record *out);

#endif
