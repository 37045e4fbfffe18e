/* The work of a child process, done here: a fuzz target that is linked with this sees what a child would take with it. Leaves
 * behind what a child leaves to its end, so leaks mean nothing. */
#include "base/child.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* As in base/child.c, in whose place this stands. */
const char *__asan_default_suppressions(void);  /* NOLINT(bugprone-reserved-identifier) */
const char *__asan_default_suppressions(void) { /* NOLINT(bugprone-reserved-identifier) */
    return "interceptor_via_lib:libhdf5\n";
}

spw_status spw_child_run(const char *path, unsigned cpu_seconds, size_t most_bytes, spw_child_work work,
                         void *context, char **reply, size_t *bytes) {
    char *text = NULL;
    size_t length = 0;
    (void)cpu_seconds;
    *reply = NULL;
    *bytes = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return spw_fail(SPW_ENOMEM, "%s: no stream", path);
    spw_status status = work(context, out);
    if (fclose(out) != 0 || length > most_bytes) status = spw_fail(SPW_EFORMAT, "%s: damaged", path);
    if (status == SPW_OK) status = SPW_ALLOC(length + 1, reply);
    if (status == SPW_OK) {
        memcpy(*reply, text, length);
        *bytes = length;
    }
    free(text);
    return status;
}
