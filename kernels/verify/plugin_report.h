/* What `spillway verify --plugin` and `spillway-verify --plugin` print: a line a kernel and type, and every case that failed with the
 * command that runs it again. */
#ifndef SPW_KERNELS_VERIFY_PLUGIN_REPORT_H
#define SPW_KERNELS_VERIFY_PLUGIN_REPORT_H

#include "kernels/verify/plugin_run.h"

#include <stdio.h>

/* `program`: how the command begins. SPW_EMISMATCH when a case failed or none was run; else as spw_plugin_run(). */
SPW_MUST_CHECK spw_status spw_plugin_report(const spw_plugin_request *request, const char *program,
                                            FILE *out);

#endif
