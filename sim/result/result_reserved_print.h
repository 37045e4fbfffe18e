/* What the allocator did, in words. */
#ifndef SPW_SIM_RESULT_RESULT_RESERVED_PRINT_H
#define SPW_SIM_RESULT_RESULT_RESERVED_PRINT_H

#include "sim/result/result_print.h"

void spw_result_print_reserved(const spw_result_row *row, FILE *out);

#endif
