/* Blocks of a Megatron-Core job's step while it is predicted (megatron_parts.h): MoE layers with the loads of a micro-batch, and what
 * lies between them. Inside of sim/time. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_BLOCKS_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_BLOCKS_H

#include "sim/time/megatron/megatron_parts.h"

/* How many MoE layers stand before the block. */
size_t spw_blocks_layers_before(const spw_prediction *p, const spw_block *block);

/* The MoE layers of one block more of a group, in p->time. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_blocks_time_layers(spw_prediction *p, size_t group, size_t at,
                                                 const spw_block_load *load);

/* All blocks of a group, anew; *out: what all their passes take. Loads that differ run side by side. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_blocks_time_group(spw_prediction *p, size_t group, double *out);

#endif
