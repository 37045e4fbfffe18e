/* What the parts of `spillway trace` that read one file take alike: the file, and how to print. */
#ifndef SPW_SIM_COMMAND_TRACE_TRACE_OPTIONS_H
#define SPW_SIM_COMMAND_TRACE_TRACE_OPTIONS_H

#include "base/status.h"
#include "sim/print/table.h"

#include <argp.h>
#include <stdio.h>

typedef struct spw_trace spw_trace;
typedef struct spw_trace_info spw_trace_info;

typedef struct spw_trace_options {
    const char *path, *format_text;
} spw_trace_options;

enum { SPW_TRACE_OPTION_FORMAT = 0x200, SPW_TRACE_OPTION_OWN };

/* A parser of TRACE.h5 and --format, for `children`; its input is the spw_trace_options. */
extern const struct argp spw_trace_argp;

/* As asked; a table when nothing was. */
SPW_MUST_CHECK spw_status spw_trace_options_format(const spw_trace_options *options, spw_format *out);

/* One line: what a trace holds. */
void spw_print_trace_line(const char *path, const spw_trace_info *info, FILE *out);
/* More lines about a trace that was just written. */
typedef spw_status spw_trace_remark(spw_trace *trace, FILE *out);
/* The line and the remark (NULL: none) about a trace that was just written, to stderr. They are made in a child process that
 * reads the trace again, and what fails there fails nothing: the trace is there. */
void spw_print_trace_written(const char *path, spw_trace_remark *remark);

#endif
