/* One step, two steps. */
#ifndef SPW_SIM_PRINT_PLURAL_H
#define SPW_SIM_PRINT_PLURAL_H

#include <stddef.h>

/* What follows a noun after a number. */
static inline const char *spw_plural(size_t count) { return count == 1 ? "" : "s"; }

#endif
