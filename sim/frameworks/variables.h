/* Variables of a shell script, and placeholders of other files: ${NAME}, ${NAME:-default}, ${NAME:default}, $NAME. What the text itself
 * says is put in; the environment of this program is not read and nothing is executed. */
#ifndef SPW_SIM_FRAMEWORKS_VARIABLES_H
#define SPW_SIM_FRAMEWORKS_VARIABLES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPW_VARIABLES = 512, SPW_VARIABLE_NAME = 64, SPW_EXPANSIONS = 64 };

typedef struct spw_variable {
    char name[SPW_VARIABLE_NAME];
    char *value;
    bool unknown; /* it is made of something that the file does not say */
} spw_variable;

typedef struct spw_variables {
    spw_variable variable[SPW_VARIABLES];
    size_t count;
} spw_variables;

/* The last value counts. More than SPW_VARIABLES, or too long a name: forgotten, and then unknown where it is used. */
SPW_MUST_CHECK spw_status spw_variables_set(spw_variables *variables, const char *name, const char *value,
                                            bool unknown);
const spw_variable *spw_variables_find(const spw_variables *variables, const char *name, size_t length);
void spw_variables_close(spw_variables *variables);

/* out [size] = the text with variables replaced; what has no value stays as it is written, and *unknown is set.
 * `variables` may be NULL. Products, quotients, sums of whole numbers in $((...)) are computed. SPW_ECONFIG where the result is
 * too long. */
SPW_MUST_CHECK spw_status spw_variables_expand(const char *where, size_t line, const spw_variables *variables,
                                               const char *text, char *out, size_t size, bool *unknown);

#endif
