/* Cutting a trace: some steps, layers and source ranks of it, as a trace of its own that names its source. */
#ifndef SPW_TRACES_WRITE_SLICE_H
#define SPW_TRACES_WRITE_SLICE_H

#include "base/status.h"

#include <stddef.h>

typedef struct spw_slice_settings {
    const size_t *step; /* [steps] positions, rising */
    size_t steps;
    size_t layer_begin, layer_end; /* positions, half open */
    size_t rank_begin, rank_end;   /* positions of source ranks, half open; both 0: all */
    size_t max_tokens;             /* the first so many tokens of every step; 0: all */
    int level;                     /* of compression, 1 to 12; 0: the writer's choice */
} spw_slice_settings;

/* Keeps weights, columns, attributes, source and licence; says in the attributes note and slice what was cut.
 * Counts are made anew from the tokens. What cannot be cut along is left out: sequences/token_offset,
 * /placement, and, when ranks or tokens are cut, counts other than routed and by_rank. SPW_EARG: positions
 * outside the trace. */
SPW_MUST_CHECK spw_status spw_trace_slice(const char *in_path, const char *out_path,
                                          const spw_slice_settings *settings);

#endif
