/* Which tokens of a trace's step every rank of a job holds, from the trace's token columns: the rules of docs/schemes.md, "From
 * a trace to a job of another size". */
#ifndef SPW_SIM_ROUTING_TOKEN_LAYOUT_H
#define SPW_SIM_ROUTING_TOKEN_LAYOUT_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/routing/assumptions.h"
#include "sim/routing/token_runs.h"

#include <stdint.h>

typedef struct spw_layout spw_layout;
typedef struct spw_trace_info spw_trace_info;

/* One batch of a step; everything is borrowed. */
typedef struct spw_token_layout {
    const spw_job *job;
    const spw_trace_info *info;
    spw_token_runs *runs;    /* of the step */
    size_t ranks, sequences; /* of the job; of a rank */
    size_t kinds; /* sequences of a rank that are drawn, at least 1; those behind them repeat them in turn */
    size_t step;
    uint64_t seed;
    spw_layout *layout;     /* where the tokens go */
    spw_match *match;       /* is worsened */
    spw_assumptions *found; /* are added to */
} spw_token_layout;

/* Clears the layout and, where the source ranks of the trace are those of the job, its data-parallel ranks or a multiple of the
 * job's, and have the tokens that are wanted, fills it. Else it stays empty. */
SPW_MUST_CHECK spw_status spw_token_layout_deal(const spw_token_layout *layout);
/* Fills an empty layout; the runs have been cut into pieces. */
SPW_MUST_CHECK spw_status spw_token_layout_draw(const spw_token_layout *layout);

#endif
