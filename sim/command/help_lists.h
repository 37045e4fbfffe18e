/* `spillway help schemes`, models, clusters, routing and words: lists made from the tables that the program itself reads by. An entry
 * begins with two blanks and its name, then ": "; lines of four blanks belong to the one above. */
#ifndef SPW_SIM_COMMAND_HELP_LISTS_H
#define SPW_SIM_COMMAND_HELP_LISTS_H

#include "base/status.h"

#include <stdio.h>

SPW_MUST_CHECK spw_status spw_help_schemes(FILE *out);
SPW_MUST_CHECK spw_status spw_help_models(FILE *out);
SPW_MUST_CHECK spw_status spw_help_clusters(FILE *out);
SPW_MUST_CHECK spw_status spw_help_routing(FILE *out);
SPW_MUST_CHECK spw_status spw_help_words(FILE *out);

#endif
