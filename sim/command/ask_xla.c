#include "sim/command/ask_xla.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/frameworks/flags.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/print/json_values.h"
#include "sim/read/preset.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern const spw_preset spw_ask_files[];

/* Names of the script's GPUS. */
static const char *generation_of(const spw_cluster *cluster) {
    if (cluster->gpu_generation == SPW_GPU_HOPPER) return "hopper";
    if (cluster->gpu_generation == SPW_GPU_BLACKWELL) return "blackwell";
    const bool other = cluster->gpu_generation == SPW_GPU_OTHER && cluster->gpu_vendor == SPW_VENDOR_NVIDIA;
    return other ? "ampere" : NULL;
}

/* --- The request --- */

static spw_status request_json(const spw_ask_request *r, const spw_flag_draft *flags, char **out) {
    const spw_cluster *cluster = &r->job->cluster;
    const spw_device_budget budget = spw_device_budget_of(r->job, r->scheme);
    spw_json json = {.failed = false};
    json_t *root = json_object(), *settings = json_object();
    char *text = NULL;
    for (size_t i = 0; i < flags->flags; i++) /* pool_bytes says what the environment would */
        if (strncmp(flags->flag[i].name, "env.", 4) != 0)
            spw_json_put(&json, settings, flags->flag[i].name, spw_json_text(flags->flag[i].value));
    spw_json_put(&json, root, "settings", settings);
    spw_json_put(&json, root, "nodes", spw_json_count(cluster->nodes));
    spw_json_put(&json, root, "gpus_per_node", spw_json_count(cluster->gpus_per_node));
    spw_json_put(&json, root, "generation", spw_json_text(generation_of(cluster)));
    spw_json_put(&json, root, "pool_bytes", spw_json_real((double)spw_device_budget_bytes(&budget)));
    spw_json_put(&json, root, "hbm_bytes_per_s", spw_json_real(cluster->hbm_bytes_per_s.value));
    spw_json_put(&json, root, "maxtext", r->maxtext != NULL ? spw_json_text(r->maxtext) : json_null());
    if (!json.failed) text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    *out = text;
    return text != NULL ? SPW_OK : spw_fail(SPW_ENOMEM, "out of memory for the request to Python");
}

/* --- The process --- */

static void become_python(int pipe, const char *python, char *request) {
    char *arguments[] = {(char *)python, (char *)"-c", (char *)spw_ask_files[0].text, request, NULL};
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (dup2(pipe, STDOUT_FILENO) >= 0) (void)execvp(python, arguments);
    _exit(127);
}

static spw_status read_all(int pipe, char **out) {
    enum { MOST = 1 << 20 };
    size_t used = 0;
    char *text = NULL;
    spw_status status = SPW_ALLOC(MOST, &text);
    while (status == SPW_OK && used < MOST - 1) {
        const ssize_t got = read(pipe, text + used, MOST - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        used += (size_t)got;
    }
    *out = text;
    return status;
}

static spw_status run_python(const char *python, char *request, char **reply) {
    int ends[2] = {-1, -1}, state = 0;
    if (pipe(ends) != 0) return spw_fail(SPW_EIO, "ask-xla: no pipe: %s", strerror(errno));
    (void)fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        become_python(ends[1], python, request);
    }
    (void)close(ends[1]);
    spw_status status = child < 0 ? spw_fail(SPW_EIO, "ask-xla: no child process: %s", strerror(errno))
                                  : read_all(ends[0], reply);
    (void)close(ends[0]);
    while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (status != SPW_OK) return status;
    if (WIFSIGNALED(state))
        return spw_fail(SPW_EIO, "%s: ended by signal %d (%s): out of memory, or an error of XLA", python,
                        WTERMSIG(state), strsignal(WTERMSIG(state)));
    if (WEXITSTATUS(state) == 127)
        return spw_fail(SPW_EIO,
                        "%s: does not start; name a Python that has MaxText and JAX with --python, as in "
                        "--python venv/bin/python",
                        python);
    if (WEXITSTATUS(state) == 0) return SPW_OK;
    return spw_fail(SPW_EIO,
                    "%s: MaxText or XLA ended without an answer (exit status %d); what it said last stands "
                    "above. It needs jax[cuda12] of 0.10 or later and MaxText: docs/ask_xla.md",
                    python, WEXITSTATUS(state));
}

