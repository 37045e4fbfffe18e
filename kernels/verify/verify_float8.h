/* Codes of fp8 of rows, of activations and of weights against the reference's quantiser. */
#ifndef SPW_KERNELS_VERIFY_VERIFY_FLOAT8_H
#define SPW_KERNELS_VERIFY_VERIFY_FLOAT8_H

#include "kernels/verify/judge.h"

/* Every byte of codes and scales, by rows and by columns; what no expert has must be left alone. level 0 small, 1 reduced, 2 full. */
SPW_MUST_CHECK spw_status spw_verify_float8(int level, spw_judge *judge);
/* The same of launches that are wrong on purpose: every comparison must fail. */
SPW_MUST_CHECK spw_status spw_verify_float8_wrong(spw_judge *judge);

#endif
