/* The score of our own dispatch and combine: measured beside predicted, every run by the others. */
#ifndef SPW_SIM_SCORE_KERNELS_DISPATCH_PRINT_H
#define SPW_SIM_SCORE_KERNELS_DISPATCH_PRINT_H

#include "sim/print/table.h"
#include "sim/time/dispatch_time.h"

/* Reads the table at `path` and prints it beside the links of cluster h200-8x8. JSON: `cells`, `dispatch_median_abs_error`,
 * `dispatch_max_abs_error`, `rows`. */
SPW_MUST_CHECK spw_status spw_dispatch_print(const char *path, spw_format format, FILE *out);

#endif
