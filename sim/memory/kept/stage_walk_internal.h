/* What stage_walk.c and stage_walk_steady.c share. */
#ifndef SPW_SIM_MEMORY_KEPT_STAGE_WALK_INTERNAL_H
#define SPW_SIM_MEMORY_KEPT_STAGE_WALK_INTERNAL_H

#include "sim/memory/kept/stage_walk.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage_layers.h"

/* Of a backward pass: do its layers hold what their last one left, and is it the chunk's first of the step, which makes gradients? */
enum { HELD = 1, FIRST = 2, VARIANTS = 4 };

/* One micro-batch through one chunk, alone. */
typedef struct pass_kept {
    spw_stage_moment kept; /* after its forward pass */
    spw_stage_moment at[VARIANTS][SPW_MOMENT_COUNT];
    /* What was in flight when its last backward pass was looked at; there: it was. */
    spw_stage_moment beside[VARIANTS];
} pass_kept;

/* A layer of experts at work in a pass that is alone: its row, and its bytes without it. */
typedef struct experts_alone {
    size_t row;   /* SIZE_MAX: what is predicted */
    size_t layer; /* among the stage's */
    uint64_t bytes;
} experts_alone;

/* A backward pass beside what was in flight then, without rows. */
enum { NOTED = 8 };
typedef struct pass_beside {
    spw_pass pass;
    size_t variant, kind;       /* of its micro-batch */
    size_t waiting[2], left[2]; /* in flight */
    uint64_t bytes[NOTED];      /* beside rows, at each of its chunk's first layers */
} pass_beside;

struct spw_stage_walk {
    spw_pipeline pipeline;
    size_t stage;
    spw_waiting_layer keeps[2];
    spw_stage_layers layers;
    bool *holds;     /* [chunks] what its layers left, as its last pass was backward */
    bool *made;      /* [chunks] its gradients are there */
    size_t ends[2];  /* the chunks of embedding and head; SIZE_MAX: the stage has none */
    bool makes;      /* gradients, layer by layer */
    bool steady;     /* what is in flight is the same in every walk, as no layer has rows while it waits */
    pass_kept *part; /* [kinds][chunks]; NULL: it is steady */
    spw_pass
        *pass;    /* [passes] in the order of the schedule; NULL: it is steady, and goes through them once */
    bool begun;   /* they are there: from the first walk on */
    size_t kinds; /* of micro-batches, in the walk under way */
    spw_stage_peaks peaks;
    /* [VARIANTS][layers of the stage] each layer at work in a pass that is alone, whatever its rows: `bytes` are without them */
    spw_stage_moment *alone;
    spw_stage_moment *behind; /* [chunks] after a forward pass, the same */
    /* A kind of moment without rows, the last one that was asked for: in a steady schedule the next is the same. */
    spw_stage_moment known[SPW_MOMENT_COUNT];
    /* Of a steady walk: */
    pass_beside *
        fullest; /* [fullests] backward passes, less those that earlier ones of the same kind have more beside */
    size_t fullests, found_of; /* found_of: kinds of micro-batches, and */
    size_t found_layers;       /* layers of rows; `peaks` has all but those of experts at work then */
    /* [HELD + 1][layers of the stage] of each chunk those where most can be, whatever the rows */
    experts_alone *experts;
    size_t *experts_end; /* [HELD + 1][chunks] behind the last of them */
};

/* Whole periods in the middle of a step that find what the one before found: all but the first two and the last. */
typedef struct passes_between {
    size_t from, passes;
} passes_between;

passes_between spw_walk_known_passes(const spw_stage_walk *walk);

/* Bytes stay at the end of 63 bits. */
static const uint64_t SPW_WALK_MOST = INT64_MAX;
static inline uint64_t spw_walk_plus(uint64_t a, uint64_t b) {
    return a > SPW_WALK_MOST || b > SPW_WALK_MOST - a ? SPW_WALK_MOST : a + b;
}

static inline size_t spw_walk_layers(const spw_stage_walk *walk) {
    return walk->layers.begin[walk->pipeline.chunks];
}

/* Bytes of a moment without rows. */
uint64_t spw_walk_beside_rows(const spw_waiting_layer *keeps, const spw_stage_moment *moment);

/* Have they as much beside rows? `known` may be none yet. */
bool spw_walk_same_layers(const spw_stage_moment *known, const spw_stage_moment *moment);
void spw_walk_raise(spw_stage_moment *most, const spw_stage_moment *moment);

/* Layers of the chunks that hold what they left. */
void spw_walk_count_left(const spw_stage_walk *walk, size_t left[2]);
/* Takes a pass to those in flight, or away. */
void spw_walk_change_flight(spw_stage_moment *flight, const spw_stage_moment *kept, bool backward);
/* Behind a forward pass, where there is a loss, or on a stage without it. */
void spw_walk_after_forward(spw_stage_walk *walk, const spw_pass *pass, const spw_stage_moment *kept,
                            spw_stage_moment *flight, spw_stage_peaks *out);
/* A layer alone, beside what is in flight. */
spw_stage_moment spw_walk_beside(const spw_stage_moment *flight, const spw_stage_moment *alone);
/* Raises *most to `alone` with these rows. */
void spw_walk_raise_alone(spw_stage_moment *most, const spw_stage_moment *alone, uint64_t rows, uint64_t work,
                          size_t micro_batch);
/* Raises a kind of moment to a pass that is alone, beside what is in flight. */
void spw_walk_raise_beside(spw_stage_walk *walk, spw_moment kind, const spw_stage_moment *alone,
                           const spw_pass *pass, const spw_stage_moment *flight, spw_stage_peaks *out);

/* All passes of a steady walk. stays: layers hold what they left. */
void spw_walk_run_steady(spw_stage_walk *walk, const spw_layer_uses *uses, bool stays);

#endif
