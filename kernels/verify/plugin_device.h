/* A kernel of a plugin on the GPU. */
#ifndef SPW_KERNELS_VERIFY_PLUGIN_DEVICE_H
#define SPW_KERNELS_VERIFY_PLUGIN_DEVICE_H

#include "kernels/verify/plugin_run.h"

/* A spw_plugin_runner: copies the operands to the device, calls, waits, and copies the result into c->call.output.
 * SPW_EMISMATCH: a guard band of the device or an input was written to; SPW_EDEVICE. */
SPW_MUST_CHECK spw_status spw_plugin_run_on_device(spw_kernel_function *function, const spw_kernel_case *c,
                                                   int *answer);

#endif
