/* What waits on a pipeline stage while it works, pass by pass and layer by layer, where every layer gives back what it kept as soon as
 * its backward pass has ended: PyTorch's autograd. A program of MaxText is another matter: its scan stacks what layers keep, and the
 * stack lives until the last of them has run backward (docs/schemes.md, section 7.9).
 *
 * A layer keeps its input and its residuals from its forward to its backward pass, where the residuals are counted among what is at
 * work. In the backward pass of layer l of a pass (a micro-batch through a chunk) there are
 *   everything of the other passes in flight, residuals of the layers before l, inputs up to l, what the layers behind l left, and
 *   gradients that FSDP2 made so far: each by the first backward pass of its layer in the step, until the step's end. */
#ifndef SPW_SIM_MEMORY_KEPT_STAGE_WALK_H
#define SPW_SIM_MEMORY_KEPT_STAGE_WALK_H

#include "base/status.h"
#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_pipeline spw_pipeline; /* sim/weights/pipeline.h */

/* When the peak is: in the backward pass of a MoE layer or of a dense one, at the loss (on a stage without it: after a forward pass), or
 * in the backward pass of attention that is a moment of its own (sim/memory/kept/repeated_modules.h). */
typedef enum spw_moment {
    SPW_MOMENT_MOE_LAYER,
    SPW_MOMENT_DENSE_LAYER,
    SPW_MOMENT_LOSS,
    SPW_MOMENT_ATTENTION,
    SPW_MOMENT_STEP, /* behind the last backward pass: all gradients, and the state; where they are made layer by layer */
    SPW_MOMENT_COUNT
} spw_moment;

/* Bytes of one layer in one micro-batch, beside the rows of its experts. */
typedef struct spw_waiting_layer {
    double input;  /* of the layer */
    double policy; /* what a named policy keeps; there at work, as the input */
    double saved;  /* residuals, which are counted among what is at work then */
    double left;   /* from its backward pass to the end of the micro-batch's, or */
    bool stays;    /* to its next forward pass, in the next step if there is none in this */
    double
        gradient; /* made by the layer's first backward pass of a step, as FSDP2 does; there until the step ends */
    double
        end; /* the same of what lies before the first layer ([0]: the embedding), or behind the last ([1]: the head) */
    bool whole; /* they are not cut yet, and go with the last backward pass; else when the next step begins */
} spw_waiting_layer;

/* Rows of one MoE layer's experts in one micro-batch: at work, and while it waits. */
typedef struct spw_layer_use {
    uint64_t backward_bytes, saved_bytes;
} spw_layer_use;

/* use [layers][kinds]: MoE layer l of the model has those of layer l mod layers, micro-batch m those of m mod kinds. */
typedef struct spw_layer_uses {
    const spw_layer_use *use;
    size_t layers, kinds;
    spw_layer_use predicted; /* of layers of multi-token prediction */
} spw_layer_uses;

/* A kind of moment where most is there beside what is fixed: which layers, counted [without experts, with them]. */
typedef struct spw_stage_moment {
    bool there;
    uint64_t bytes;     /* kept, left and of the rows at work */
    size_t waiting[2];  /* layers that keep all that they keep */
    size_t at_work[2];  /* one of them is 1, but at the loss */
    size_t left[2];     /* layers behind it, and those that still hold what they left before */
    size_t made[2];     /* layers whose gradients are there */
    size_t ends[2];     /* are those of the embedding, and of the head? */
    uint64_t rows;      /* of `bytes`: rows of the layers that wait */
    uint64_t work;      /* and those at work */
    size_t layer;       /* at work: its position among the model's MoE layers (SIZE_MAX: it is none) */
    size_t place;       /* and among the stage's, forward, chunk by chunk */
    size_t micro_batch; /* of the pass */
} spw_stage_moment;

typedef struct spw_stage_peaks {
    spw_stage_moment at[SPW_MOMENT_COUNT];
} spw_stage_peaks;

typedef struct spw_stage_walk spw_stage_walk;

/* What a walk is of: one stage, whose micro-batches are of so many kinds at most. */
typedef struct spw_stage_walked {
    const spw_pipeline *pipeline;
    const spw_model *model;
    size_t stage, kinds;
    bool unsaved; /* no layer has rows while it waits: every saved_bytes is 0 */
} spw_stage_walked;

/* keeps: [without experts, with them]. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_stage_walk_create(const spw_stage_walked *of, const spw_waiting_layer *keeps,
                                                spw_stage_walk **out);
void spw_stage_walk_destroy(spw_stage_walk *walk); /* NULL is fine */

/* All passes of a step; uses->kinds are at most those of the walk. Bytes stay at the end of 63 bits. What it returns is the walk's, until
 * it runs again. */
const spw_stage_peaks *spw_stage_walk_run(spw_stage_walk *walk, const spw_layer_uses *uses);

/* Parts of `bytes` that do not follow the routing. */
uint64_t spw_stage_moment_inputs(const spw_waiting_layer *keeps, const spw_stage_moment *moment);
uint64_t spw_stage_moment_policy(const spw_waiting_layer *keeps, const spw_stage_moment *moment);
uint64_t spw_stage_moment_saved(const spw_waiting_layer *keeps, const spw_stage_moment *moment);
uint64_t spw_stage_moment_left(const spw_waiting_layer *keeps, const spw_stage_moment *moment);
uint64_t spw_stage_moment_made(const spw_waiting_layer *keeps, const spw_stage_moment *moment);

#endif
