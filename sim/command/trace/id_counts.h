/* How often each id of a vocabulary occurs, from a table with the columns id and count. */
#ifndef SPW_SIM_COMMAND_TRACE_ID_COUNTS_H
#define SPW_SIM_COMMAND_TRACE_ID_COUNTS_H

#include "base/status.h"

#include <stddef.h>

/* *weight [*ids]: the count of every id, 0 where the table has none; *ids is the greatest id plus 1. The caller frees it with spw_free().
 * SPW_EFORMAT names file and line: an id that is no whole number below 2^20 or stands twice, a count that is no number of 0 or more. */
SPW_MUST_CHECK spw_status spw_id_counts_read(const char *path, double **weight, size_t *ids);

#endif
