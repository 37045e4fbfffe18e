/* The main job: every step and layer of a trace through every scheme and batch size. */
#ifndef SPW_SIM_REPLAY_H
#define SPW_SIM_REPLAY_H

#include "base/status.h"
#include "sim/result.h"
#include "sim/stack.h"

#include <stdint.h>

/* What one step of one row did, by layer and rank; handed to a sink when the step is done.
 * All arrays are [layers][ranks]. */
typedef struct spw_replay_step {
    size_t row, step, layers, ranks;
    int64_t step_id;
    const uint64_t *rows_received, *bytes_sent, *bytes_received, *dropped;
    uint64_t peak_bytes;
} spw_replay_step;

typedef struct spw_replay_sink {
    void *state; /* NULL = nobody listens */
    spw_status (*take)(void *state, const spw_replay_step *step);
} spw_replay_sink;

typedef struct spw_replay_request {
    spw_trace *trace;
    const spw_job *job;
    const spw_scheme *scheme; /* [schemes] */
    size_t schemes;
    size_t step_begin, step_end, layer_begin, layer_end; /* as in spw_composer_request */
    uint64_t seed;
    const spw_stack *stack; /* memory of compiled programs by its coefficients; NULL: what must be live */
    size_t first_row;       /* number of the first row for the sink */
    spw_replay_sink sink;
} spw_replay_request;

/* Appends job->batches x schemes rows to `result`, batch by batch. */
SPW_MUST_CHECK spw_status spw_replay_run(const spw_replay_request *request, spw_result *result);

#endif
