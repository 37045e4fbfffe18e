/* What every entry of the library that meets files does first and last. */
#ifndef SPW_SIM_LIBRARY_GATE_H
#define SPW_SIM_LIBRARY_GATE_H

#include "base/status.h"
#include "sim/library/spillway.h"

/* Waits until no other thread is inside; a run of its own begins for noted causes. */
void spw_gate_enter(void);
/* The code of the run, which ends. */
spw_code spw_gate_leave(spw_status status);

#endif
