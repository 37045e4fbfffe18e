/* What a replay says: one row per scheme and batch size. */
#ifndef SPW_SIM_REPLAY_RESULT_H
#define SPW_SIM_REPLAY_RESULT_H

#include "base/status.h"
#include "sim/input/job.h"
#include "sim/input/megatron_coefficients.h"
#include "sim/input/stack.h"
#include "sim/input/time_stack.h"
#include "sim/memory/footprint.h"
#include "sim/memory/reserved_memory.h"
#include "sim/routing/compose.h"
#include "sim/schemes/scheme.h"
#include "sim/time/timeline.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPW_REFUSAL_TEXT = 256 };

typedef struct spw_result_memory {
    uint64_t p50_bytes, p99_bytes, max_bytes; /* of the peak, over ranks and steps */
    double oom_probability;   /* of a step, any rank; of the replayed allocator where there is one */
    double oom_low, oom_high; /* its 95 % interval; both equal it where nothing is random */
    int64_t worst_step;       /* where the most rows arrive: step id, layer id, rank */
    int32_t worst_layer;
    size_t worst_rank;
} spw_result_memory;

/* Bytes: docs/schemes.md, "What the figures mean". Means are over ranks, steps and layers of the trace. */
typedef struct spw_result_traffic {
    double dispatch_bytes_per_gpu, combine_bytes_per_gpu; /* one exchange, off-rank bytes sent */
    double step_bytes_per_gpu;                            /* all exchanges of all MoE layers of the job */
    double intra_node_bytes, inter_node_bytes; /* of one dispatch, per GPU, as they cross links and NICs */
    uint64_t max_link_bytes;                   /* of one dispatch, the busiest GPU port, one way */
    uint64_t rows_max;
    double rows_mean;
} spw_result_traffic;

typedef struct spw_result_drops {
    uint64_t assignments, dropped, tokens_fully_dropped; /* totals over the replayed steps and layers */
    bool lost_unknown;                                   /* tokens_fully_dropped was not counted */
    double worst_fraction;                               /* dropped in the step that drops most, and its id */
    int64_t worst_step;
    bool at_least; /* of a stated imbalance, which says no more than the fullest rank's share */
} spw_result_drops;

/* What the figures of memory are of. */
typedef enum spw_memory_kind {
    SPW_MEMORY_LIVE, /* what must be live; what an allocator or a compiler adds comes on top */
    SPW_MEMORY_ARENA /* XLA's arena, by a stack's coefficients */
} spw_memory_kind;
const char *spw_memory_kind_name(spw_memory_kind kind); /* "live", "arena" */

typedef struct spw_result_row {
    spw_scheme scheme;
    size_t sequences, expert, fsdp;
    int64_t first_step, last_step; /* ids */
    size_t steps, layers;          /* replayed */
    spw_footprint footprint;
    spw_result_memory memory;
    spw_reserved_summary reserved;
    spw_memory_kind memory_kind;
    char
        memory_outside[SPW_OUTSIDE_TEXT]; /* why the stack's fit does not cover the memory; "" when it does */
    spw_result_traffic traffic;
    spw_result_drops drops;
    bool timed;                /* the time model speaks of this scheme */
    spw_timeline time;         /* mean over the steps */
    double balanced_step_s;    /* the same job with every expert chosen alike */
    double aligned_step_s;     /* the same if every expert-parallel group began with a node */
    double worst_step_s;       /* the longest of the steps */
    int64_t worst_time_step;   /* its id */
    size_t groups, straddling; /* expert-parallel groups, and those on more nodes than they need */
    spw_match match;
    spw_assumptions assumptions;
} spw_result_row;

/* The smallest factor that drops at most `most` of the assignments. */
typedef struct spw_factor_answer {
    char scheme[SPW_SCHEME_TEXT]; /* as asked */
    size_t sequences;
    const char *option; /* capacity_factor or buffer_factor */
    double most;        /* a share */
    double factor;      /* 0: none does */
    double fraction;    /* dropped with it */
} spw_factor_answer;

/* The largest number of sequences per GPU that fits in the share `at` of the steps. */
typedef struct spw_batch_answer {
    char scheme[SPW_SCHEME_TEXT];
    double at;
    size_t largest; /* 0: not even one */
    bool at_least;  /* the search ended there, more may fit */
    size_t steps;
    bool routed; /* memory follows the routing: the probability is of the replayed steps */
    spw_probability oom;
} spw_batch_answer;

/* A point that cannot be, where others can. */
typedef struct spw_refusal {
    char scheme[SPW_SCHEME_TEXT];
    size_t sequences, expert;
    char reason[SPW_REFUSAL_TEXT];
} spw_refusal;

typedef struct spw_result {
    spw_result_row *row;
    size_t rows, capacity;
    spw_factor_answer *factor; /* [factors]; only where asked for */
    spw_batch_answer *batch;   /* [batches]; only where asked for */
    spw_refusal *refusal;      /* [refusals] in the order of the rows that they would be */
    size_t factors, batches, refusals;
} spw_result;

/* Everything needed to run a result again, and what is said about its trace. Borrowed. */
typedef struct spw_run_settings {
    const char *command, *job_path, *trace_path;
    const spw_job *job;
    const spw_trace_info *trace; /* NULL without a trace */
    size_t step_begin, step_end, layer_begin, layer_end;
    uint64_t seed;
    const char *stack;                             /* name; NULL = none */
    const spw_stack *memory_fit;                   /* as read; NULL = none */
    const spw_time_stack *time_fit;                /* as read; NULL = none */
    const spw_megatron_coefficients *megatron_fit; /* the same */
} spw_run_settings;

/* Of the replayed allocator where there is one, else of the largest peak. */
spw_verdict spw_result_verdict(const spw_result_row *row);

/* Appends a zeroed row. The pointer is valid until the next append. */
SPW_MUST_CHECK spw_status spw_result_append(spw_result *result, spw_result_row **row);
SPW_MUST_CHECK spw_status spw_result_append_factor(spw_result *result, spw_factor_answer **answer);
SPW_MUST_CHECK spw_status spw_result_append_batch(spw_result *result, spw_batch_answer **answer);
SPW_MUST_CHECK spw_status spw_result_append_refusal(spw_result *result, spw_refusal **refusal);
void spw_result_clear(spw_result *result);

#endif
