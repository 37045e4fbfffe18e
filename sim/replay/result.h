/* What a replay says: one row per scheme and batch size. */
#ifndef SPW_SIM_REPLAY_RESULT_H
#define SPW_SIM_REPLAY_RESULT_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/memory/compiled/newest_arena.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/advice.h"
#include "sim/memory/step/reserved_summary.h"
#include "sim/replay/outside_fit.h"
#include "sim/replay/overload.h"
#include "sim/replay/page_use.h"
#include "sim/routing/balancer.h"
#include "sim/routing/compose.h"
#include "sim/schemes/expected_routing.h"
#include "sim/schemes/network.h"
#include "sim/schemes/scheme.h"
#include "sim/time/step_span.h"
#include "sim/time/timeline.h"
#include "sim/traffic/step_items.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct spw_megatron_coefficients spw_megatron_coefficients;
typedef struct spw_stack spw_stack;
typedef struct spw_time_stack spw_time_stack;

typedef struct spw_trace_info spw_trace_info;

enum { SPW_REFUSAL_TEXT = 640 };

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
    spw_level_bytes levels; /* of one dispatch of all groups; none where the network has one level */
    /* All that one GPU sends in one step, by purpose: the exchanges as replayed, the other collectives as they follow from
     * the job. Purposes that the job's part does not have are not said. */
    double purpose_bytes[SPW_PURPOSES];
    bool purpose_said[SPW_PURPOSES];
    double
        whole_step_bytes; /* their sum without what goes to the host; NAN: not known, and no purpose is said */
} spw_result_traffic;

typedef struct spw_result_drops {
    uint64_t assignments, dropped, tokens_fully_dropped; /* totals over the replayed steps and layers */
    double fraction;                                     /* dropped / assignments */
    bool lost_unknown;                                   /* tokens_fully_dropped was not counted */
    double worst_fraction;                               /* dropped in the step that drops most, and its id */
    int64_t worst_step;
    size_t dropping_steps;         /* steps in which anything was dropped */
    uint64_t dropping_assignments; /* of those steps */
    bool at_least; /* of a stated imbalance, which says no more than the fullest rank's share */
} spw_result_drops;

/* One replayed layer: its factors over the steps, and the share of a step that they cost (0 where there is no time): what
 * the step would take longer than balanced if all layers were as uneven as this one's average, over the MoE layers. */
typedef struct spw_result_layer {
    int32_t id;
    double average, max, cost_s;
} spw_result_layer;

typedef struct spw_result_overload {
    size_t ranks; /* of an expert-parallel group; 0: not asked for */
    spw_overload_run run;
    double run_rank; /* slowest_rank of all steps together */
    /* the step if every layer were as uneven as the mean of this factor; 0: no time */
    spw_step_span stated[SPW_OVERLOADS];
    spw_result_layer *layer; /* [row.layers], owned */
} spw_result_overload;

/* One pipeline stage: what it has, and the most that one of its ranks needs. */
typedef struct spw_result_stage {
    size_t layers, moe_layers, predictions; /* predictions: layers of multi-token prediction, beside these */
    bool embedding, head;
    uint64_t argument_bytes, peak_bytes;
} spw_result_stage;

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
    spw_rank_rows *
        worst_rows; /* [layers] of the rank and step whose peak is the footprint's; owned; NULL: not routed */
    spw_result_stage *stage; /* [stages] of a job that says which stage has which layers; owned */
    size_t stages;           /* 0: they are shared out evenly */
    spw_reserved_summary reserved;
    char advice[SPW_ADVICE_TEXT]; /* what to do about what the allocator did; "": nothing */
    spw_memory_kind memory_kind;
    spw_newest_arena newest;  /* where the memory is what must be live alone */
    int64_t death_step;       /* of reserved.as_set.death: ids of the trace */
    int32_t death_layer;      /* -1: none was at work */
    spw_device_budget budget; /* the GPU, and what of it is not the process's own */
    double most_bytes; /* that it may take of the budget, with what may lie outside beyond what is planned:
                          spw_result_row_judge(); INFINITY: nothing is known of that */
    bool surely_fits;  /* all of that lies within the budget */
    const char *
        unlisted; /* of a scheme that lists whole steps: why this one is summed by components; NULL otherwise. Static. */
    spw_outside_fit outside_fit; /* what of the job the coefficients were not fitted on */
    spw_result_traffic traffic;
    spw_result_drops drops;
    spw_expected_routing expected; /* of generated routing: rows, copies and drops without a draw */
    bool timed;                    /* the time model speaks of this scheme */
    const char *no_time;           /* why it does not: static text; NULL where it does */
    spw_timeline time;             /* mean over the steps */
    double tokens_per_s_low, tokens_per_s_high; /* of a GPU, at the ends of the interval of the step */
    spw_step_span balanced;                     /* the same job with every expert chosen alike */
    uint64_t balanced_bytes;                    /* its peak */
    double balanced_drops;                      /* the share of the assignments that it drops */
    double ratio_width;      /* how far time over balanced may be off, as a logarithm (sim/time/timeline.h) */
    spw_step_span aligned;   /* the same if every expert-parallel group began with a node */
    spw_step_span worst;     /* the longest of the steps */
    int64_t worst_time_step; /* its id */
    size_t groups, straddling; /* expert-parallel groups, and those on more nodes than they need */
    spw_result_overload overload;
    spw_page_run pages; /* of the scheme's page pool, where it has one */
    spw_match match;
    spw_assumptions assumptions;
} spw_result_row;

