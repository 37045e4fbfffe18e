/* An axis along which the program's own cost is measured: values, and what is started at each. Data, not code: sim/growth/NAME.yaml, or
 * a file of one's own. */
#ifndef SPW_SIM_COMMAND_BENCH_GROWTH_AXIS_H
#define SPW_SIM_COMMAND_BENCH_GROWTH_AXIS_H

#include "base/status.h"
#include "sim/read/settings.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    SPW_GROWTH_NAME = 64,
    SPW_GROWTH_TEXT = 512,
    SPW_GROWTH_WORDS = 1024,
    SPW_GROWTH_VALUES = 16,
    SPW_GROWTH_KEYS = 16
};

/* What is measured: `plan`, `replay` of a trace, `plan --search`. */
typedef enum spw_growth_command {
    SPW_GROWTH_PLAN,
    SPW_GROWTH_REPLAY,
    SPW_GROWTH_SEARCH,
    SPW_GROWTH_COMMANDS
} spw_growth_command;
extern const char *const spw_growth_command_names[SPW_GROWTH_COMMANDS + 1]; /* ended by NULL */

/* One command along the axis; without values it is not measured. In `words`, `trace` and keys $value is the value, $text the text
 * beside it, $model and $trace the paths of the files that are made for it. */
typedef struct spw_growth_part {
    size_t value[SPW_GROWTH_VALUES], values;
    char text[SPW_GROWTH_VALUES][SPW_GROWTH_TEXT];
    size_t texts;
    char words[SPW_GROWTH_WORDS]; /* behind the command */
    char trace[SPW_GROWTH_WORDS]; /* of `trace generate OUT`; "": none is made */
    char words_place[SPW_SETTINGS_PLACE], trace_place[SPW_SETTINGS_PLACE]; /* "own.yaml:7", for messages */
} spw_growth_part;

typedef struct spw_growth_axis {
    char model[SPW_GROWTH_NAME]; /* the preset that $model is, but for keys; "": none is made */
    char key[SPW_GROWTH_KEYS][SPW_GROWTH_NAME];
    size_t keys; /* KEY=NUMBER each */
    char model_place[SPW_SETTINGS_PLACE], keys_place[SPW_SETTINGS_PLACE];
    spw_growth_part part[SPW_GROWTH_COMMANDS];
    char name[SPW_GROWTH_NAME]; /* the preset's, or the file's without folder and ending */
} spw_growth_axis;

/* The axis `name`, or of the file `name`. SPW_ECONFIG: there is none; values that are too few or do not grow; texts that are not as many;
 * a command without words; a key that stands twice; nothing to measure; a name that is too long. SPW_EIO: no such file. */
SPW_MUST_CHECK spw_status spw_growth_axis_read(const char *name, spw_growth_axis *out);

/* Names of the axes that come with the program, ended by NULL. */
extern const char *const spw_growth_names[];

#endif
