/* The score of a table of whole layers, as `spillway score` prints it. */
#ifndef SPW_SIM_SCORE_KERNELS_OWN_LAYER_PRINT_H
#define SPW_SIM_SCORE_KERNELS_OWN_LAYER_PRINT_H

#include "base/status.h"
#include "sim/print/table.h"

#include <stdio.h>

/* With the figures of cluster h200-8x8, where the table was measured. Table: totals by point and a summary by phase; CSV and
 * JSON: every row. */
SPW_MUST_CHECK spw_status spw_own_layer_print(const char *path, spw_format format, FILE *out);

#endif
