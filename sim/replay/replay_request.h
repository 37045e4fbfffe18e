/* What a replay is asked, and what it hands over step by step. */
#ifndef SPW_SIM_REPLAY_REPLAY_REQUEST_H
#define SPW_SIM_REPLAY_REPLAY_REQUEST_H

#include "base/checkpoint.h"
#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/replay/overload.h"
#include "sim/replay/result.h"
#include "sim/routing/balancer.h"
#include "sim/routing/imbalance_law.h"
#include "sim/routing/load_tally.h"
#include "sim/routing/token_store.h"
#include "sim/schemes/scheme.h"
#include "traces/trace_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_megatron_coefficients spw_megatron_coefficients;
typedef struct spw_stack spw_stack;
typedef struct spw_time_stack spw_time_stack;

typedef struct spw_trace spw_trace;

/* What one step of one row did, by layer and rank; handed to a sink when the step is done.
 * All arrays are [layers][ranks]. */
typedef struct spw_replay_step {
    size_t row, step, layers, ranks;
    int64_t step_id;
    const uint64_t *rows_received, *bytes_sent, *bytes_received, *dropped;
    uint64_t peak_bytes;
    uint64_t allocated_bytes,
        reserved_bytes;           /* of the rank that has most; 0 where no allocator was replayed */
    double step_s;                /* 0 where it has no time */
    const spw_overload *overload; /* NULL: not asked for */
    const uint64_t
        *chosen; /* [layers][experts] choices of each expert by all tokens of the first batch, before drops */
    size_t experts;
    const double *
        link_bytes; /* [ranks][group_ranks] off-rank bytes to each member of the rank's own group in one dispatch,
                                 micro-batches together: the sum over the layers and steps so far; NULL: too many */
    size_t group_ranks;
    bool last; /* of the steps */
    double factor[SPW_OVERLOADS];
} spw_replay_step;

typedef struct spw_replay_sink {
    void *state; /* NULL = nobody listens */
    spw_status (*take)(void *state, const spw_replay_step *step);
    bool elsewhere; /* the first process listens, this one does not */
} spw_replay_sink;

/* What is known of a row before its last step is timed. */
typedef struct spw_replay_prospect {
    size_t row; /* position among [splits][batches][schemes] */
    uint64_t peak_bytes, budget_bytes;
    spw_result_drops drops;
    double tokens_per_s_most; /* of a GPU; INFINITY: not known */
} spw_replay_prospect;

/* Who decides which rows are finished. A row whose last step is replayed is asked about by its memory, and if it is wanted and has a
 * time, once more by how fast it is at most; what is still wanted then is timed, and if an allocator is to be run, asked about by its time;
 * only what is wanted even then is run through the allocator, and handed over. */
typedef struct spw_replay_judge {
    void *state; /* NULL = nobody: all are */
    spw_status (*wants)(void *state, const spw_replay_prospect *prospect, bool *out);
    spw_status (*take)(void *state, size_t row, const spw_result_row *result);
} spw_replay_judge;

typedef struct spw_replay_request {
    spw_trace *trace;
    const spw_job *job; /* [splits] jobs that differ in expert, fsdp, virtual stages and remat alone */
    size_t splits;      /* 0 counts as 1 */
    const spw_balancer_spec
        *balancer; /* NULL: none. The model of the job then has its replicas among its experts (model.experts,
                     model.replicas), the trace has none; one split */
    spw_balancer_moves *moves; /* what the placements cost; NULL: not asked for */
    const bool *skip;          /* [splits][batches][schemes] rows that are left out; NULL: none */
    const spw_scheme *scheme;  /* [schemes] */
    size_t schemes;
    size_t step_begin, step_end, layer_begin, layer_end; /* as in spw_composer_request */
    uint64_t seed;
    size_t drawn_sequences; /* as in spw_composer_request */
    spw_token_store *store; /* the same; NULL: none */
    bool refuses;           /* a point that cannot be is a refusal, also where there is one split */
    bool skips_lost_tokens; /* tokens_fully_dropped is not counted */
    bool expects;           /* rows, copies and drops without a draw, of generated routing */
    bool
        drops_alone; /* of a row only `drops` and `pages` are asked for; what follows rows that stay may be off */
    spw_load_tally *
        tally; /* a zeroed one, filled with the loads of the first batch and split that its first scheme meets; NULL: none */
    const spw_imbalance_law *
        imbalance; /* times, rows, drops and memory that follows the routing are those of a rank with so many times
                      the mean choices, in every layer and micro-batch; bytes stay the routing's. NULL: as the routing is */
    const spw_stack *stack;  /* memory of compiled programs by its coefficients; NULL: what must be live */
    const spw_stack *newest; /* where `stack` says nothing: what this one would say beside
                                                  what must be live; NULL: nothing */
    const spw_time_stack *time_stack;          /* times of those programs; NULL: none */
    const spw_megatron_coefficients *megatron; /* times of Megatron-Core's schemes; NULL: none */
    bool listed;                               /* times of transformers' steps, which need no stack */
    bool overload;                             /* overload factors, and what they cost */
    bool allocator; /* replay PyTorch's allocator for schemes that allocate what arrives */
    bool
        every_rank; /* of every rank of every stage, and not of the fullest alone (sim/memory/step/reserved_memory.h) */
    bool as_set_alone;          /* as in spw_reserved_request (sim/memory/step/reserved_memory.h) */
    spw_checkpoint *checkpoint; /* of the first process: what is done is kept there; NULL: nowhere */
    size_t first_row;           /* number of the first row for the sink */
    spw_memory_bound *memory;   /* what the process may take; NULL: as much as there is */
    size_t kept_rows;           /* rows of other replays that the caller keeps and prints beside these */
    spw_replay_sink sink;
    spw_replay_judge judge; /* not beside a sink or a checkpoint, which ask for the time of every step */
} spw_replay_request;

#endif
