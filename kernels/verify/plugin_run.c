#include "kernels/verify/plugin_run.h"

#include <dlfcn.h>
#include <string.h>

static const char *const type_names[] = {[SPW_TYPE_BF16] = "bf16", [SPW_TYPE_FLOAT] = "float"};
enum { TYPES = sizeof type_names / sizeof *type_names };

const char *spw_type_name(spw_type type) { return type_names[type]; }

static spw_status load(const spw_plugin_request *request, const spw_plugin_table **out) {
    void *library = dlopen(request->path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return spw_fail(SPW_EARG, "--plugin: %s", dlerror());
    const spw_plugin_table *(*plugin)(void) = NULL;
    *(void **)&plugin = dlsym(library, "spw_plugin");
    if (plugin == NULL)
        return spw_fail(SPW_EARG, "--plugin %s: it has no function spw_plugin (kernels/verify/plugin.h)",
                        request->path);
    *out = plugin();
    if (*out == NULL || (*out)->version != SPW_PLUGIN_VERSION)
        return spw_fail(SPW_EARG, "--plugin %s: its version is %d; this program knows %d", request->path,
                        *out != NULL ? (*out)->version : 0, SPW_PLUGIN_VERSION);
    if ((*out)->memory != (request->run != NULL ? SPW_MEMORY_DEVICE : SPW_MEMORY_HOST))
        return spw_fail(SPW_EARG, "--plugin %s: its kernels take %s", request->path,
                        (*out)->memory == SPW_MEMORY_HOST
                            ? "host memory; spillway verify --plugin would be right"
                            : "device memory; spillway-verify --plugin on a GPU machine would be right");
    return SPW_OK;
}

/* --- One case --- */

/* What every case is run with. */
typedef struct run {
    const spw_plugin_request *request;
    const spw_plugin_table *plugin;
    const spw_record *record;
    void (*take)(void *state, const spw_plugin_verdict *verdict);
    void *state;
} run;

static spw_status run_case(const run *r, spw_plugin_verdict *verdict) {
    const spw_plugin_request *request = r->request;
    spw_kernel_case c;
    spw_kernel_function *function = r->plugin->function[verdict->kernel];
    int answer = 0;
    spw_status status =
        spw_kernel_case_create(verdict->kernel, verdict->type, r->record, verdict->number, &c);
    if (status != SPW_OK) return status;
    if (request->run == NULL) {
        const spw_kernel_call call = c.call;
        answer = function(&call);
    } else {
        status = request->run(function, &c, &answer);
    }
    verdict->name = c.name;
    verdict->left_out = status == SPW_OK && answer != 0;
    verdict->judged = (spw_judged){.elements = 0};
    verdict->status = status == SPW_OK && answer == 0 ? spw_kernel_case_judge(&c, &verdict->judged) : status;
    verdict->message = verdict->status != SPW_OK ? spw_last_error() : "";
    r->take(r->state, verdict);
    spw_kernel_case_destroy(&c);
    return status == SPW_EMISMATCH ? SPW_OK : status; /* after an error of the device there is no next case */
}

static spw_status run_kernel(const run *r, spw_kernel kernel) {
    const spw_plugin_request *request = r->request;
    const size_t cases = spw_kernel_cases(kernel, r->record);
    if (cases == 0 && request->kernel == NULL) return SPW_OK;
    if (cases == 0)
        return spw_fail(SPW_EARG, "--record: it has no logits, so no cases of %s",
                        spw_plugin_kernel_name(kernel));
    if (request->number >= (long)cases)
        return spw_fail(SPW_EARG, "--case %ld: %s has the cases 0 to %zu", request->number,
                        spw_plugin_kernel_name(kernel), cases - 1);
    const size_t first = request->number >= 0 ? (size_t)request->number : 0;
    const size_t end = request->number >= 0 ? first + 1 : cases;
    spw_status status = SPW_OK;
    for (int type = 0; type < TYPES; type++) {
        if ((r->plugin->types & 1 << type) == 0) continue;
        for (size_t number = first; number < end && status == SPW_OK; number++) {
            spw_plugin_verdict verdict = {.kernel = kernel, .type = (spw_type)type, .number = number};
            status = run_case(r, &verdict);
        }
    }
    return status;
}

spw_status spw_plugin_run(const spw_plugin_request *request,
                          void (*take)(void *state, const spw_plugin_verdict *verdict), void *state) {
    spw_record record = {.ranks = 0};
    run r = {.request = request, .take = take, .state = state};
    spw_kernel wanted = SPW_KERNELS;
    bool any = false;
    spw_status status = SPW_OK;
    if (request->kernel != NULL) SPW_TRY(spw_kernel_parse(request->kernel, &wanted));
    if (request->record != NULL) {
        SPW_TRY(spw_record_read(request->record, &record));
        r.record = &record;
    }
    SPW_TRY(load(request, &r.plugin));
    for (int kernel = 0; r.plugin != NULL && kernel < SPW_KERNELS; kernel++) {
        if (r.plugin->function[kernel] == NULL || (request->kernel != NULL && kernel != (int)wanted))
            continue;
        any = true;
        SPW_TRY(run_kernel(&r, (spw_kernel)kernel));
    }
    if (!any)
        SPW_TRY(spw_fail(SPW_EARG, "--plugin %s: it has no kernel%s%s to run", request->path,
                         request->kernel != NULL ? " " : "", request->kernel != NULL ? request->kernel : ""));

cleanup:
    spw_record_destroy(&record);
    return status;
}
