/* One value of an axis: the files that are made for it, and the words with which the program is started. */
#ifndef SPW_SIM_COMMAND_BENCH_GROWTH_CASE_H
#define SPW_SIM_COMMAND_BENCH_GROWTH_CASE_H

#include "base/file.h"
#include "sim/command/bench/growth_axis.h"

enum { SPW_GROWTH_LINE = 4096, SPW_GROWTH_MOST_WORDS = 128 };

/* The files of all cases, one after the other. */
typedef struct spw_growth_files {
    spw_file model, trace;
    char made[SPW_GROWTH_LINE]; /* the words of the trace that is there */
} spw_growth_files;

/* Temporary files of /tmp, which a program that ends by a signal removes, too. */
SPW_MUST_CHECK spw_status spw_growth_files_begin(spw_growth_files *out);
void spw_growth_files_end(spw_growth_files *files);

typedef struct spw_growth_words {
    char line[SPW_GROWTH_LINE];
    char *word[SPW_GROWTH_MOST_WORDS]; /* argv, in `line`, ended by NULL */
} spw_growth_words;

/* Every value of every command of the axis, before one is measured and without a file: what spw_growth_case_make() refuses, but for a
 * trace that cannot be made; a command that is the same at two values; a model, a trace or texts that no command names; a key with a $name
 * that its model lacks, so that it would change nothing. SPW_ECONFIG with file and line. */
SPW_MUST_CHECK spw_status spw_growth_case_check(const spw_growth_axis *axis);

/* Makes the files of value `index` and says how the program is started. A trace that is there already is taken. SPW_ECONFIG: an unknown
 * $name, a line that is too long, a key that is no number, a trace that cannot be made. */
SPW_MUST_CHECK spw_status spw_growth_case_make(const spw_growth_axis *axis, spw_growth_command command,
                                               size_t index, spw_growth_files *files, spw_growth_words *out);

#endif
