/* The main job at work: places, counts of either kind, rows. */
#ifndef SPW_SIM_REPLAY_REPLAY_LIFE_H
#define SPW_SIM_REPLAY_REPLAY_LIFE_H

#include "sim/replay/replay.h"
#include "sim/replay/replay_row.h"
#include "sim/routing/choice_tally.h"

/* Counts of generated routing are drawn by their law, or are those of drawn tokens where a scheme looks at choices one by one. A row's
 * are of its scheme's kind, whatever schemes stand beside it. Of a trace that is read all are tokens'. */
typedef enum spw_replay_counts {
    SPW_REPLAY_BY_LAW,
    SPW_REPLAY_OF_TOKENS,
    SPW_REPLAY_COUNTS_KINDS
} spw_replay_counts;

/* A place is a parallel split and a batch: split x batches + batch. Every split has the same tokens and choices. */
typedef struct spw_replay_work {
    const spw_replay_request *request;
    spw_replay_frame frame;
    spw_job *data; /* the job of one stage: its ranks hold the tokens */
    size_t splits, batches, places, row_count;
    spw_composer *composer; /* reads the steps that this process computes, and knows what all rest on */
    bool plain;             /* steps are computed in their turn, by this process */
    bool all_tokens;        /* whatever the scheme */
    bool wants[SPW_REPLAY_COUNTS_KINDS]; /* of a row that is not left out */
    bool reads;             /* every record is read, as more than counts of its pieces is asked for */
    size_t begun;           /* step of the composer; SIZE_MAX: none */
    spw_balancer *balancer; /* NULL: none */
    size_t *leader;         /* [places] the first place of the batch whose counts are these */
    spw_counts **counts[SPW_REPLAY_COUNTS_KINDS];        /* [places] of those that lead */
    spw_selection **selection;                           /* [places] the same */
    spw_segment_counts **cache[SPW_REPLAY_COUNTS_KINDS]; /* [splits] of the first whose groups are these */
    spw_layout *part[SPW_JOB_MAX_BATCHES];               /* of a micro-batch, where there are several */
    spw_choice_tally choices[SPW_JOB_MAX_BATCHES];
    spw_replay_row *row; /* [places][schemes] */
    uint64_t *chosen; /* [layers][experts] of the step under way, of the first place; NULL: nobody listens */
} spw_replay_work;

/* `request` is filled; on failure the work must be destroyed all the same. */
SPW_MUST_CHECK spw_status spw_replay_work_create(spw_replay_work *work);
void spw_replay_work_destroy(spw_replay_work *r);

/* The tokens of a stage, batch by batch; counts: by their law where there is one. `data` becomes the job of one stage, which the composer
 * borrows. */
SPW_MUST_CHECK spw_status spw_replay_compose(const spw_replay_request *request, bool counts, spw_job *data,
                                             spw_composer **out);
/* Are counts of generated routing drawn by their law, but for such schemes? */
bool spw_replay_draws_counts(const spw_replay_request *request);

/* Does the request leave out a row, or all rows of a place? */
bool spw_replay_skips(const spw_replay_work *work, size_t row);
bool spw_replay_skips_place(const spw_replay_work *work, size_t place);
/* Have two splits the same groups of ranks, and so the same counts? */
bool spw_replay_same_groups(const spw_replay_work *work, size_t split, size_t other);
/* Whose counts a scheme's rows need at a place. */
spw_replay_counts spw_replay_kind_of(const spw_replay_work *r, size_t place, size_t scheme);
/* Is any row not refused? Where every row is, nothing is counted. */
bool spw_replay_any_can_be(const spw_replay_work *work);

#endif
