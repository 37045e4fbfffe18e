/* The components of a footprint that layers keep from their forward to their backward pass, under both laws: a stack that lives until
 * its last layer has run backward (programs of MaxText), and layers that are freed one by one (sim/memory/kept/stage_walk.h). */
#ifndef SPW_SIM_MEMORY_LIVE_FOOTPRINT_WAITING_H
#define SPW_SIM_MEMORY_LIVE_FOOTPRINT_WAITING_H

#include "sim/memory/kept/component.h"
#include "sim/memory/live/footprint.h"

/* Of w0, w1 and act of an FFN, how many wait. */
double spw_footprint_ffn_kept(const spw_job *job);

/* What one layer keeps beside its experts' rows [without experts, with them]. attention: of one block (7.4). */
void spw_footprint_layer_keeps(const spw_job *job, const spw_scheme *scheme, const spw_stage *stage,
                               const spw_layer_shape *shape, double attention, spw_waiting_layer out[2]);

/* Of a stack: all layers at every moment. The footprint has its live_set. */
void spw_footprint_add_stacked(spw_footprint *footprint, const spw_job *job, const spw_saved_rows *saved);
/* Freed one by one: as many as wait at each moment of footprint->waiting. carries: the component of the layers' inputs;
 * SIZE_MAX: none. */
void spw_footprint_add_waiting(spw_footprint *footprint, const spw_job *job, size_t carries);
/* With a stack: what a policy keeps. */
void spw_footprint_add_policy(spw_footprint *footprint, const spw_job *job, const spw_layer_shape *shape);

/* What attention of a layer keeps. */
double spw_footprint_add_activations(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                                     const spw_stage *stage, const spw_layer_shape *s);

#endif
