/* Coefficients of the measured stack. */
#ifndef SPW_TESTS_MEGATRON_PRESET_H
#define SPW_TESTS_MEGATRON_PRESET_H

#include "sim/score/megatron/measured_time.h"
#include "sim/time/megatron/megatron_doubt.h"

#include "tests/unit/check.h"

enum { PATH = 4096 };

static inline spw_megatron_coefficients preset(void) {
    spw_megatron_coefficients c;
    CHECK_OK(spw_megatron_coefficients_read(SPW_MEASURED_STACK, NULL, &c));
    return c;
}

#endif
