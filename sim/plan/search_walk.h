/* A search under way: what its parts share. Of sim/plan alone. */
#ifndef SPW_SIM_PLAN_SEARCH_WALK_H
#define SPW_SIM_PLAN_SEARCH_WALK_H

#include "base/progress.h"
#include "sim/plan/search_bound.h"
#include "sim/plan/search_log.h"
#include "sim/plan/search_run.h"
#include "sim/schemes/point.h"

#include <stdbool.h>
#include <stddef.h>

/* Points that the bounds leave are gathered until there are so many, then the most promising ones come first. */
enum { SPW_SEARCH_ROUND = 1 << 17 };

/* What a candidate's bound rests on: any routing, the mean of its own, or its own as far as a replay went. */
typedef enum spw_search_sight { SPW_SEARCH_ROUGH, SPW_SEARCH_SHARP, SPW_SEARCH_REFINED } spw_search_sight;

/* A point that may be one of the answers: `at` among the points of its job. done: it has a fate. */
typedef struct spw_search_candidate {
    size_t job, at;
    uint64_t budget_bytes, state_bytes;
    spw_search_bound bound;
    spw_search_sight sight;
    bool done, grouped; /* grouped: in the group under way */
} spw_search_candidate;

/* Points of jobs that one replay takes together, as they differ in virtual stages and recomputation alone. */
typedef struct spw_search_group {
    size_t twins, jobs; /* room, and jobs under way */
    size_t bytes;       /* of their counts */
    spw_job *job;       /* [twins] */
    size_t *index;      /* [twins] of the space */
    size_t (*value)[SPW_SEARCH_DIMENSIONS];
    size_t per_job;            /* points of a job */
    bool *skip;                /* [twins][batches][schemes] as the replay has its rows */
    spw_search_candidate **of; /* the same: the candidates; NULL: none */
    unsigned *asked;           /* the same: how often the replay has asked about it */
    double next;               /* what the best of all other candidates promises */
    bool whole;                /* replay them to the end, whatever others promise */
} spw_search_group;

/* How far replayed points stayed behind their bounds, by each value of the space: it decides what is replayed next, and nothing else. */
typedef struct spw_search_lessons {
    struct {
        double speed, memory; /* sums of logarithms: speed over its bound, bytes over theirs */
        double speeds, memories;
    } of[SPW_SEARCH_DIMENSIONS][SPW_SEARCH_VALUES];
    size_t learned;
} spw_search_lessons;

typedef struct spw_search_walk {
    const spw_search_request *q;
    spw_plan_request plan; /* with the trace of the GPUs under way */
    spw_search_facts facts;
    spw_megatron_coefficients *megatron;
    spw_token_store *store; /* of that trace */
    size_t schemes;
    bool timed; /* points with a time are looked at, or those without */
    spw_search_candidate *candidate;
    size_t candidates;
    spw_search_group group;
    spw_search_lessons lessons;
    spw_search_log log;
    spw_search_outcome *out;
    spw_progress *progress; /* of the phase under way, drawn anew at every point that is replayed */
    size_t done;            /* units of it */
} spw_search_walk;

/* --- In search_walk.c --- */

/* GPUs of all replicas. */
size_t spw_search_all_gpus(const spw_search_walk *walk, size_t gpus);
/* The point at this place among those of a job: batch by batch its schemes. */
spw_point spw_search_point_at(const spw_search_walk *walk, const spw_job *job, size_t at);
void spw_search_proceed(spw_search_walk *walk, spw_progress *progress, size_t done);

/* GOOD: by the bound it may be one of the answers. Of what is left out the outcome has its bound. */
spw_search_fate spw_search_judge_speed(spw_search_walk *walk, const spw_search_bound *bound);

/* A scheme's point is left out unreplayed, as by its bound it is no better than one before. */
void spw_search_leave_out(spw_search_walk *walk, size_t scheme, const spw_search_bound *bound);

/* --- In search_look.c --- */

/* Counts what the bounds say of jobs from `first` on: a fate of their points, or a candidate. Ends early where there is no more room for
 * the candidates of another job, or as the user asked; *next is the first job that was not looked at. */
SPW_MUST_CHECK spw_status spw_search_look(spw_search_walk *walk, size_t first, size_t last, size_t *next);
/* --- In search_replay.c --- */

/* Room for a group of this space. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_search_group_create(const spw_search_request *request, spw_search_group *out);
void spw_search_group_destroy(spw_search_group *group);
/* Begins a group, and adds a candidate of it, which can be; false where there is no room for its counts. */
void spw_search_group_clear(spw_search_group *group);
SPW_MUST_CHECK spw_status spw_search_group_add(spw_search_walk *walk, spw_search_candidate *candidate,
                                               bool *taken);
/* Replays the group: every candidate is done then, or refined; unless the user asked to stop. */
SPW_MUST_CHECK spw_status spw_search_replay(spw_search_walk *walk);

/* --- In search_round.c --- */

/* All candidates so far, the most promising first. */
SPW_MUST_CHECK spw_status spw_search_round(spw_search_walk *walk);

/* --- In search_sharpen.c --- */

/* Sharpens the bounds of candidate `at`, and of those from `first` to `last` that share its routing: its scheme and batch. Of these, what
 * is none of the answers then has a fate. */
SPW_MUST_CHECK spw_status spw_search_sharpen(spw_search_walk *walk, size_t at, size_t first, size_t last);
/* Gives a candidate a fate that its bound decides; false: it is to be replayed. */
bool spw_search_settle(spw_search_walk *walk, spw_search_candidate *candidate);

/* --- In search_promise.c --- */

/* Notes what the replay of a point made of its bound. */
void spw_search_learn(spw_search_lessons *lessons, const spw_search_space *space,
                      const spw_search_candidate *candidate, const spw_search_bound *known);
/* What a candidate promises: tokens/s, or without a time sequences at a time. Of one that was not replayed yet as those with the same
 * values kept of their bounds. */
double spw_search_promise(const spw_search_walk *walk, const spw_search_candidate *candidate);

#endif
