/* Words that depend on what stands before them: one step, two steps. */
#ifndef SPW_SIM_PRINT_PLURAL_H
#define SPW_SIM_PRINT_PLURAL_H

#include <stddef.h>

/* What follows a noun after a number. */
static inline const char *spw_plural(size_t count) { return count == 1 ? "" : "s"; }

#define SPW_TOKENS_UNSAID " (nobody said how many: --tokens)" /* behind tokens that a price asks for */

#endif
