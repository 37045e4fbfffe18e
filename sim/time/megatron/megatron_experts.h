/* What the rows of a rank's experts, source by source, mean for its time (sim/time/megatron/megatron_time.h). */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_EXPERTS_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_EXPERTS_H

#include "sim/time/megatron/megatron_time.h"

/* Blocks that one torch.cat starts for each of its chunks when the longest has so many rows; 2 bytes an element. Source: PyTorch, aten/src/ATen/native/cuda/Shape.cu, getCatGridContig. */
double spw_megatron_cat_blocks(const spw_megatron_coefficients *c, size_t hidden, double longest_rows);

/* Sets tiled, empty_experts, idle_rows, spilled and, where the stack counts it, unlike of `load`; the caller sets received.
 *   chunk [sources][experts]   rows of a source that an expert of this rank computes; whole numbers, or means */
void spw_megatron_experts_load(const spw_megatron_coefficients *c, size_t hidden, size_t ffn,
                               const double *chunk, size_t sources, size_t experts, spw_megatron_load *load);

#endif
