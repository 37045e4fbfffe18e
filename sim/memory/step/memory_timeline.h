/* The memory of one GPU within a training step, from the births and deaths that the peak is counted from: what rises and falls is
 * the scheme's list of events in every MoE layer, above what the footprint (or the compiled program's list) says is there. Its
 * largest value is the predicted peak, exactly.
 *
 * One pass of one layer is 1 wide, and so are the loss and the optimizer: the axis is the order of execution, not time.
 *   forward    of the layers in order: what stays from step to step, what the layers before keep for the backward pass, and the
 *              experts' tensors of the layer at work. Gathered weights and attention are not in it: the backward pass has more.
 *   loss       logits, and what the loss makes of them (sim/memory/kept/cross_entropy.h)
 *   backward   last layer first, each with all that the footprint counts beside the experts' tensors. What layers keep goes
 *              with them; of programs of MaxText it stays to the end, in a stack, and the fullest layer may be any.
 *   optimizer  what stays from step to step, and gradients
 * With a pipeline it is one micro-batch through the stage that needs most, while most are in flight. */
#ifndef SPW_SIM_MEMORY_STEP_MEMORY_TIMELINE_H
#define SPW_SIM_MEMORY_STEP_MEMORY_TIMELINE_H

#include "base/status.h"
#include "sim/schemes/scheme.h"

#include <stddef.h>
#include <stdint.h>

typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */
typedef struct spw_point spw_point;         /* sim/schemes/point.h */
typedef struct spw_stack spw_stack;
typedef struct spw_stage spw_stage; /* sim/weights/stage.h */

enum { SPW_MEMORY_TIMELINE_POINTS = 600 };

typedef struct spw_memory_timeline {
    double at[SPW_MEMORY_TIMELINE_POINTS]; /* rises or stays */
    uint64_t bytes[SPW_MEMORY_TIMELINE_POINTS];
    size_t points;
    size_t moments; /* before they were thinned out */
    size_t layers;  /* passes forward, and as many backward */
    double forward_end, loss_end, backward_end, end;
} spw_memory_timeline;

/* The layers of a stage in the order of its forward pass: layer[stage layers and predictions], positions in the model; those of
 * multi-token prediction come behind the model's own. Returns how many, at most `most`. */
size_t spw_memory_timeline_layers(const spw_job *job, const spw_stage *stage, size_t most, size_t *layer);

/* Of what must be live. rows [layers]: of the rank with that footprint, in the replayed layers, which stand for the job's in turn;
 * NULL: all as in the footprint. Where none of them is as full as the footprint's fullest, the last MoE layer is. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_memory_timeline_live(const spw_point *point, const spw_footprint *footprint,
                                                   const spw_rank_rows *rows, size_t layers,
                                                   spw_memory_timeline *out);
/* Of a compiled program's arena. Moments above what is left of them past the limit are drawn at that. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_memory_timeline_arena(const spw_stack *stack, const spw_point *point,
                                                    const spw_footprint *footprint, spw_memory_timeline *out);

/* At most SPW_MEMORY_TIMELINE_POINTS of `count` points: points between two of which the line goes on rising or falling are left
 * out first, then of every stretch all but its highest and its lowest. The first and the last stay. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_memory_timeline_thin(const double *at, const uint64_t *bytes, size_t count,
                                                   spw_memory_timeline *out);

#endif
