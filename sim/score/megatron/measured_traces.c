#include "sim/score/megatron/measured_traces.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct file {
    char *path, *name; /* name: small letters and digits of the file's */
    spw_trace *trace;  /* NULL until it is asked for */
} file;

struct spw_measured_traces {
    file *file;
    size_t files;
};

/* Small letters and digits of `text`; false when they are more than `size` holds. */
static bool plain_name(const char *text, size_t length, char *out, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i])) continue;
        if (used + 1 >= size) return false;
        out[used++] = (char)tolower((unsigned char)text[i]);
    }
    out[used] = '\0';
    return true;
}

/* --- The folder --- */

static bool is_trace(const char *name) {
    const size_t length = strlen(name);
    return length > 3 && name[0] != '.' && strcmp(name + length - 3, ".h5") == 0;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const file *)a)->path, ((const file *)b)->path);
}

static spw_status add_file(const char *folder, const char *name, file *out) {
    const size_t length = strlen(name), path = strlen(folder) + 1 + length + 1;
    spw_status status = SPW_OK;
    *out = (file){NULL, NULL, NULL};
    SPW_TRY(SPW_ALLOC(path, &out->path));
    SPW_TRY(SPW_ALLOC(length + 1, &out->name));
    (void)snprintf(out->path, path, "%s/%s", folder, name);
    (void)plain_name(name, length, out->name, length + 1);

cleanup:
    return status;
}

static size_t count_traces(DIR *folder) {
    size_t count = 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        count += is_trace(entry->d_name) ? 1 : 0;
    rewinddir(folder);
    return count;
}

static spw_status list_traces(const char *folder, DIR *listed, spw_measured_traces *out) {
    const size_t most = count_traces(listed);
    spw_status status = SPW_ALLOC(most, &out->file);
    for (const struct dirent *entry = readdir(listed); entry != NULL && out->files < most && status == SPW_OK;
         entry = readdir(listed)) {
        if (is_trace(entry->d_name)) status = add_file(folder, entry->d_name, &out->file[out->files++]);
    }
    return status;
}

spw_status spw_measured_traces_open(const char *folder, spw_measured_traces **out) {
    spw_measured_traces *traces = NULL;
    DIR *listed = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &traces));
    if (folder != NULL) {
        listed = opendir(folder);
        status = listed != NULL ? list_traces(folder, listed, traces)
                                : spw_fail(SPW_EIO, "%s: %s", folder, strerror(errno));
        if (status != SPW_OK) goto cleanup;
        qsort(traces->file, traces->files, sizeof *traces->file, by_path);
    }
    *out = traces;
    traces = NULL;

cleanup:
    if (listed != NULL) (void)closedir(listed);
    spw_measured_traces_close(traces);
    return status;
}

void spw_measured_traces_close(spw_measured_traces *traces) {
    if (traces == NULL) return;
    for (size_t i = 0; i < traces->files; i++) {
        spw_trace_close(traces->file[i].trace);
        spw_free(traces->file[i].path);
        spw_free(traces->file[i].name);
    }
    spw_free(traces->file);
    spw_free(traces);
}

/* --- A name --- */

spw_status spw_measured_source_read(const char *routing, spw_measured_source *out, bool *named) {
    const char *colon = strchr(routing, ':');
    char *end = NULL;
    *out = (spw_measured_source){.all = false};
    *named = colon != NULL && plain_name(routing, (size_t)(colon - routing), out->name, sizeof out->name) &&
             out->name[0] != '\0';
    if (!*named) return SPW_OK;
    out->all = strcmp(colon + 1, "all") == 0;
    if (out->all) return SPW_OK;
    errno = 0;
    out->step = strtoll(colon + 1, &end, 10);
    if (errno == 0 && end != colon + 1 && *end == '\0') return SPW_OK;
    return spw_fail(SPW_EFORMAT, "routing \"%s\": behind the name of a trace stands the id of a step, or all",
                    routing);
}

static bool has_step(const spw_trace_info *info, const spw_measured_source *source, size_t *step) {
    *step = 0;
    if (source->all) return info->has_tokens;
    for (size_t i = 0; i < info->steps; i++) {
        *step = i;
        if (info->step_id[i] == source->step) return true;
    }
    return false;
}

spw_status spw_measured_traces_find(spw_measured_traces *traces, const spw_measured_source *source,
                                    size_t experts, size_t top_k, spw_trace **out, size_t *step) {
    *out = NULL;
    for (size_t i = 0; i < traces->files && *out == NULL; i++) {
        file *f = &traces->file[i];
        if (strstr(f->name, source->name) == NULL) continue;
        if (f->trace == NULL) {
            spw_status status = spw_trace_open(f->path, &f->trace);
            if (status != SPW_OK) return status;
        }
        const spw_trace_info *info = spw_trace_get_info(f->trace);
        if (info->experts == experts && info->top_k == top_k && has_step(info, source, step)) *out = f->trace;
    }
    return SPW_OK;
}
