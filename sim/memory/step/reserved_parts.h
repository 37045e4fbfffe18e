/* What the replay of a step's allocations is made of. */
#ifndef SPW_SIM_MEMORY_STEP_RESERVED_PARTS_H
#define SPW_SIM_MEMORY_STEP_RESERVED_PARTS_H

#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/step_memory.h"

enum { AS_SET, EXPANDABLE, VARIANTS };

enum { STEADY = 3 }; /* steps after which nothing new is to be expected of equal ones */

/* One rank under one setting. */
typedef struct spw_reserved_process {
    spw_allocator *allocator;
    spw_allocation *live;
    spw_list_replay last; /* of the last step */
    uint64_t
        began; /* its state before that; 0: nobody asks, or of garbage that is collected nothing is known */
    uint64_t glance;   /* and at a glance */
    uint64_t state;    /* and now, */
    bool known;        /* where somebody has asked for it */
    uint64_t stranded; /* when it ended */
    uint64_t retries;  /* in it */
    bool failed;
    bool unsure; /* its peak: spw_list_replay */
} spw_reserved_process;

/* What a rank did in a run of a step. */
typedef struct spw_reserved_turn {
    bool first;          /* the job's first step: the moments came at its end */
    spw_memory_event at; /* where its list peaks, and how far above its beginning */
    uint64_t peak_bytes;
    spw_memory_event refused[VARIANTS]; /* where it ran out */
    spw_reserved_process process[VARIANTS];
} spw_reserved_turn;

/* A rank of a stage. */
typedef struct spw_reserved_rank {
    spw_step_memory *memory; /* NULL: it is not followed; its own, or that of its stage */
    spw_reserved_turn *turn; /* [STEADY] those that stand for a step */
    size_t twin;             /* the place of a rank before it that does the same; its own: none does */
    uint64_t rows;           /* a number of the rows of its last step */
    bool unvisited;          /* its lists are not looked through for visits any more */
    bool ran;                /* there is a last step */
    spw_reserved_turn *now;  /* of the last step; NULL: it was never followed */
} spw_reserved_rank;

/* Of one step: the largest of all ranks. */
typedef struct spw_reserved_record {
    uint64_t requested, allocated, reserved, retries;
    size_t place;      /* where `reserved` is */
    size_t live_place; /* where `requested` is */
    size_t live_layer, live_micro_batch;
    bool failed;
} spw_reserved_record;

/* What every process of a stage allocates first, and at the end of its first step. */
typedef struct spw_reserved_stage {
    spw_event_list begin, moments;
    uint64_t begin_bytes, moment_bytes; /* live when it ends, whether it fits or not */
    size_t slots;
    spw_reserved_process begun[VARIANTS]; /* with `begin` alone, of which every rank's is a copy; or none */
    /* Where all ranks are alike but for bytes, and every run of the step has the same rows: */
    spw_step_memory *memory; /* theirs; NULL: each has its own */
    spw_event_list list;     /* of every run */
} spw_reserved_stage;

/* Steps that are run later (reserved_later.c). */
typedef struct spw_reserved_later spw_reserved_later;

struct spw_reserved_memory {
    spw_reserved_request request;
    spw_allocator_settings settings[VARIANTS];
    size_t first_stage, stages; /* those that are replayed */
    size_t micro_batches, followed;
    bool starts;               /* the job's first step is under way */
    int first, variants;       /* replayed: [first, variants); one where the setting is expandable already */
    bool alone;                /* the other is replayed where this one fails */
    spw_reserved_stage *stage; /* [stages] */
    spw_reserved_rank *place;  /* [stages][ranks] */
    spw_rank_rows *rows;       /* [ranks][layers][micro_batches] */
    bool *spread;              /* [ranks] spw_reserved_rows_spread() was asked for, in the step under way */
    spw_rank_rows *first_rows; /* the same of the first step, where there are several */
    spw_reserved_record *record[VARIANTS]; /* [steps] */
    uint64_t stranded[VARIANTS];
    spw_reserved_death death[VARIANTS];
    spw_snapshot_steps *recorded; /* the job as it was recorded; NULL: none */
    spw_reserved_later *later;    /* NULL: a step is run when it ends */
};

static inline size_t spw_reserved_places(const spw_reserved_memory *m) {
    return m->stages * m->request.ranks;
}
/* Does one step stand for all, in runs of it? */
static inline bool spw_reserved_is_steady(const spw_reserved_memory *m) {
    return m->request.steps == 1 && m->recorded == NULL;
}
static inline size_t spw_reserved_cells(const spw_reserved_memory *m) {
    return m->request.layers * m->micro_batches;
}
static inline size_t spw_reserved_stage_of(const spw_reserved_memory *m, size_t place) {
    return place / m->request.ranks;
}
static inline size_t spw_reserved_rank_of(const spw_reserved_memory *m, size_t place) {
    return place % m->request.ranks;
}

/* reserved_run.c: runs the step under way so many times, and records it. */
SPW_MUST_CHECK spw_status spw_reserved_run(spw_reserved_memory *m, size_t step, int runs);
/* One time more, of a step that is recorded already. */
SPW_MUST_CHECK spw_status spw_reserved_run_again(spw_reserved_memory *m, size_t step);

/* One process alone, in the rows of the step under way. */
SPW_MUST_CHECK spw_status spw_reserved_run_place(spw_reserved_memory *m, size_t place, bool starts);

/* reserved_follow.c: from now on the place is followed; what it allocates is forgotten; and all that is kept of it. */
SPW_MUST_CHECK spw_status spw_reserved_follow(spw_reserved_memory *m, size_t place);
void spw_reserved_forget(spw_reserved_memory *m, size_t place);
void spw_reserved_drop(spw_reserved_memory *m, size_t place);

/* reserved_later.c: remembers the step that ends, and the last one. */
SPW_MUST_CHECK spw_status spw_reserved_later_create(spw_reserved_memory *m);
void spw_reserved_later_destroy(spw_reserved_memory *m);
SPW_MUST_CHECK spw_status spw_reserved_later_end_step(spw_reserved_memory *m, size_t step);

/* reserved_record.c: what a place has done in the step that it has just run: its part of the step's record, of what is stranded, and
 * how it ended, if it did not before. */
void spw_reserved_record_place(spw_reserved_memory *m, int variant, size_t step, size_t place,
                               spw_reserved_record *record);

/* Gives every micro-batch of a rank behind the first request.kinds rows of its own, as far from the mean as those of the kinds are: blocks
 * of equal sizes would fit each other as in no step. Once a step. */
void spw_reserved_rows_spread(spw_reserved_memory *m, size_t rank);

/* A step that is run several times retries as often as the worst of these. */
void spw_reserved_record_run(spw_reserved_memory *m, int variant, size_t step);

#endif
