/* Writes a routing record (kernels/record/record.h) of a trace: one group of one layer of one step, with what every
 * scheme that has a meaning on one GPU is predicted to do. */
#ifndef SPW_SIM_VERIFY_TRACE_RECORD_H
#define SPW_SIM_VERIFY_TRACE_RECORD_H

#include "base/status.h"
#include "kernels/record/record.h"

#include <stddef.h>

typedef struct spw_trace_record_settings {
    size_t step, layer, group; /* positions */
    size_t expert_parallel;    /* 0: as spw_trace_group_settings */
} spw_trace_record_settings;

/* Schemes: dense with capacity factor 1.25, gmm with the worst case's and with the mean's buffer, gmm and ring
 * with less than the mean, gmm-deepep. Bytes are of rows 64 wide. The caller destroys *out. */
SPW_MUST_CHECK spw_status spw_trace_record_make(const char *trace_path,
                                                const spw_trace_record_settings *settings, spw_record *out);
/* The same as a file, which appears whole or not at all. */
SPW_MUST_CHECK spw_status spw_trace_record_save(const char *trace_path, const char *record_path,
                                                const spw_trace_record_settings *settings);

#endif
