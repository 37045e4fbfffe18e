/* Chosen steps, layers and ranks of a trace, written as a trace of their own: what a slice and a tempered trace share. */
#ifndef SPW_TRACES_WRITE_TRACE_PART_H
#define SPW_TRACES_WRITE_TRACE_PART_H

#include "traces/trace_internal.h"
#include "traces/write/trace_write.h"

/* Positions, half open. */
typedef struct spw_trace_part {
    const size_t *step; /* [steps] rising; NULL: those from `first` on */
    size_t first, steps;
    size_t layer_begin, layer_end, rank_begin, rank_end;
} spw_trace_part;

/* Are the step's tokens there, or only their counts? */
bool spw_trace_step_has_tokens(const spw_trace_info *info, size_t step);

/* A writer of a trace that says of itself what `in` does, but for the part and `note`. `level` as in spw_trace_write_settings. */
SPW_MUST_CHECK spw_status spw_trace_part_create(const spw_trace *in, const spw_trace_part *part,
                                                const char *note, int level, const char *path,
                                                spw_trace_writer **out);

/* Rows of a step on their way: choices and weights [tokens][top_k]. */
typedef struct spw_trace_rows {
    size_t capacity; /* tokens */
    uint16_t *source_rank, *expert_id, *weight;
    int32_t *sequence, *position;
} spw_trace_rows;
/* Room for so many tokens; what was there is lost. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_trace_rows_grow(spw_trace_rows *rows, size_t tokens, size_t top_k);
void spw_trace_rows_clear(spw_trace_rows *rows); /* a zeroed one is fine */

/* A choice as a writer takes it. */
static inline uint16_t spw_trace_choice(const spw_trace_record *record, size_t i) {
    const uint16_t id = spw_trace_record_id(record, i);
    return id == record->missing ? SPW_TRACE_MISSING : id;
}

#endif
