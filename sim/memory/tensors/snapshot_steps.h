/* A recorded job under other routing. A snapshot of a balanced rank says what the whole job allocates, attention and optimizer
 * included; the list of the expert layers (sim/memory/tensors/bare_layers.h) says which of these tensors follow the routing and how.
 *   the step      the last part of the recording that repeats what is before it, allocation by allocation
 *   aligned       the longest common subsequence of the step's births and of the list's births for balanced rows,
 *                 by requested bytes
 *   a step of a trace   the recorded step, in which an aligned tensor has the bytes of the list for the trace's rows
 * What is not aligned keeps its bytes; lifetimes and order are the recorded ones. */
#ifndef SPW_SIM_MEMORY_TENSORS_SNAPSHOT_STEPS_H
#define SPW_SIM_MEMORY_TENSORS_SNAPSHOT_STEPS_H

#include "base/status.h"
#include "sim/memory/allocator/event_list.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/memory/tensors/recorded_layers.h"
#include "sim/memory/tensors/snapshot_match.h"
#include "sim/read/memory_snapshot.h"

#include <stddef.h>
#include <stdint.h>

typedef struct spw_snapshot_steps spw_snapshot_steps;

/* layers: of the stage that was recorded; rows: of a rank in balanced routing, in one layer and micro-batch.
 * SPW_ECONFIG: the recording does not end with two equal steps, or less than nine tenths of the bytes that follow the routing
 * are found in its step; the message says what would be right. Needs the snapshot no longer. */
SPW_MUST_CHECK spw_status spw_snapshot_steps_create(const spw_memory_snapshot *snapshot,
                                                    spw_recorded_layers *layers, uint64_t rows,
                                                    spw_snapshot_steps **out);
void spw_snapshot_steps_destroy(spw_snapshot_steps *steps); /* NULL is fine */

spw_snapshot_match spw_snapshot_steps_match(const spw_snapshot_steps *steps);
size_t spw_snapshot_steps_slots(const spw_snapshot_steps *steps);

/* Overwrites `list` with what the recording has before its last step. */
SPW_MUST_CHECK spw_status spw_snapshot_steps_begin(const spw_snapshot_steps *steps, spw_event_list *list);
/* Overwrites `list` with step number `step` of a process, from 0. layers: the step of the expert layers alone. */
SPW_MUST_CHECK spw_status spw_snapshot_steps_step(const spw_snapshot_steps *steps, size_t step,
                                                  const spw_event_list *layers, spw_event_list *list);

#endif
