/* The layer's local kernels against the reference. */
#ifndef SPW_KERNELS_VERIFY_VERIFY_LOCAL_H
#define SPW_KERNELS_VERIFY_VERIFY_LOCAL_H

#include "kernels/verify/judge.h"

/* level 0 small, 1 reduced, 2 full. */
SPW_MUST_CHECK spw_status spw_verify_local(int level, spw_judge *judge);

/* Codes of fp8 of rows, of activations and of weights against the reference's quantiser: every byte of codes and scales, by rows and by
 * columns; what no expert has must be left alone. */
SPW_MUST_CHECK spw_status spw_verify_float8(int level, spw_judge *judge);
/* The same of launches that are wrong on purpose: every comparison must fail. */
SPW_MUST_CHECK spw_status spw_verify_float8_wrong(spw_judge *judge);

#endif
