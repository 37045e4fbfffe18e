/* What the files of tempering tell each other. */
#ifndef SPW_TRACES_GENERATE_TEMPER_INTERNAL_H
#define SPW_TRACES_GENERATE_TEMPER_INTERNAL_H

#include "traces/generate/temper.h"
#include "traces/write/trace_part.h"

/* The steps and layers of a trace that are chosen, of all its ranks. SPW_EARG when it does not have them. */
SPW_MUST_CHECK spw_status spw_temper_part(const spw_trace_info *info, const spw_temper_settings *settings,
                                          spw_trace_part *out);

/* As few tokens as can have made these choices. */
uint64_t spw_temper_fewest_tokens(const uint32_t *own, size_t experts, size_t top_k);

#endif
