/* What the parts of `spillway calibrate` take alike: tables, whose rows to fit, what to leave out, where to write. */
#ifndef SPW_SIM_CALIBRATE_CALIBRATE_OPTIONS_H
#define SPW_SIM_CALIBRATE_CALIBRATE_OPTIONS_H

#include "base/status.h"
#include "sim/calibrate/calibrate_memory.h"
#include "sim/calibrate/calibrate_time.h"
#include "sim/print/table.h"
#include "sim/score/scorer.h"

#include <argp.h>

enum {
    SPW_CALIBRATE_STACK = 0x100,
    SPW_CALIBRATE_FROM,
    SPW_CALIBRATE_OUTPUT,
    SPW_CALIBRATE_LEAVE_OUT,
    SPW_CALIBRATE_FORMAT
};

typedef struct spw_calibrate_options {
    const char *table[SPW_SCORE_TABLES], *left_out[SPW_CALIBRATE_LEFT_OUT], *stack[SPW_CALIBRATE_TIME_STACKS];
    size_t tables, left_outs, stacks;
    size_t most_stacks; /* set before; with 1 the last --stack counts */
    bool needs_stack;   /* set before */
    const char *from, *output, *format_text;
    spw_format format;
} spw_calibrate_options;

#define SPW_CALIBRATE_LEAVE_OUT_ROW \
    { "leave-out", SPW_CALIBRATE_LEAVE_OUT, "ID", 0, "a row that is not to be fitted, may be repeated", 0 }
#define SPW_CALIBRATE_FORMAT_ROW \
    { \
        "format", SPW_CALIBRATE_FORMAT, "table|json|csv", 0, \
            "how to print the coefficients (default: table, with residuals)", 0 \
    }

/* `rows` are those of the part, with the keys above. */
SPW_MUST_CHECK spw_status spw_calibrate_parse(const struct argp_option *rows, const char *args_doc,
                                              const char *doc, int argc, char **argv,
                                              spw_calibrate_options *options);

/* "folder/name.yaml". */
SPW_MUST_CHECK spw_status spw_calibrate_path(const char *folder, const char *name, size_t size, char *path);

#endif
