/* The parts of `spillway trace`; argv[0] is what argp calls the program. */
#ifndef SPW_SIM_COMMAND_TRACE_COMMAND_TRACE_H
#define SPW_SIM_COMMAND_TRACE_COMMAND_TRACE_H

#include "base/status.h"

SPW_MUST_CHECK spw_status spw_command_trace_generate(int argc, char **argv);
SPW_MUST_CHECK spw_status spw_command_trace_info(int argc, char **argv);
SPW_MUST_CHECK spw_status spw_command_trace_verify(int argc, char **argv);
SPW_MUST_CHECK spw_status spw_command_trace_import(int argc, char **argv);
SPW_MUST_CHECK spw_status spw_command_trace_merge(int argc, char **argv);
SPW_MUST_CHECK spw_status spw_command_trace_slice(int argc, char **argv);

#endif
