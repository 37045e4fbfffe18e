/* What one of several threads failed with. A message is that of the thread that met it: it is kept here, and told again by the
 * thread that goes on.
 *     spw_failure failure = SPW_NO_FAILURE;
 *     #pragma omp parallel for
 *     for (i ...) spw_failure_note(&failure, i, work(i));
 *     return spw_failure_tell(&failure); */
#ifndef SPW_BASE_FAILURE_H
#define SPW_BASE_FAILURE_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct spw_failure {
    atomic_flag taken; /* by a thread that notes */
    atomic_int status; /* spw_status; SPW_OK: none so far */
    size_t at;
    char message[SPW_MESSAGE_BYTES];
} spw_failure;

#define SPW_NO_FAILURE \
    { .taken = ATOMIC_FLAG_INIT }

/* From any thread: piece of work `at` ended with this status, and the message of this thread. Of several failures the first
 * piece's is kept, in whatever order they come. */
void spw_failure_note(spw_failure *failure, size_t at, spw_status status);
/* From any thread, for those that need not begin any more. */
bool spw_failure_is_there(const spw_failure *failure);
/* Behind the threads: that status, and its message as this thread's; SPW_OK: none. */
SPW_MUST_CHECK spw_status spw_failure_tell(const spw_failure *failure);

#endif
