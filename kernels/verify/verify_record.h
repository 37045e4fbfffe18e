/* A routing record executed on the GPU, one destination rank after the other. */
#ifndef SPW_KERNELS_VERIFY_VERIFY_RECORD_H
#define SPW_KERNELS_VERIFY_VERIFY_RECORD_H

#include "kernels/record/record.h"
#include "kernels/verify/judge.h"

/* For every scheme and destination rank: places by the scheme's rule, fan-out into the rank's buffer, grouped GEMM
 * (every variant) and combine, each against the reference; then rows, drops of every source rank, rows and bytes of
 * the buffer that was allocated against the record's predictions, exactly. The last comparison runs the first scheme
 * again with every prediction off by one: each must be found. */
SPW_MUST_CHECK spw_status spw_verify_record(const spw_record *record, spw_judge *judge);

#endif
