/* The processes that share one run: those that mpirun has started, or this one alone. All of them run the same command and
 * come to the same result; the first alone is heard and writes files. Calls marked "together" are made by all, in the same
 * order. Without MPI (SPW_MPI) there is one process, and none of this does anything. */
#ifndef SPW_BASE_PROCESSES_H
#define SPW_BASE_PROCESSES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* How processes reach each other. */
typedef struct spw_process_link {
    spw_status (*join)(int *number, int *count); /* who is this one, of how many */
    bool (*meet)(void);                          /* are all here? Asked again and again at the end */
    void (*part)(void);                          /* after that */
    void (*end_all)(int exit_status);            /* instead of that */
    spw_status (*tell)(void *data, size_t bytes);
    spw_status (*gather)(int count, const void *mine, size_t bytes, char **out, size_t *out_bytes);
    void (*ask)(void);          /* the first for numbers; then hear() */
    bool (*is_asked)(int *who); /* the first: does anybody? */
    void (*answer)(int who, size_t begin, size_t end);
    void (*hear)(size_t *begin, size_t *end);
} spw_process_link;

/* Joins the others by the link, where mpirun or srun has started any; NULL: the program has none. From now on only the first
 * writes to standard output and standard error. SPW_EARG: others were started, but the program was built without MPI, or with
 * another MPI. */
SPW_MUST_CHECK spw_status spw_processes_begin(const spw_process_link *link);

/* Before the program ends with `status`, whose message is spw_last_error(): waits for the others. When they do not come, because
 * this process alone has failed, it says so, and all are ended. */
void spw_processes_end(spw_status status);

size_t spw_processes(void); /* how many */
bool spw_process_is_first(void);

/* Together: what the first process has in `data` reaches all. */
SPW_MUST_CHECK spw_status spw_processes_tell(void *data, size_t bytes);

/* Together: *out = the `bytes` of every process, one after the other; the caller frees it with spw_free(). */
SPW_MUST_CHECK spw_status spw_processes_gather(const void *mine, size_t bytes, char **out, size_t *out_bytes);

/* Numbers [0, count) are shared out, each to one process, to whoever is free. The first process hands them out between two of
 * its own calls, so what is done between two calls should be short. */
typedef struct spw_turns {
    size_t next, count; /* of the first process */
    size_t begin, end;  /* what this process was given and has not returned yet */
    size_t waiting;     /* of the first process: others that do not know yet that nothing is left */
    bool over;          /* others: an answer says so */
} spw_turns;

/* Together. */
void spw_turns_begin(spw_turns *turns, size_t numbers);
/* The next number of this process, rising from call to call; false when none is left, and after that not again. */
bool spw_turns_next(spw_turns *turns, size_t *number);

#endif
