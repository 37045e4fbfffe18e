/* Subcommands of spillway. Each lives in command_<name>.c beside this file, calibrate in sim/calibrate, parses its own arguments
 * (argv[0] is its name) and prints its result on stdout; only main prints errors. */
#ifndef SPW_SIM_COMMAND_COMMAND_H
#define SPW_SIM_COMMAND_COMMAND_H

#include "base/status.h"
#include "sim/print/table.h"

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct spw_setting spw_setting;

/* A command, or a part of one: how it is called, what runs, and what lists of commands say of it. A row without a name ends a
 * table. */
typedef struct spw_command_row {
    const char *name;
    spw_status (*run)(int argc, char **argv); /* argv[0] is the whole name, "spillway trace info" */
    const char *help;
    const struct spw_command_row *parts; /* NULL: there are none, and it takes options */
} spw_command_row;

extern const spw_command_row spw_commands[], spw_trace_parts[], spw_calibrate_parts[], spw_bench_parts[];

/* The row called `name`; NULL: there is none. */
const spw_command_row *spw_command_find(const spw_command_row *rows, const char *name);
/* A line for every row. */
void spw_command_list(const spw_command_row *rows, FILE *out);
/* Runs `row` with what follows argv[1], its name. */
SPW_MUST_CHECK spw_status spw_command_run(const spw_command_row *row, int argc, char **argv);

/* The examples of a command or of its parts, each below what it is for; nothing where there are none. */
void spw_command_examples(const char *command, FILE *out);

/* What `spillway help` explains beside the commands. Either the keys of a file that a user writes, or a list of names. */
typedef struct spw_command_topic {
    const char *name, *help;
    const spw_setting *(*settings)(void); /* NULL: a list */
    spw_status (*print)(FILE *out);       /* "  name: text" a line */
} spw_command_topic;
extern const spw_command_topic spw_command_topics[]; /* a row without a name ends it */

spw_status spw_command_doctor(int argc, char **argv);
spw_status spw_command_trace(int argc, char **argv);
spw_status spw_command_replay(int argc, char **argv);
spw_status spw_command_model(int argc, char **argv);
spw_status spw_command_plan(int argc, char **argv);
spw_status spw_command_explain(int argc, char **argv);
spw_status spw_command_report(int argc, char **argv);
spw_status spw_command_verify(int argc, char **argv);
spw_status spw_command_calibrate(int argc, char **argv);
spw_status spw_command_calibrate_megatron(int argc, char **argv);
spw_status spw_command_calibrate_time(int argc, char **argv);
spw_status spw_command_job(int argc, char **argv);
spw_status spw_command_score(int argc, char **argv);
spw_status spw_command_ask_xla(int argc, char **argv);
spw_status spw_command_bench(int argc, char **argv);
spw_status spw_command_bench_replay(int argc, char **argv);
spw_status spw_command_bench_reference(int argc, char **argv);
spw_status spw_command_bench_allocator(int argc, char **argv);
spw_status spw_command_bench_plan(int argc, char **argv);
spw_status spw_command_bench_search(int argc, char **argv);
spw_status spw_command_bench_growth(int argc, char **argv);
spw_status spw_command_bench_dispatch(int argc, char **argv);
spw_status spw_command_bench_layer(int argc, char **argv);

/* Where a command prints its result and what it notes beside it: standard output and standard error, unless this thread
 * has said otherwise. With streams of its own nothing ends the program: wrong arguments are SPW_EARG with what is wrong in
 * the message, and there is no help. */
typedef struct spw_command_streams {
    FILE *out, *notes; /* NULL: the standard ones */
} spw_command_streams;
void spw_command_redirect(spw_command_streams own);
bool spw_command_is_redirected(void);
FILE *spw_command_out(void);
FILE *spw_command_notes(void);

/* What was printed has arrived; SPW_EIO. To be asked before a file is replaced, so that a run either does both or fails. */
SPW_MUST_CHECK spw_status spw_command_said(void);

/* "--help", "-?" or "help" in the place of a command or of its part. */
bool spw_asks_for_help(const char *word);

/* From now on standard output breaks lines of more than `most` characters at blanks, and folds tables. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_command_lines_at(size_t most);

/* Flag of an option whose value is a file that the command writes: spw_command_parse() refuses two of them on one file, and one on
 * the file into which standard output or standard error goes (base/run_files.h). argp does not know it. */
/* An option of which the last counts, as words that a search prints take the place of the user's own. Any other option with a value is
 * refused when it is given twice, unless its help says that it may be repeated. */
enum { SPW_OPTION_WRITES = 0x4000, SPW_OPTION_LAST = 0x2000 };

/* argp_parse with our manners: argp prints what is wrong with an option itself, --help ends in *help = true,
 * and any usage error is SPW_EARG. `state` is handed to the parser as input. Every command has the option --wide besides
 * its own: without it, lines have SPW_LINE_CHARACTERS at most. */
SPW_MUST_CHECK spw_status spw_command_parse(const struct argp *argp, int argc, char **argv, void *state);

/* Adds `text` to the `list` of an option or argument that may be repeated; a usage error, "more than 4 tables" of what they are, where
 * `most` are there. */
void spw_command_add_word(const char *text, struct argp_state *state, const char **list, size_t *count,
                          size_t most, const char *what);

/* Hands what a row without parts takes to `listener` instead of running it; manuals and completions are made of that. */
typedef void spw_command_listener(const struct argp *argp, void *state);
SPW_MUST_CHECK spw_status spw_command_describe(const spw_command_row *row, spw_command_listener *listener,
                                               void *state);

/* What --format says, to be asked instead of spw_format_parse: what is no table keeps its lines whole. */
SPW_MUST_CHECK spw_status spw_command_format(const char *text, spw_format *out);

#endif
