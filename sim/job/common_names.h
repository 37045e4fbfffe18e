/* What other programs call keys of a job, options and schemes of ours: offered in messages, never taken. */
#ifndef SPW_SIM_JOB_COMMON_NAMES_H
#define SPW_SIM_JOB_COMMON_NAMES_H

#include "sim/read/settings.h"

#include <stddef.h>

typedef struct spw_common_name {
    const char *word;   /* lower case, with '_' */
    const char *key;    /* of a job, "parallel.expert"; NULL: none */
    const char *option; /* of the command line, without "--"; NULL: none */
    const char *note;   /* the whole advice, where one name in place of another would be wrong; NULL: none */
} spw_common_name;

/* The row of a word, in any case, with '-' or '_', and without "_size" behind it; NULL: none. */
const spw_common_name *spw_common_name_find(const char *word, size_t length);

/* What to write for such a key, or what becomes of such a setting of MaxText (sim/job/recipe/maxtext_settings.h): "did you mean 'parallel.expert', or --expert-parallel? "; "" for any other word. Returns `out`. */
const char *spw_common_key_advice(const char *word, size_t length, char out[SPW_ADVICE]);

/* What to write for such a scheme, "dropless"; NULL: nothing is known of it. */
const char *spw_common_scheme_advice(const char *word, size_t length);

#endif
