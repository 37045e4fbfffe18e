/* Temporary files of outputs under way: whatever ends the program, they go. A signal, exit() and abort() remove them; after
 * SIGKILL the supervisor does (base/supervise.h), and what even that left, as after a power cut, goes when the same
 * output is begun again. */
#ifndef SPW_BASE_TEMPORARY_H
#define SPW_BASE_TEMPORARY_H

#include "base/status.h"

/* Creates an empty file beside `path`, named PATH.spw-WORLD-PID-XXXXXX, where WORLD stands for this machine since its start
 * and this namespace of processes; *descriptor is open for writing. Before, files of that name whose process is gone
 * are removed. *out is the caller's to spw_free(), after one of the two calls below. One thread at a time. */
SPW_MUST_CHECK spw_status spw_temporary_create(const char *path, char **out, int *descriptor);

void spw_temporary_remove(const char *temporary); /* the file goes */
void spw_temporary_forget(const char *temporary); /* it stays, under whatever name it has now */

/* Removes every file that is under way, from a signal handler too. */
void spw_temporary_remove_all(void);

/* From now on this process and the children that it makes share the list, so that it can remove what a child left. A child
 * alone then removes what it creates. Without memory for that the list stays one of each process. */
void spw_temporary_share(void);

/* A list for one child: lent before the fork (NULL: no memory), borrowed by the child, whose files stand there from then on, and
 * taken back when the child has ended: what it left is removed. NULL is fine. */
void *spw_temporary_lend(void);
void spw_temporary_borrow(void *list);
void spw_temporary_take_back(void *list);

/* From now on no signal is caught for their sake, and nothing is done when the program ends: for a library in a program whose
 * signals are its own. What a killed program left goes when the same output is begun again. */
void spw_temporary_leave_signals(void);

#endif
