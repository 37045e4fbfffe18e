/* A stranger's file is first read by a child process. HDF5 1.10 can be made to crash or to loop for ever by forged
 * metadata, above all by texts of variable length (its global heap); a child that does not come back means that the file
 * is refused. The texts come through a pipe, so that this process never reads that heap at all. */
#include "traces/trace_internal.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CPU_SECONDS = 5, REPLY_BYTES = (SPW_TRACE_TEXTS + 2) * (SPW_HDF5_MAX_TEXT + 64) };

static bool put(int pipe, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = write(pipe, at, bytes);
        if (done <= 0) return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

static void put_text(int pipe, const char *text) {
    size_t length = strlen(text);
    (void)(put(pipe, &length, sizeof length) && put(pipe, text, length));
}

/* The child: reads everything that spw_trace_open() will read, and more. */
static void answer(spw_trace *trace, int pipe) {
    const struct rlimit seconds = {CPU_SECONDS, CPU_SECONDS};
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CPU, &seconds);
    (void)setrlimit(RLIMIT_CORE, &none);
    spw_status status = spw_hdf5_open_file(trace->path, &trace->file);
    bool opened = status == SPW_OK;
    if (status == SPW_OK) status = spw_trace_read_texts(trace);
    if (status == SPW_OK) status = spw_trace_read_header(trace);
    if (opened && status == SPW_EFORMAT) status = spw_fail_within(status, "%s", trace->path);
    int code = (int)status;
    (void)put(pipe, &code, sizeof code);
    put_text(pipe, status == SPW_OK ? "" : spw_last_error());
    for (size_t i = 0; status == SPW_OK && i < SPW_TRACE_TEXTS; i++) put_text(pipe, trace->text[i]);
}

/* Takes a text from the reply; "" is a text too. */
static spw_status take_text(const char **at, const char *end, char **out) {
    size_t length = 0;
    if ((size_t)(end - *at) < sizeof length) return spw_fail(SPW_EFORMAT, "damaged");
    memcpy(&length, *at, sizeof length);
    *at += sizeof length;
    if (length > (size_t)(end - *at)) return spw_fail(SPW_EFORMAT, "damaged");
    spw_status status = SPW_ALLOC(length + 1, out);
    if (status == SPW_OK) memcpy(*out, *at, length);
    *at += length;
    return status;
}

static spw_status read_reply(spw_trace *trace, const char *reply, size_t bytes) {
    spw_status status = SPW_OK;
    const char *at = reply + sizeof(int), *end = reply + bytes;
    char *message = NULL;
    int code = 0;
    memcpy(&code, reply, sizeof code);
    SPW_TRY(take_text(&at, end, &message));
    if (code != SPW_OK) SPW_TRY(spw_fail((spw_status)code, "%s", message));
    for (size_t i = 0; i < SPW_TRACE_TEXTS; i++) SPW_TRY(take_text(&at, end, &trace->text[i]));

cleanup:
    spw_free(message);
    return status;
}

static size_t read_all(int pipe, char *reply) {
    size_t used = 0;
    while (used < REPLY_BYTES) {
        ssize_t got = read(pipe, reply + used, REPLY_BYTES - used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        used += (size_t)got;
    }
    return used;
}

spw_status spw_trace_probe(spw_trace *trace) {
    spw_status status = SPW_OK;
    char *reply = NULL;
    int ends[2] = {-1, -1}, state = 0;
    SPW_TRY(SPW_ALLOC(REPLY_BYTES, &reply));
    if (pipe(ends) != 0) SPW_TRY(spw_fail(SPW_EIO, "%s: no pipe: %s", trace->path, strerror(errno)));
    (void)fflush(NULL); /* or the child might print what waits in a buffer here */
    pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        answer(trace, ends[1]);
        _exit(0);
    }
    (void)close(ends[1]);
    if (child < 0) SPW_TRY(spw_fail(SPW_EIO, "%s: no child process: %s", trace->path, strerror(errno)));
    size_t bytes = read_all(ends[0], reply);
    (void)close(ends[0]);
    ends[0] = -1;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (bytes < sizeof(int) || !WIFEXITED(state) || WEXITSTATUS(state) != 0) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: damaged: the HDF5 library fails on it (%s)", trace->path,
                         WIFSIGNALED(state) ? strsignal(WTERMSIG(state)) : "no answer"));
    }
    SPW_TRY(read_reply(trace, reply, bytes));

cleanup:
    if (ends[0] >= 0) (void)close(ends[0]);
    spw_free(reply);
    return status;
}
