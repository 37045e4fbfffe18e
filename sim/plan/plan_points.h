/* A sweep: schemes x parallel splits x batches, each replayed on the same routing, with memory, drops and time. */
#ifndef SPW_SIM_PLAN_PLAN_POINTS_H
#define SPW_SIM_PLAN_PLAN_POINTS_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/replay/replay_request.h"
#include "sim/replay/result.h"

typedef struct spw_megatron_coefficients spw_megatron_coefficients;
typedef struct spw_stack spw_stack;
typedef struct spw_time_stack spw_time_stack;

typedef struct spw_trace spw_trace;

enum { SPW_PLAN_SPLITS = 32 };

typedef struct spw_plan_request {
    spw_trace *trace;
    const spw_job *job;       /* its batches; its expert x fsdp GPUs are split anew */
    const spw_scheme *scheme; /* [schemes] */
    size_t schemes;
    size_t expert[SPW_PLAN_SPLITS], splits; /* expert-parallel sizes; 0 = the job's own */
    size_t step_begin, step_end, layer_begin, layer_end;
    uint64_t seed;
    const spw_imbalance_law *imbalance; /* as in spw_replay_request */
    bool allocator;                     /* replay PyTorch's for schemes that allocate what arrives */
    bool every_rank;                    /* as in spw_replay_request */
    bool
        brief; /* without what only details show: counts that are expected, and the other set of formats, dense's break-even factor,
                   and what expandable segments would change of a point that fits, each of which takes replays of its own */
    const spw_stack *stack;                    /* NULL: what must be live */
    bool stack_assumed;                        /* nobody named it */
    const spw_stack *newest;                   /* as in spw_replay_request */
    const spw_time_stack *time_stack;          /* times of compiled programs; NULL: none */
    const spw_megatron_coefficients *megatron; /* times of Megatron-Core's schemes; NULL: none */
    bool listed;                               /* times of transformers' steps, which need no stack */
    spw_memory_bound *memory;                  /* as in spw_replay_request */
    spw_token_store *store;                    /* the same */
    uint64_t advice_work;                      /* as in SPW_ADVICE_WORK; 0: that */
} spw_plan_request;

/* The expert-parallel sizes from 1 on that divide both the experts and the job's expert x fsdp GPUs. Returns how many. */
size_t spw_plan_all_splits(const spw_job *job, size_t out[SPW_PLAN_SPLITS]);

/* Appends a row for every point that can be, and a refusal for every other. SPW_ECONFIG when no expert-parallel size
 * can be. */
SPW_MUST_CHECK spw_status spw_plan_run(const spw_plan_request *request, spw_result *result);

/* The replay of one scheme on one job of the plan's routing; both are borrowed. */
spw_replay_request spw_plan_point_request(const spw_plan_request *q, const spw_job *job,
                                          const spw_scheme *scheme);

/* The job of one row: its split and batch alone. */
void spw_plan_point_job(const spw_plan_request *q, const spw_result_row *row, spw_job *out);

/* Replays one point beside the plan; `*there` is false when it cannot be. */
SPW_MUST_CHECK spw_status spw_plan_replay_point(const spw_plan_request *q, const spw_job *job,
                                                const spw_scheme *scheme, bool memory_only, bool one_step,
                                                spw_result *out, bool *there);

/* Why a row has no time, as a person reads it; NULL when it has one. */
const char *spw_plan_no_time(const spw_plan_request *q, const spw_result_row *row);

/* Rows of the fullest rank over the mean. */
double spw_plan_max_over_mean(const spw_result_row *row);

/* The capacity factor with which `dense` takes as long a step as `row`: fewer drops cost more than the row's scheme beyond
 * it. NAN when there is none in [0.5, 16], or no time. Every expert is chosen alike: dense does not depend on it. */
double spw_plan_break_even_factor(const spw_plan_request *q, const spw_result_row *row);

#endif
