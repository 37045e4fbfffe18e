/* How a framework's settings look: arguments of a script, YAML, pairs of a command line. */
#ifndef SPW_SIM_FRAMEWORKS_FLAGS_TEXT_H
#define SPW_SIM_FRAMEWORKS_FLAGS_TEXT_H

#include "sim/frameworks/flags.h"

/* *text = what the framework reads, freed by free(). */
SPW_MUST_CHECK spw_status spw_flags_text(const spw_flag_draft *flags, char **text);

#endif
