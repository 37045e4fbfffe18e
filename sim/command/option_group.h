/* The groups in which the help and the manual list the options of commands on a job. */
#ifndef SPW_SIM_COMMAND_OPTION_GROUP_H
#define SPW_SIM_COMMAND_OPTION_GROUP_H

#include <argp.h>

/* In the order in which they are printed. */
typedef enum spw_option_group {
    SPW_GROUP_NONE, /* of a command without groups */
    SPW_GROUP_JOB,
    SPW_GROUP_SPLIT,
    SPW_GROUP_SEARCH,
    SPW_GROUP_ROUTING,
    SPW_GROUP_MEMORY,
    SPW_GROUP_MONEY,
    SPW_GROUP_OUTPUT,
    SPW_GROUP_COUNT
} spw_option_group;

/* "Split and batch"; NULL: no group. */
const char *spw_option_group_name(int group);
/* Of an option by its name. SPW_GROUP_NONE: the table in option_group.c lacks it. */
spw_option_group spw_option_group_of(const char *name);

enum { SPW_GROUPED_ARGPS = 4, SPW_GROUPED_OPTIONS = 64 };

/* Copies of a command's lists of options with their groups set, and a list of the groups' headings. */
typedef struct spw_grouped_options {
    struct argp argp[SPW_GROUPED_ARGPS];
    struct argp_option option[SPW_GROUPED_ARGPS][SPW_GROUPED_OPTIONS];
    size_t argps;
    struct argp headings;
    struct argp_option heading[SPW_GROUP_COUNT];
} spw_grouped_options;

/* A copy of `argp` in `out` with groups; it lives as long as `out`. One that does not fit is returned as it is. */
const struct argp *spw_option_group_add(const struct argp *argp, spw_grouped_options *out);
/* The headings of all groups that were added, as a list of options without names. */
const struct argp *spw_option_group_headings(spw_grouped_options *grouped);

#endif