/* The smallest factor that drops at most `most` of the assignments. */
typedef struct spw_factor_answer {
    char scheme[SPW_SCHEME_TEXT]; /* as asked */
    char without
        [SPW_SCHEME_TEXT]; /* the same with the factor 1: schemes that differ in it alone have one answer */
    size_t sequences;
    const char *option; /* capacity_factor or buffer_factor */
    double most;        /* a share */
    double factor;      /* 0: none does */
    double fraction;    /* dropped with it */
} spw_factor_answer;

/* The smallest factor with which at most the share `rate` of the steps overflows: sim/replay/safe_factor.h. */
typedef struct spw_safe_factor {
    char scheme[SPW_SCHEME_TEXT]; /* with the factor, as chosen */
    size_t sequences, steps;
    const char *option;
    double rate;
    double factor;    /* 0: none does; the fields below are 0 then */
    size_t overflows; /* steps of the trace that overflow with it */
    double upper;     /* the upper 95 % confidence limit of their share */
    double dropped;   /* of the assignments of the steps that overflow */
    double worst;     /* of those of the step that drops most */
    double assured;   /* the smallest factor whose upper limit is at most `rate`; 0: the trace shows none */
    size_t steps_needed;    /* of a trace that could, at least; 0: none can (rate 0) */
    uint64_t peak_bytes;    /* of a GPU, with `factor` */
    double step_s, again_s; /* the mean step, and if the steps that overflow run a second time; 0: no time */
    double worst_factor;    /* no routing overflows */
    uint64_t worst_bytes;   /* with it */
} spw_safe_factor;

/* One row without a balancer or with it. */
typedef struct spw_balance_side {
    double average, max; /* rows of the fullest rank over the mean: over layers and steps; the largest */
    uint64_t rows_max;
    double dispatch_bytes, dropped; /* of one dispatch, a GPU; a share */
    uint64_t state_bytes, peak_bytes;
    double step_s, low_s, high_s; /* 0: no time */
} spw_balance_side;

typedef struct spw_balance_row {
    char scheme[SPW_SCHEME_TEXT];
    size_t sequences;
    spw_balance_side without, with;
} spw_balance_row;

/* What a balancer did: sim/replay/balance.h. */
typedef struct spw_result_balance {
    spw_balancer_spec spec;
    size_t slots, ranks; /* of a group */
    spw_balancer_moves moves;
    double copies; /* of a layer, on ranks that lack the expert otherwise, in the mean of steps and layers */
    double expert_bytes; /* weights of one expert */
    double step_bytes;   /* that a GPU sends for copies in a step */
    double placement_bytes,
        placement_most_bytes; /* that a GPU receives in one placement: in the mean, at most */
    spw_balance_row *row;     /* [rows] */
    size_t rows;              /* 0: no balancer */
} spw_result_balance;

/* The largest number of sequences per GPU that fits in the share `at` of the steps. */
typedef struct spw_batch_answer {
    char scheme[SPW_SCHEME_TEXT];
    double at;
    size_t largest; /* 0: not even one */
    bool at_least;  /* the search ended there, more may fit */
    size_t steps;
    bool routed; /* memory follows the routing: the probability is of the replayed steps */
    bool live;   /* by what must be live alone, a lower bound */
    spw_probability oom;
} spw_batch_answer;

/* A point that cannot be, where others can. */
typedef struct spw_refusal {
    char scheme[SPW_SCHEME_TEXT];
    size_t sequences, expert;
    char reason[SPW_REFUSAL_TEXT];
} spw_refusal;

