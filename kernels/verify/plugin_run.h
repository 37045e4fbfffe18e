/* Runs the kernels of a plugin (plugin.h) over the cases of kernel_case.h, in host memory or on the GPU. */
#ifndef SPW_KERNELS_VERIFY_PLUGIN_RUN_H
#define SPW_KERNELS_VERIFY_PLUGIN_RUN_H

#include "base/status.h"
#include "kernels/verify/judge.h"
#include "kernels/verify/kernel_case.h"
#include "kernels/verify/plugin.h"

#include <stdbool.h>

enum { SPW_PLUGIN_CASE_SECONDS = 120 }; /* unless the user says otherwise */

/* Calls the kernel on the operands of a case; *answer is what it returned. */
typedef spw_status spw_plugin_runner(spw_kernel_function *function, const spw_kernel_case *c, int *answer);

typedef struct spw_plugin_request {
    const char *path;       /* of the shared library; it ends in .so or is found as dlopen() finds it */
    spw_plugin_runner *run; /* of kernels that take device memory (plugin_device.h); NULL: host memory */
    const char *kernel;     /* NULL: every one that is there */
    const char *record;     /* path of a routing record, whose choices the cases have; NULL: made up */
    long number;            /* below 0: every case */
    bool small;             /* no sparse cases (kernel_sparse.h) */
    unsigned case_seconds;  /* a case with more processor time, or that sleeps as long, fails */
} spw_plugin_request;

/* One case of one kernel in one type. */
typedef struct spw_plugin_verdict {
    spw_kernel kernel;
    spw_type type;
    size_t number;
    const char *name;
    spw_status status;   /* SPW_OK; SPW_EMISMATCH; SPW_EDEVICE: a launch failed */
    const char *message; /* of a status that is not SPW_OK */
    bool left_out;       /* the kernel said that the case is not for it */
    bool skipped;        /* not run; message: why */
    spw_judged judged;
} spw_plugin_verdict;

/* `take` is called with each verdict. The plugin runs in child processes: a case in which it ends its process, crashes or does not come
 * back fails, and the next cases have a new one; after two that did not come back a kernel has no more cases in that type. SPW_EARG: no
 * plugin or one that ends its process as it is loaded, another version of the interface, other memory, no such kernel or case; or as
 * spw_record_read(). SPW_EMISMATCH: it ended its process between two cases. */
SPW_MUST_CHECK spw_status spw_plugin_run(const spw_plugin_request *request,
                                         void (*take)(void *state, const spw_plugin_verdict *verdict),
                                         void *state);

const char *spw_type_name(spw_type type);

#endif
