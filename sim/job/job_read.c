#include "sim/job/job_override.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/read/preset.h"
#include "sim/read/settings.h"

#include <stdio.h>
#include <string.h>

spw_status spw_job_parse(const char *where, const char *folder, const char *text, size_t length,
                         spw_job *out) {
    const spw_job_place at = {.where = where, .folder = folder};
    return spw_job_parse_at(&at, text, length, out);
}

spw_status spw_job_read(const char *path, spw_job *out) { return spw_job_read_with(path, NULL, 0, out); }

spw_status spw_job_read_with(const char *path, const spw_job_override *override, size_t overrides,
                             spw_job *out) {
    static const char bare[] =
        "parallel: {expert: 0, fsdp: 0}\nbatch: {sequences_per_gpu: 1, sequence_length: 4096}\n";
    spw_status status = SPW_OK;
    char *text = NULL, *folder = NULL;
    size_t length = 0;
    spw_job_place at = {
        .where = "command line", .bare = path == NULL, .override = override, .overrides = overrides};
    if (path == NULL) return spw_job_parse_at(&at, bare, sizeof bare - 1, out);
    if (path[strspn(path, " \t\r\n")] == '{') { /* the job itself */
        at.where = "--job {...}";
        return strlen(path) < SPW_SETTINGS_BYTES
                   ? spw_job_parse_at(&at, path, strlen(path), out)
                   : spw_fail(SPW_ECONFIG, "--job {...}: a job of %zu bytes; at most %d are read",
                              strlen(path), SPW_SETTINGS_BYTES - 1);
    }
    const char *slash = strrchr(path, '/');
    size_t folder_size = slash != NULL ? (size_t)(slash - path) + 1 : 1;
    const char *const other = spw_preset_other_kind(path);
    if (other != NULL)
        SPW_TRY(spw_fail(
            SPW_ECONFIG,
            "%s: %s; a job is a text of 'key: value' lines (examples are in sim/jobs/), and a trace is "
            "not said by --job: write spillway replay TRACE.h5 --job JOB.yaml, or spillway plan --job "
            "JOB.yaml --trace TRACE.h5",
            path, other));
    SPW_TRY(spw_file_read(path, SPW_SETTINGS_BYTES, &text, &length));
    SPW_TRY(SPW_ALLOC(folder_size + 1, &folder));
    memcpy(folder, path, folder_size - 1);
    if (slash == path) folder[0] = '/'; /* "/job.yaml" */
    at.where = path;
    at.folder = folder;
    status = spw_job_parse_at(&at, text, length, out);

cleanup:
    spw_free(folder);
    spw_free(text);
    return status;
}
