/* What a row of the result is a mean or a maximum of: bytes and rows, summed over the groups, layers, micro-batches and
 * steps of a replay. */
#ifndef SPW_SIM_REPLAY_ROW_SUMS_H
#define SPW_SIM_REPLAY_ROW_SUMS_H

#include "sim/schemes/traffic.h"

#include <stdbool.h>

typedef struct spw_result_traffic spw_result_traffic;

typedef struct spw_row_sums {
    double dispatch, combine, step_bytes, intra, inter, rows;
    uint64_t rows_max, max_link;
} spw_row_sums;

/* One group of one layer, which stands for so many. */
void spw_row_sums_add(spw_row_sums *sums, const spw_traffic *traffic, size_t stands_for);
/* The rows of one rank there, in so many micro-batches; true when no rank held as many before. */
bool spw_row_sums_note(spw_row_sums *sums, uint64_t rows, uint64_t times);

/* Means over `cells` (step x layer x micro-batch x rank); of a step's bytes over `gpus` (step x GPU). */
spw_result_traffic spw_row_sums_traffic(const spw_row_sums *sums, double cells, double gpus);

#endif
