/* Work on a stranger's bytes runs in a child process: a library that crashes on them, or never comes back, takes nobody
 * else with it. */
#ifndef SPW_BASE_CHILD_H
#define SPW_BASE_CHILD_H

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>

/* Seconds in each of which a child uses less than 0.01 s of processor time, after which it is stuck; 20, a test takes less. */
extern unsigned spw_child_patience_s;

typedef spw_status (*spw_child_work)(void *context, FILE *out);

/* Runs `work`, and once more when it finds SPW_EFORMAT, in a copy of this process that may use so many seconds of CPU
 * time; *reply [*bytes] is what it wrote to `out`, the caller's to spw_free(); NULL when it failed. Its status and message
 * are those of this call; what it prints on standard error goes nowhere. A child that crashes, or writes more than
 * `most_bytes`, is SPW_EFORMAT: "path: damaged ...", one that a library ends by exit() SPW_ENOMEM. A child that sleeps for
 * spw_child_patience_s is ended and run once more, then it is SPW_EIO: in a process with threads it may wait for a lock
 * that is held nowhere. A child that ends before `work` begins, in what a library does in every new process, is followed by another
 * one, here and in spw_child_do(). */
SPW_MUST_CHECK spw_status spw_child_run(const char *path, unsigned cpu_seconds, size_t most_bytes,
                                        spw_child_work work, void *context, char **reply, size_t *bytes);

/* Whether work of our own should be done in a child: not under a sanitizer, which allows no threads there and must be heard. */
bool spw_child_is_apart(void);

/* The same once, for work of our own that may take long and write files: without a limit of processor time; *bytes may be any. A child
 * that crashes is SPW_ENOMEM: "what: ended by signal 11 ...", one that sleeps for ten minutes SPW_EIO; its temporary files go. */
SPW_MUST_CHECK spw_status spw_child_do(const char *what, spw_child_work work, void *context, char **reply,
                                       size_t *bytes);

#endif
