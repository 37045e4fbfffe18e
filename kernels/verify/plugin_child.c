#include "kernels/verify/plugin_child.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { EXIT_LEFT = 1, EXIT_UNHEARD = 5 };

/* Of the child, for what runs when a plugin ends it. */
static struct {
    int pipe;
    spw_plugin_word word; /* the one under way */
} own;

static void say(spw_plugin_says says) {
    own.word.says = says;
    const ssize_t done =
        write(own.pipe, &own.word, sizeof own.word); /* less than PIPE_BUF: whole or not at all */
    if (done != (ssize_t)sizeof own.word) _exit(EXIT_UNHEARD);
}

static void say_message(spw_plugin_says says, spw_status status, const char *message) {
    own.word.status = status;
    (void)snprintf(own.word.message, sizeof own.word.message, "%s", message);
    say(says);
}

static void left_by_exit(void) {
    say_message(SPW_PLUGIN_LEAVES, SPW_EMISMATCH, "it called exit()");
    _exit(EXIT_LEFT);
}

static void left_by_thread(void *unused) {
    (void)unused;
    say_message(SPW_PLUGIN_LEAVES, SPW_EMISMATCH, "it ended its thread (pthread_exit)");
    _exit(EXIT_LEFT);
}

/* --- The library --- */

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

/* --- Cases --- */

static int call_kernel(spw_kernel_function *function, const spw_kernel_call *call) {
    int answer = 0;
    pthread_cleanup_push(left_by_thread, NULL);
    answer = function(call);
    pthread_cleanup_pop(0);
    return answer;
}

static spw_status run_made(const spw_plugin_work *work, spw_kernel_function *function, spw_kernel_case *c) {
    spw_plugin_word *word = &own.word;
    spw_status status = SPW_OK;
    int answer = 0;
    (void)snprintf(word->name, sizeof word->name, "%s", c->name);
    say(SPW_PLUGIN_CALLS);
    if (work->request->run == NULL) {
        const spw_kernel_call call = c->call;
        answer = call_kernel(function, &call);
    } else {
        status = work->request->run(function, c, &answer);
    }
    (void)fflush(NULL); /* what the plugin printed: this process ends without */
    word->left_out = status == SPW_OK && answer != 0;
    word->status = status == SPW_OK && answer == 0 ? spw_kernel_case_judge(c, &word->judged) : status;
    return status == SPW_EMISMATCH ? SPW_OK : status; /* after an error of the device there is no next case */
}

/* The case of own.word. */
static spw_status run_case(const spw_plugin_work *work, spw_kernel_function *function) {
    spw_plugin_word *word = &own.word;
    spw_kernel_case c;
    word->left_out = word->skipped = false;
    word->judged = (spw_judged){.elements = 0};
    word->name[0] = word->message[0] = '\0';
    say(SPW_PLUGIN_BEGINS);
    spw_status status = spw_kernel_case_create(word->kernel, word->type, work->record, word->number, &c);
    if (status == SPW_ENOMEM) { /* a machine without room for a large case */
        word->skipped = true;
        say_message(SPW_PLUGIN_VERDICT, SPW_OK, spw_last_error());
        return SPW_OK;
    }
    if (status != SPW_OK) return status;
    status = run_made(work, function, &c);
    say_message(SPW_PLUGIN_VERDICT, word->status, word->status != SPW_OK ? spw_last_error() : "");
    spw_kernel_case_destroy(&c);
    return status;
}

/* How many cases of a kernel there are for this request, in one type. */
static size_t cases_of(const spw_plugin_work *work, spw_kernel kernel) {
    const bool sparse = work->request->run == NULL && !work->request->small;
    return spw_kernel_cases(kernel, work->record) +
           (sparse ? spw_kernel_sparse_cases(kernel, work->record) : 0);
}

/* The range of a kernel's cases that are asked for. */
static spw_status range_of(const spw_plugin_work *work, spw_kernel kernel, size_t *first, size_t *end) {
    const spw_plugin_request *request = work->request;
    *first = 0;
    *end = cases_of(work, kernel);
    if (*end == 0 && request->kernel != NULL)
        return spw_fail(SPW_EARG, "--record: it has no logits, so no cases of %s",
                        spw_plugin_kernel_name(kernel));
    if (*end == 0 || request->number < 0) return SPW_OK;
    if ((size_t)request->number >= *end)
        return spw_fail(SPW_EARG, "--case %ld: %s has the cases 0 to %zu", request->number,
                        spw_plugin_kernel_name(kernel), *end - 1);
    *first = (size_t)request->number;
    *end = *first + 1;
    return SPW_OK;
}

static spw_status run_kernel(const spw_plugin_work *work, const spw_plugin_table *table, spw_kernel kernel,
                             size_t *position) {
    size_t first = 0, end = 0;
    spw_status status = range_of(work, kernel, &first, &end);
    for (int type = 0; type < SPW_TYPES; type++) {
        for (size_t number = first; number < end && status == SPW_OK; number++) {
            const size_t at = (*position)++;
            if (at < work->first || (table->types & 1 << type) == 0 || work->stopped[kernel][type]) continue;
            own.word.position = at;
            own.word.kernel = kernel, own.word.type = (spw_type)type, own.word.number = number;
            status = run_case(work, table->function[kernel]);
        }
    }
    return status;
}

static spw_status run_all(const spw_plugin_work *work) {
    const spw_plugin_table *table = NULL;
    size_t position = 0;
    spw_status status = load(work->request, &table);
    if (status != SPW_OK || table == NULL) return status;
    say(SPW_PLUGIN_LOADED);
    for (int kernel = 0; kernel < SPW_KERNELS && status == SPW_OK; kernel++) {
        if (table->function[kernel] == NULL) continue;
        if (work->kernel != SPW_KERNELS && kernel != (int)work->kernel) continue;
        own.word.any = true;
        status = run_kernel(work, table, (spw_kernel)kernel, &position);
    }
    return status;
}

/* A kernel that takes all memory ends itself, not its neighbours; and nobody waits for one whose parent is gone. */
static void be_modest(void) {
    const struct rlimit none = {0, 0};
    const int file = open("/proc/self/oom_score_adj", O_WRONLY);
    if (file >= 0 && write(file, "1000", 4) < 0) errno = 0;
    if (file >= 0) (void)close(file);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void spw_plugin_serve(const spw_plugin_work *work, int pipe) {
    own.pipe = pipe;
    own.word = (spw_plugin_word){.tag = work->tag};
    be_modest();
    (void)atexit(left_by_exit);
    const spw_status status = run_all(work);
    (void)fflush(NULL);
    say_message(SPW_PLUGIN_DONE, status, status != SPW_OK ? spw_last_error() : "");
    _exit(0);
}
