/* The column `command` of a table of published runs: a call of spillway, as a shell would read it. */
#ifndef SPW_SIM_SCORE_RUNS_RUN_COMMAND_H
#define SPW_SIM_SCORE_RUNS_RUN_COMMAND_H

#include "base/status.h"

#include <stddef.h>

enum { SPW_RUN_COMMAND_SETS = 32 };

typedef struct spw_run_command {
    char *text;                 /* owned; the words, cut apart */
    const char *model, *scheme; /* of --model and --scheme; NULL: not there */
    struct {
        const char *key, *value;
    } set
        [SPW_RUN_COMMAND_SETS]; /* of --set, and of options that are keys of a job which no column says, in their order */
    size_t sets;
} spw_run_command;

/* Words between blanks, with '...' around what holds blanks; no other sign of a shell has a meaning. An option that is none of
 * those above is passed over. NULL or "": nothing is there. SPW_ECONFIG, after `where`: a quote without an end, an option without
 * its value, a --set without '=', too many of them. Closed by spw_run_command_close. */
SPW_MUST_CHECK spw_status spw_run_command_read(const char *where, const char *text, spw_run_command *out);
void spw_run_command_close(spw_run_command *command); /* a zeroed one is fine */

#endif
