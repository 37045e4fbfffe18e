/* The memory of one rank over a whole step: every MoE layer with its own rows, from the scheme's list of births and
 * deaths, between what the footprint says is there anyway. One event list for the peak, the bytes saved and the allocator.
 * The passes of a pipeline stage come in the order of its schedule (sim/weights/pipeline.h); one stage and one micro-batch are a
 * forward and a backward pass. Each pass in flight has slots of its own.
 *   forward of layer l     the FORWARD events; without remat what RECOMPUTE leaves is kept, and what is beside the layer at work is
 *                          there; every layer, dense ones too, keeps its input and residuals
 *   loss                   what the footprint has there and not always
 *   backward of layer l    last layer first: RECOMPUTE (with remat) and BACKWARD events, or what a dense layer has; what it kept goes
 *   gradients under FSDP2  born behind the first backward pass of their layer; sharded they go when the next step begins, whole ones
 *                          (pipeline stages) when the last backward pass has ended
 * What does not follow the routing (weights, optimizer, attention, ...) has the same size in every step and is allocated
 * as one tensor a component; the optimizer's state as one tensor or two a parameter (sim/weights/state_tensors.h), moments by the
 * optimizer's first step. Bare Megatron-Core layers have a list of their own,
 * tensor by tensor (sim/memory/tensors/bare_layers.h). */
#ifndef SPW_SIM_MEMORY_STEP_STEP_MEMORY_H
#define SPW_SIM_MEMORY_STEP_STEP_MEMORY_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/memory/allocator/event_list.h"
#include "sim/memory/tensors/snapshot_steps.h"
#include "sim/schemes/point.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */

typedef struct spw_step_memory spw_step_memory;

/* For one rank of the pipeline stage of `footprint`, which is of the same point. recorded: the whole job as it was recorded, which then takes the place of all
 * else; NULL: none. All arguments are borrowed until destruction. */
SPW_MUST_CHECK spw_status spw_step_memory_create(const spw_point *point, const spw_footprint *footprint,
                                                 const spw_snapshot_steps *recorded, spw_step_memory **out);
void spw_step_memory_destroy(spw_step_memory *memory); /* NULL is fine */
size_t spw_step_memory_slots(const spw_step_memory *memory);

/* Overwrites `list` with what a process allocates before its first step. Call it once. */
SPW_MUST_CHECK spw_status spw_step_memory_begin(spw_step_memory *memory, spw_event_list *list);

/* Overwrites `list` with what the first step of the optimizer allocates, behind the last pass; it stays. A process that reads a
 * checkpoint has it from the beginning. Empty where nothing is known of an optimizer: bare layers, and a recorded job. */
SPW_MUST_CHECK spw_status spw_step_memory_optimizer(spw_step_memory *memory, spw_event_list *list);

/* rows [layers][micro_batches]: layer l of the job's MoE layers has those of l mod layers. */
typedef struct spw_step_rows {
    const spw_rank_rows *rows;
    size_t layers, micro_batches;
} spw_step_rows;

/* Overwrites `list` with a step. SPW_EARG: no layers, or other micro-batches than the job has. */
SPW_MUST_CHECK spw_status spw_step_memory_step(spw_step_memory *memory, const spw_step_rows *rows,
                                               spw_event_list *list);

/* Do ranks of this stage have the same events, in which only the bytes of what follows the routing differ? */
bool spw_step_memory_is_alike(const spw_step_memory *memory);
/* Of such a stage, once: the first step, and every later one. What the step before left dies in later ones alone, beside the events of
 * the first, and is marked as `earlier`. */
SPW_MUST_CHECK spw_status spw_step_memory_every_step(spw_step_memory *memory, const spw_step_rows *rows,
                                                     spw_event_list *list);
/* Of such a stage: finds visits of a step's list, which then has bytes of its own events alone. */
SPW_MUST_CHECK spw_status spw_step_memory_find_visits(const spw_step_memory *memory, spw_event_list *list);
/* Of such a list: gives its own events the bytes of other rows; it is outlined behind that. */
void spw_step_memory_refill(const spw_step_memory *memory, const spw_step_rows *rows, spw_event_list *list);
/* Are two of these lists equal? Both have as many micro-batches and layers. */
bool spw_step_memory_same_rows(const spw_step_memory *memory, const spw_step_rows *a, const spw_step_rows *b);

#endif
