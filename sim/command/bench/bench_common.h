/* Options that benches have in common: how often a thing is measured, and how to print. */
#ifndef SPW_SIM_COMMAND_BENCH_BENCH_COMMON_H
#define SPW_SIM_COMMAND_BENCH_BENCH_COMMON_H

#include "base/status.h"
#include "sim/print/table.h"

#include <argp.h>
#include <stdint.h>

typedef struct spw_bench_common {
    uint64_t repeats; /* 1 to SPW_PROCESS_REPEATS (process_use.h); holds the default before parsing */
    spw_format format;
    spw_status status; /* of what was parsed, to be asked behind spw_command_parse() */
} spw_bench_common;

/* argp parsers for `children`: of --format, and of --repeats besides. Their input is the spw_bench_common. */
extern const struct argp spw_bench_format_argp, spw_bench_repeats_argp;

#endif
