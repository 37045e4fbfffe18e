/* A plugin runs in a child process, which says what it does through a pipe: what does not come back, or ends its process, fails its case
 * and takes nobody else with it. The parent believes only words that it has read to the end. */
#ifndef SPW_KERNELS_VERIFY_PLUGIN_CHILD_H
#define SPW_KERNELS_VERIFY_PLUGIN_CHILD_H

#include "kernels/verify/plugin_run.h"

typedef enum spw_plugin_says {
    SPW_PLUGIN_LOADED,  /* the library, and its table */
    SPW_PLUGIN_BEGINS,  /* the case `position`: its operands are made next */
    SPW_PLUGIN_CALLS,   /* its kernel is called next */
    SPW_PLUGIN_VERDICT, /* the case's */
    SPW_PLUGIN_LEAVES,  /* the plugin ends the process; message: how */
    SPW_PLUGIN_DONE     /* all cases, or a status that ends all */
} spw_plugin_says;

typedef struct spw_plugin_word {
    uint64_t tag; /* of this child */
    spw_plugin_says says;
    size_t position; /* of the case among those of all kernels and types */
    bool any;        /* DONE: the plugin has a kernel to run */
    bool left_out, skipped;
    spw_kernel kernel;
    spw_type type;
    size_t number;
    spw_status status;
    spw_judged judged;
    char name[sizeof(((spw_kernel_case *)NULL)->name)], message[1024];
} spw_plugin_word;

/* Which cases a child runs. */
typedef struct spw_plugin_work {
    const spw_plugin_request *request;
    const spw_record *record;             /* NULL: made up */
    spw_kernel kernel;                    /* SPW_KERNELS: all */
    size_t first;                         /* position of the first case */
    bool stopped[SPW_KERNELS][SPW_TYPES]; /* kernels, by type, that are not run any more */
    uint64_t tag;
} spw_plugin_work;

/* Runs them and says so; does not return. */
_Noreturn void spw_plugin_serve(const spw_plugin_work *work, int pipe);

#endif
