/* How much memory a trace is read with. Chunks that were decoded are kept in a window; all else follows from the sizes of the
 * trace. A bound is held by a window that is small enough, or the work is refused before it begins. */
#ifndef SPW_TRACES_TRACE_MEMORY_H
#define SPW_TRACES_TRACE_MEMORY_H

#include "base/status.h"
#include <stdio.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace spw_trace;

/* A bound on the memory of this process. */
typedef struct spw_memory_bound {
    size_t limit;   /* bytes */
    FILE *notes;    /* where it is said, once, what is needed */
    size_t program; /* 0: not asked for yet; what was resident before: program, libraries, what they read */
    size_t held;    /* of those, what the allocator had given out */
    bool said;
} spw_memory_bound;

/* What work on a trace needs beside the trace. */
typedef struct spw_memory_work {
    uint64_t tokens; /* read at once, at most */
    bool weights;
    size_t tables;  /* bytes of tables and results */
    size_t records; /* bytes of what one unit of work finds */
    bool shared;    /* records of many units are gathered: of many processes, or for a checkpoint */
} spw_memory_work;

/* Before the work, and for each piece of it: chooses the window, and from now on the process allocates no more than the bound
 * leaves. SPW_EARG: even the smallest window does not fit; says what would. */
SPW_MUST_CHECK spw_status spw_trace_fit_memory(spw_trace *trace, const spw_memory_work *work,
                                               spw_memory_bound *bound);

#endif
