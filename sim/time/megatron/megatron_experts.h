/* What the rows of a rank's experts, source by source, mean for its time (sim/time/megatron/megatron_time.h). */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_EXPERTS_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_EXPERTS_H

#include "sim/time/megatron/megatron_time.h"

/* Blocks that one torch.cat starts for each of its chunks when the longest has so many rows; 2 bytes an element. Source: PyTorch, aten/src/ATen/native/cuda/Shape.cu, getCatGridContig. */
double spw_megatron_cat_blocks(const spw_megatron_coefficients *c, size_t hidden, double longest_rows);

/* The rows of a source that an expert of a rank computes; whole numbers, or means. Sources that send alike may stand once. */
typedef struct spw_megatron_chunks {
    size_t sources, experts;
    const double *rows;    /* [sources][experts] */
    const uint32_t *times; /* [sources] how often each is there; NULL: once */
    double *sum;           /* [experts] for the function below to write */
} spw_megatron_chunks;

/* Sets tiled, empty_experts, idle_rows, spilled and, where the stack counts it, unlike of `load`; the caller sets received. */
void spw_megatron_experts_load(const spw_megatron_coefficients *c, size_t hidden, size_t ffn,
                               const spw_megatron_chunks *chunks, spw_megatron_load *load);
/* The same of sum [experts], rows that are summed up, where nothing is copied chunk by chunk: idle_rows is 0. Sorts them. */
void spw_megatron_experts_sums(const spw_megatron_coefficients *c, size_t hidden, size_t ffn, double *sum,
                               size_t experts, spw_megatron_load *load);

#endif
