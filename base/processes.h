/* The processes that share one run: those that mpirun has started, or this one alone. All of them run the same command and
 * come to the same result; the first alone is heard and writes files. Calls marked "together" are made by all, in the same
 * order. Without MPI (SPW_MPI) there is one process, and none of this does anything. */
#ifndef SPW_BASE_PROCESSES_H
#define SPW_BASE_PROCESSES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* How processes reach each other. None of its calls waits for another process but tell(). */
typedef struct spw_process_link {
    spw_status (*join)(int *number, int *count); /* who is this one, of how many */
    bool (*meet)(void);                          /* are all here? Asked again and again at the end */
    void (*part)(void);                          /* after that */
    void (*end_all)(int exit_status);            /* instead of that */
    spw_status (*tell)(void *data, size_t bytes);
    spw_status (*send)(const void *data, size_t bytes); /* to the first; `data` stays until sent() */
    bool (*sent)(void); /* true when all is; in between, what is under way goes on */
    spw_status (*receive)(char **out,
                          size_t *bytes); /* the first: what one has sent; *out NULL: nothing is there */
    void (*ask)(void);                    /* the first for numbers; then hear() */
    bool (*is_asked)(int *who);           /* the first: does anybody? */
    void (*answer)(int who, size_t begin, size_t end);
    bool (*hear)(size_t *begin, size_t *end); /* true: the answer is here */
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

/* The link to the others; NULL: there are none. */
const spw_process_link *spw_processes_link(void);

/* Where there is nothing to do but to ask again: a tenth of a millisecond, and of a wait that is long an eighth of it, at most a
 * millisecond. *waited_us is 0 where a wait begins. */
void spw_processes_rest(long *waited_us);

#endif
