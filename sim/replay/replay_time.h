/* The step time of one row of a replay: the load of every layer, then a timeline a step, then their mean. Programs that XLA
 * compiles whole by their stack (sim/time/compiled/compiled_time.h), Megatron-Core by its own (sim/time/megatron/megatron_job_time.h), transformers by its list (sim/time/transformers_time.h). */
#ifndef SPW_SIM_REPLAY_REPLAY_TIME_H
#define SPW_SIM_REPLAY_REPLAY_TIME_H

#include "base/status.h"
#include "sim/schemes/point.h"
#include "sim/time/compiled/compiled_time.h"
#include "sim/time/megatron/megatron_job_time.h"
#include "sim/time/routing_load.h"
#include "sim/time/step_span.h"
#include "sim/time/timeline.h"

#include <stdbool.h>

typedef struct spw_counts spw_counts;

typedef struct spw_replay_time_request {
    const spw_time_stack *stack;               /* NULL: compiled programs have no times */
    const spw_megatron_coefficients *megatron; /* NULL: Megatron-Core has none */
    bool listed; /* steps that are listed tensor by tensor have times (sim/time/transformers_time.h) */
    spw_point point;
    size_t layers, groups, micro_batches; /* of the replay; groups: of one stage */
    size_t kinds; /* of micro-batches: those behind the first `kinds` are as these in turn; 0: all differ */
    double
        imbalance; /* >= 1: the loads are those of a stated imbalance in every layer and micro-batch; 0: of the flows */
} spw_replay_time_request;

typedef struct spw_replay_time {
    spw_replay_time_request q;
    size_t steps;
    bool listed; /* every step is `same`, whatever the routing */
    spw_timeline same;
    spw_routing_layer *load; /* compiled: [micro_batches][layers] of the step under way */
    spw_routing_layer stated, balanced,
        aligned;                       /* compiled: aligned is balanced, in a group that begins with a node */
    spw_megatron_coefficients *scaled; /* Megatron-Core: to the job's cluster, else NULL */
    spw_megatron_load *rank_load;      /* [kinds][groups][layers][job->expert] of the step under way */
    size_t positions;                  /* spw_stated_positions */
    double *scratch;                   /* [experts] */
    spw_megatron_load *even, *busy; /* [positions][job->expert]; busy: of the stated imbalance, else NULL */
    spw_timeline sum;               /* over the steps done */
    double last_s;                  /* the one that ended last */
    spw_step_span longest;          /* of them, and its position */
    size_t worst;
} spw_replay_time;

/* Is there a time model of it? */
bool spw_replay_time_covers(const spw_replay_time_request *request);

/* What the request points to is borrowed. */
SPW_MUST_CHECK spw_status spw_replay_time_create(const spw_replay_time_request *request,
                                                 spw_replay_time *out);
void spw_replay_time_destroy(spw_replay_time *time); /* a zeroed one is fine */

void spw_replay_time_begin(spw_replay_time *time); /* a step */
/* note [spw_replay_time_note_bytes()], zeroed before the first group: the load of one layer and micro-batch in all groups. */
size_t spw_replay_time_note_bytes(const spw_replay_time *time);
void spw_replay_time_note(const spw_replay_time *time, const spw_routed_group *routed, const spw_flow *flow,
                          const spw_group_rows *rows, const spw_traffic *traffic, void *note);
/* The network's ports, when all groups of the layer are in: an exchange takes what the busiest of them takes. */
void spw_replay_time_note_slow(const spw_replay_time *time, const spw_network *network, void *note);
/* What was noted is of the step under way. */
void spw_replay_time_layer(spw_replay_time *time, size_t layer, size_t micro_batch, const void *note);
SPW_MUST_CHECK spw_status spw_replay_time_end(spw_replay_time *time);
/* Tokens/s of a GPU over the steps that ended and the one under way, as the last of them, at most; INFINITY where that is not known
 * sooner than by spw_replay_time_end(). */
SPW_MUST_CHECK spw_status spw_replay_time_most(const spw_replay_time *time, double *out);

/* Tokens/s of a GPU over the steps that ended; INFINITY where only spw_replay_time_finish() knows it. */
double spw_replay_time_speed(const spw_replay_time *time);

typedef struct spw_replay_times {
    spw_timeline mean; /* over the steps */
    spw_step_span worst_span;
    size_t worst;           /* position of the longest step */
    spw_step_span balanced; /* with every expert chosen alike, in groups where they lie */
    spw_step_span aligned;  /* the same if every group began with a node */
    double ratio_width;     /* of mean over balanced: spw_timeline_ratio_width() */
} spw_replay_times;
SPW_MUST_CHECK spw_status spw_replay_time_finish(spw_replay_time *time, spw_replay_times *out);

/* The step with every expert chosen alike, where groups lie, with its components. Needs no step that ended. */
SPW_MUST_CHECK spw_status spw_replay_time_balanced(const spw_replay_time *time, spw_timeline *out);

/* A step in which one rank of every group holds `imbalance` times the mean in every layer (sim/time/routing_load.h), where
 * groups lie; what is outside [1, the expert-parallel size] counts as the nearer end. */
SPW_MUST_CHECK spw_status spw_replay_time_stated(const spw_replay_time *time, double imbalance,
                                                 spw_step_span *out);

/* Software whose coefficients were given; NULL = none. */
typedef struct spw_fits {
    const spw_stack *stack;
    const spw_time_stack *time_stack;
    const spw_megatron_coefficients *megatron;
} spw_fits;

/* Why a scheme of this job has no time, as a person reads it. Only for one that has none. */
const char *spw_why_no_time(const spw_job *job, const spw_scheme *scheme, const spw_fits *fits);

#endif
