/* What a program takes as a process of its own. */
#ifndef SPW_SIM_COMMAND_BENCH_PROCESS_USE_H
#define SPW_SIM_COMMAND_BENCH_PROCESS_USE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPW_PROCESS_REPEATS = 99 };
#define SPW_OWN_PROGRAM "/proc/self/exe"

typedef struct spw_process_use {
    double median_s, least_s; /* of processor time, user and system */
    double bytes;             /* the most that was resident */
    double said;              /* the median of numbers that it printed first; NAN: it printed no number */
} spw_process_use;

typedef struct spw_process {
    const char *program;
    char **word;     /* argv, ended by NULL */
    bool one_thread; /* OMP_NUM_THREADS=1; else as it is */
    bool explains;   /* where it fails it is run once more, with our standard error; else that goes nowhere */
} spw_process;

/* Runs it `repeats` times, 1 to SPW_PROCESS_REPEATS; *good: no run failed, else *out says nothing. SPW_EIO: no process. */
SPW_MUST_CHECK spw_status spw_process_use_of(const spw_process *process, uint64_t repeats,
                                             spw_process_use *out, bool *good);

/* Standard output goes nowhere from now on; standard error too, unless it is `heard`. */
void spw_process_print_nowhere(bool heard);

#endif
