/* Long work that a user ends by ^C and that has an answer so far: it asks here now and then, and ends early with what it has. */
#ifndef SPW_BASE_STOP_H
#define SPW_BASE_STOP_H

#include <stdbool.h>

/* From now on the first SIGINT asks to stop, and the second ends the program, as before. A terminal's ^C comes twice, from the
 * terminal and from the supervisor, however late that is: both are one. A SIGINT that is ignored stays so. */
void spw_stop_listen(void);
/* SIGINT does what it did before spw_stop_listen. Not in a program that was asked to stop: what the supervisor passes on may
 * come only now, and must not end it before its answer is written. */
void spw_stop_leave(void);
bool spw_stop_is_asked(void); /* has it been, in this program */
/* To be called last, when all is written: a program that was asked to stop ends by SIGINT, so that a script knows. */
void spw_stop_end(void);

#endif
