/* The whole verification on this process's GPU. */
#ifndef SPW_KERNELS_VERIFY_VERIFY_DEVICE_H
#define SPW_KERNELS_VERIFY_VERIFY_DEVICE_H

#include "base/status.h"

/* `level` is small, reduced, full, races, all, or NULL for none; `kind` one of what is compared ("fused"), without results that are wrong on
 * purpose, or NULL for all of it with them; `record_path` a routing record (kernels/record/record.h) or NULL. Prints to standard output, failures to standard error, 'N comparisons, M failed' last. SPW_EMISMATCH: a
 * comparison failed; SPW_EDEVICE: no GPU, or none in this build; SPW_EARG: the level, the kind. */
SPW_MUST_CHECK spw_status spw_verify_device(const char *level, const char *kind, const char *record_path);

#endif
