/* What every entry of the library that meets files does first and last. */
#ifndef SPW_SIM_LIBRARY_GATE_H
#define SPW_SIM_LIBRARY_GATE_H

#include "base/status.h"
#include "sim/library/spillway.h"

/* Waits until no other thread is inside. A run of its own begins, for noted causes and for the files that it reads. SPW_EIO in
 * a process that was forked while another thread was inside. */
SPW_MUST_CHECK spw_status spw_gate_enter(void);
/* The code of the run, which ends. Only after spw_gate_enter() was SPW_OK. */
spw_code spw_gate_leave(spw_status status);
/* Inside: the number of this run, whose files stay noted until spw_run_end(), also inside. */
size_t spw_gate_keep_files(void);

/* Milliseconds that fork() waits for a call under way in another thread; 10 000, a test takes less. */
extern long spw_gate_patience_ms;

/* To be called before OpenMP is used: from then on a child of this process works with one thread, because OpenMP's other threads
 * are not copied and it would wait for them for ever. */
void spw_gate_watch_forks(void);

/* An argument that must not be NULL; the list ends with a NULL name. */
typedef struct spw_given {
    const char *name;
    const void *pointer;
} spw_given;
/* SPW_EARG names the first that is NULL. */
SPW_MUST_CHECK spw_status spw_check_given(const char *function, const spw_given *list);

/* An array that may be NULL when it has no elements. */
static inline const void *spw_array(const void *pointer, int has_elements) {
    return has_elements ? pointer : "";
}

#endif