/* Which rows answer a question, by their positions (sim/replay/result_answers.h). */
#define SPW_NO_ROW SIZE_MAX
typedef struct spw_result_answers {
    bool there;
    double drop_most;  /* share of the assignments that `fastest` may drop */
    size_t *order;     /* [fits] the rows that fit, the best first, whatever they drop */
    size_t fits, lead; /* lead: place of `fastest` in the order; SPW_NO_ROW: nowhere */
    bool *front;       /* [rows] no other beats it */
    size_t fastest, fastest_sure, fastest_dropless, fastest_dropless_sure, fastest_whatever_drops;
    size_t
        next; /* the fastest but one, of the rows that could be `fastest`; none is faster by the prediction */
    double
        next_chance; /* that `fastest` is the faster of the two (spw_timeline_faster()); NAN without `next` */
    size_t least_memory; /* of the rows that fit; of all rows where none does */
} spw_result_answers;
/* The row at a place of the order, but `fastest` stands before all, also where faster ones drop too much. */
size_t spw_result_answers_row(const spw_result_answers *answers, size_t place);

typedef struct spw_result {
    spw_result_row *row;
    size_t rows, capacity;
    spw_result_answers answers; /* only where they were asked for */
    spw_factor_answer *factor;  /* [factors]; only where asked for */
    spw_batch_answer *batch;    /* [batches]; only where asked for */
    spw_result_balance balance; /* only where asked for */
    spw_safe_factor *safe;      /* [safes]; only where asked for */
    spw_refusal *refusal;       /* [refusals] in the order of the rows that they would be */
    size_t factors, batches, safes, refusals;
} spw_result;

/* Everything needed to run a result again, and what is said about its trace. Borrowed. */
typedef struct spw_run_settings {
    const char *command, *job_path, *trace_path;
    const spw_job *job;
    const spw_job_override *override; /* what the command line said of the job's keys */
    size_t overrides;
    const spw_trace_info *trace; /* NULL without a trace */
    size_t step_begin, step_end, layer_begin, layer_end;
    uint64_t seed;
    double tokens;                  /* of the training; 0: none were named */
    bool tokens_unsaid;             /* a price asks for them, and nobody said how many */
    const char *balancer;           /* as written; NULL = none */
    const char *stack;              /* name; NULL = none */
    const char *newest;             /* where none was named, the stack that a plan takes; NULL, "": none */
    const char *stack_distance;     /* spw_software.distance; NULL as "" */
    const spw_stack *memory_fit;    /* as read; NULL = none */
    const spw_time_stack *time_fit; /* as read; NULL = none */
    const spw_megatron_coefficients *megatron_fit; /* the same */
} spw_run_settings;
/* Of this job and trace: an end that is 0 becomes the trace's. */
void spw_run_settings_bind(spw_run_settings *settings, const spw_job *job, const spw_trace_info *trace);

/* "layers (GiB) of each stage: 3 (45.21), 4 (40.10)"; "" where layers are shared out evenly. Returns `out`. */
enum { SPW_STAGES_TEXT = 640 };
const char *spw_result_stages_text(const spw_result_row *row, char out[SPW_STAGES_TEXT]);

/* Of the replayed allocator where there is one, else of the largest peak. */
spw_verdict spw_result_verdict(const spw_result_row *row);

spw_balanced_figures spw_result_balanced(const spw_result_row *row);
/* The step over the step with balanced routing, and how far that ratio may be off: what slows both alike is not in it
 * (spw_timeline_ratio_width()). NAN without a time. */
typedef struct spw_ratio {
    double value, low, high;
} spw_ratio;
spw_ratio spw_result_row_ratio(const spw_result_row *row);

/* Room for so many rows in all: what is appended until then needs no more. */
SPW_MUST_CHECK spw_status spw_result_reserve(spw_result *result, size_t rows);
/* Appends a zeroed row. The pointer is valid until the next append. */
SPW_MUST_CHECK spw_status spw_result_append(spw_result *result, spw_result_row **row);
SPW_MUST_CHECK spw_status spw_result_append_factor(spw_result *result, spw_factor_answer **answer);
SPW_MUST_CHECK spw_status spw_result_append_batch(spw_result *result, spw_batch_answer **answer);
SPW_MUST_CHECK spw_status spw_result_append_safe(spw_result *result, spw_safe_factor **answer);
SPW_MUST_CHECK spw_status spw_result_append_refusal(spw_result *result, spw_refusal **refusal);
void spw_result_clear(spw_result *result);

enum { SPW_STEPS_TEXT = 64, SPW_PLACE_TEXT = 64, SPW_DEATH_TEXT = 192 };
/* The steps of a row, "3" or "3-7". Returns `out`. */
const char *spw_result_steps_text(const spw_result_row *row, char out[SPW_STEPS_TEXT]);
/* "rank 3", and its stage where there are several. */
const char *spw_result_place_text(const spw_result_row *row, size_t rank, size_t stage,
                                  char out[SPW_PLACE_TEXT]);
/* Where a process ran out of memory first: step, rank, stage, micro-batch and layer; "" where none did. */
const char *spw_result_death_text(const spw_result_row *row, char out[SPW_DEATH_TEXT]);

#endif
