/* The layer's local kernels against the reference. */
#ifndef SPW_KERNELS_VERIFY_VERIFY_LOCAL_H
#define SPW_KERNELS_VERIFY_VERIFY_LOCAL_H

#include "kernels/verify/judge.h"

/* level 0 small, 1 reduced, 2 full. */
SPW_MUST_CHECK spw_status spw_verify_local(int level, spw_judge *judge);

#endif
