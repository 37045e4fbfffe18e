/* A job and its scheme as a framework's configuration. What the framework has no name for stands in the first line as options of
 * spillway: with these, the text read back is the same job. */
#ifndef SPW_SIM_FRAMEWORKS_FLAGS_H
#define SPW_SIM_FRAMEWORKS_FLAGS_H

#include "sim/frameworks/framework.h"
#include "sim/schemes/scheme.h"

#include <stdio.h>

enum { SPW_FLAGS = 112, SPW_FLAG_VALUE = 640, SPW_FLAG_OPTIONS = 4096 };

typedef struct spw_flag {
    const char *name; /* theirs */
    char value[SPW_FLAG_VALUE];
} spw_flag;

struct spw_flag_draft {
    const spw_framework *framework;
    const spw_job *job; /* of one batch */
    const spw_scheme *scheme;
    spw_flag flag[SPW_FLAGS];
    size_t flags;
    char options[SPW_FLAG_OPTIONS]; /* " --cluster h100-8x8 --set memory_fraction=0.9" */
    bool same_model;                /* the text alone has a model of the job's sizes, whatever its name */
    const char
        *differences; /* of options: what the text alone would read as another job; without --cluster */
};

/* For rules: a fact or a key under the name that its row has; nothing where the framework has no name for it or for the value. */
SPW_MUST_CHECK spw_status spw_flags_say(spw_flag_draft *flags, const char *ours, const char *value);
/* A number that the scheme's option has; nothing where it is 0 or not given. */
SPW_MUST_CHECK spw_status spw_flags_say_option(spw_flag_draft *flags, const char *option, const char *ours);
SPW_MUST_CHECK spw_status spw_flags_say_count(spw_flag_draft *flags, const char *ours, size_t value);

/* Fills `out` with the settings, and *text with what the framework reads, freed by free(). `job` and `scheme` are borrowed; the
 * job has one batch. Errors as of spw_flags_print(). */
SPW_MUST_CHECK spw_status spw_flags_fill(const spw_framework *framework, const spw_job *job,
                                         const spw_scheme *scheme, spw_flag_draft *out, char **text);

/* The job with its first batch alone. doubts: lines that become comments, each of any length; NULL: none. SPW_ECONFIG where the scheme is none of the framework's. The text is read back before it is
 * printed, and what would be another job becomes an option. */
SPW_MUST_CHECK spw_status spw_flags_print(const spw_framework *framework, const spw_job *job,
                                          const spw_scheme *scheme, const char *doubts, FILE *out);

/* *text = what the framework reads, freed by free(). */
SPW_MUST_CHECK spw_status spw_flags_text(const spw_flag_draft *flags, char **text);

#endif