/* --- The answer --- */

static bool take_text(const json_t *root, const char *key, char *out, size_t size) {
    const char *text = json_string_value(json_object_get(root, key));
    if (text == NULL || strlen(text) + 5 >= size) return false;
    spw_plain_text(text, out, size);
    return true;
}

static bool take_bytes(const json_t *root, const char *key, double *out) {
    const json_t *value = json_object_get(root, key);
    *out = json_number_value(value);
    return json_is_number(value) && *out >= 1.0 && *out < 1e18;
}

static spw_status read_answer(const char *python, const char *reply, spw_asked *out) {
    json_error_t error;
    json_t *root = json_loads(reply, JSON_DISABLE_EOF_CHECK, &error);
    const json_t *item = NULL;
    size_t index = 0;
    const bool good = take_bytes(root, "argument_bytes", &out->argument_bytes) &&
                      take_bytes(root, "temporary_bytes", &out->temporary_bytes) &&
                      take_text(root, "peak_gib", out->peak_gib, sizeof out->peak_gib) &&
                      take_text(root, "jax", out->jax, sizeof out->jax) &&
                      take_text(root, "maxtext", out->maxtext, sizeof out->maxtext) &&
                      take_text(root, "attention", out->attention, sizeof out->attention);
    out->seconds = json_number_value(json_object_get(root, "seconds"));
    json_array_foreach(json_object_get(root, "left_out"), index, item) {
        const size_t used = strlen(out->left_out);
        if (json_is_string(item))
            (void)snprintf(out->left_out + used, sizeof out->left_out - used, "%s%.40s", used > 0 ? " " : "",
                           json_string_value(item));
    }
    json_decref(root);
    if (good) return SPW_OK;
    return spw_fail(SPW_EIO,
                    "%s: its answer '%.60s' is not that of ask_xla.py: a JSON object with argument_bytes, "
                    "temporary_bytes, peak_gib, jax, maxtext and attention",
                    python, reply);
}

/* --- All of it --- */

/* A table of runs has no columns for these. */
static spw_status check(const spw_job *job) {
    if (generation_of(&job->cluster) == NULL)
        return spw_fail(SPW_ECONFIG,
                        "ask-xla: cluster '%s' has no GPUs of NVIDIA; XLA is asked for those alone",
                        job->cluster.name);
    if (job->tensor > 1 || job->context > 1)
        return spw_fail(SPW_ECONFIG,
                        "ask-xla: tensor %zu and context %zu; a table of compiled programs has expert, fsdp "
                        "and pipeline alone, so write 1",
                        job->tensor, job->context);
    return SPW_OK;
}

spw_status spw_ask_xla(const spw_ask_request *r, spw_asked *out) {
    spw_flag_draft *flags = NULL;
    char *request = NULL, *reply = NULL, *text = NULL;
    spw_status status = SPW_OK;
    memset(out, 0, sizeof *out);
    SPW_TRY(check(r->job));
    SPW_TRY(SPW_ALLOC(1, &flags));
    SPW_TRY(spw_flags_fill(&spw_framework_maxtext, r->job, r->scheme, flags, &text));
    (void)snprintf(out->unsaid, sizeof out->unsaid, "%s", flags->differences);
    SPW_TRY(request_json(r, flags, &request));
    SPW_TRY(run_python(r->python, request, &reply));
    SPW_TRY(read_answer(r->python, reply, out));

cleanup:
    free(text);
    free(request);
    spw_free(reply);
    spw_free(flags);
    return status;
}
