/* The tokens of a step as a trace has them, in runs that stand together, and how they become sequences of a job. */
#ifndef SPW_SIM_ROUTING_TOKEN_RUNS_H
#define SPW_SIM_ROUTING_TOKEN_RUNS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_layout spw_layout;
typedef struct spw_trace spw_trace;

/* Consecutive rows of one source rank and sequence, in order of position. */
typedef struct spw_token_run {
    uint32_t rank;
    int32_t sequence;
    int64_t position; /* of the first row; the row itself where the trace has no positions */
    uint64_t first;
    uint64_t tokens;
} spw_token_run;

typedef struct spw_token_runs {
    spw_token_run *run; /* [runs] by rank, sequence, position */
    size_t runs, run_capacity;
    size_t *piece; /* [pieces + 1] first run of each, once they are cut */
    size_t pieces;
    bool repeated;  /* two tokens of a rank have one place in one sequence */
    size_t flagged; /* tokens that the trace calls padding or of a dummy run */
} spw_token_runs;

/* Overwrites them with the rows of trace steps [begin, end). Without a sequence column a trace step is one sequence.
 * SPW_EFORMAT when there are no tokens. */
SPW_MUST_CHECK spw_status spw_token_runs_read(spw_token_runs *runs, spw_trace *trace, size_t begin,
                                              size_t end);
void spw_token_runs_clear(spw_token_runs *runs); /* a zeroed one is fine */

/* Where the runs of source rank `rank` begin. */
size_t spw_token_runs_first(const spw_token_runs *runs, uint64_t rank);
/* Tokens of runs [begin, end). */
uint64_t spw_token_runs_tokens(const spw_token_runs *runs, size_t begin, size_t end);
/* Whether every sequence of the trace is `length` long. */
bool spw_token_runs_have_length(const spw_token_runs *runs, size_t length);

/* Gives `rank` of `out` the first `want` tokens of runs [begin, end), cut into sequences of `length`. The layout is to be closed. */
SPW_MUST_CHECK spw_status spw_token_runs_take(const spw_token_runs *runs, size_t begin, size_t end,
                                              size_t want, size_t length, size_t rank, spw_layout *out);

/* `tokens` tokens from `offset` on become part of a sequence of a rank. */
typedef struct spw_token_place {
    size_t rank, sequence, offset, tokens;
} spw_token_place;
/* Puts them into `out`, which is to be closed; offsets count from run `begin`. The runs must have as many. */
SPW_MUST_CHECK spw_status spw_token_runs_take_part(const spw_token_runs *runs, size_t begin,
                                                   const spw_token_place *place, spw_layout *out);

/* Cuts the runs where a sequence of the trace fills one of `length`, and notes which runs are a piece. */
SPW_MUST_CHECK spw_status spw_token_runs_cut(spw_token_runs *runs, size_t length);
/* Gives a sequence of `out` `room` tokens of piece `index`, or all it has; *taken says how many. The layout
 * is to be closed. */
SPW_MUST_CHECK spw_status spw_token_runs_take_piece(const spw_token_runs *runs, size_t index, size_t room,
                                                    size_t rank, size_t sequence, spw_layout *out,
                                                    size_t *taken);

#endif
