/* What attention of a layer keeps. */
#ifndef SPW_SIM_MEMORY_LIVE_FOOTPRINT_ATTENTION_H
#define SPW_SIM_MEMORY_LIVE_FOOTPRINT_ATTENTION_H

#include "sim/memory/live/footprint.h"

double spw_footprint_add_activations(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                                     const spw_stage *stage, const spw_layer_shape *s);

#endif
