/* What a reader refuses is not written: traces/trace_rules.c and docs/trace_format.md, "What is refused". SPW_EARG, as it is the
 * caller who gives it. */
#ifndef SPW_TRACES_WRITE_TRACE_WRITE_RULES_H
#define SPW_TRACES_WRITE_TRACE_WRITE_RULES_H

#include "traces/write/trace_write_internal.h"

/* Sizes, layers, experts and top_k of each, ranks, facts of the model. */
SPW_MUST_CHECK spw_status spw_trace_write_check_settings(const spw_trace_info *info);

/* A step that would follow those written: its id, its tokens, and that its columns are there and hold ranks that exist. */
SPW_MUST_CHECK spw_status spw_trace_write_check_step(const spw_trace_writer *writer,
                                                     const spw_trace_write_step *step);

/* Choices expert_id [tokens][top_k] of a layer, which are known to exist: no expert twice in a token; their weights, of the same shape
 * or NULL: finite, not below 0, and falling where the order says so. */
SPW_MUST_CHECK spw_status spw_trace_write_check_layer(const spw_trace_writer *writer, size_t layer,
                                                      const uint16_t *expert_id, const uint16_t *weight);

/* Counts [experts] of a layer: no more than the tokens can choose. */
SPW_MUST_CHECK spw_status spw_trace_write_check_counts(const spw_trace_writer *writer, size_t layer,
                                                       const uint32_t *counts);

#endif
