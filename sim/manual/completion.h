/* Completion of commands, options and known values, for shells. */
#ifndef SPW_SIM_MANUAL_COMPLETION_H
#define SPW_SIM_MANUAL_COMPLETION_H

#include "sim/manual/page.h"

#include <stdio.h>

/* Functions of the shell that answer from the tables, followed by `shell_text`, which asks them: bash.sh, zsh.sh. */
SPW_MUST_CHECK spw_status spw_completion_bash(const spw_manual *manual, const char *shell_text, FILE *out);
SPW_MUST_CHECK spw_status spw_completion_zsh(const spw_manual *manual, const char *shell_text, FILE *out);

#endif
